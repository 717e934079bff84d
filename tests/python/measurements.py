"""Short measured studies, for tests of what is made from measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from command_line import ran
from iotax.analysis import StudyData
from iotax.collected import study_data
from iotax.notebook import Notebook
from iotax.trial import TrialResult


def measured_in(folder: Path, study: dict[str, Any]) -> Path:
    """Runs the study, and returns its notebook."""
    file, notebook = folder / "m.yaml", folder / "m.iotax"
    file.write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    done = ran("run", file, notebook, "--no-report")
    assert done.exit_code == 0, done.output
    return notebook


def data_of(notebook: Path) -> StudyData:
    with Notebook(notebook) as opened:
        return study_data(opened)


def results_of(notebook: Notebook, trials: int) -> list[TrialResult]:
    """One result for each of `trials` trials. An attempt that fails on a busy machine does not matter, because the
    runner repeats it, as for a user."""
    attempts = notebook.attempts()
    results = {each.trial.id: each.result for each in attempts if each.result is not None}
    assert len(results) == trials, [(each.trial.id, each.status, each.reason) for each in attempts]
    return list(results.values())
