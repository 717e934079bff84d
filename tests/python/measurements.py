"""Studies that are measured for a moment, for tests of what is made of measurements."""

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
    """The notebook."""
    file, notebook = folder / "m.yaml", folder / "m.iotax"
    file.write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    done = ran("run", file, notebook, "--no-report")
    assert done.exit_code == 0, done.output
    return notebook


def data_of(notebook: Path) -> StudyData:
    with Notebook(notebook) as opened:
        return study_data(opened)


def results_of(notebook: Notebook, trials: int) -> list[TrialResult]:
    """One result of each of so many trials. An attempt that a busy machine fails counts no more than it does for a
    user: the runner makes another."""
    attempts = notebook.attempts()
    results = {each.trial.id: each.result for each in attempts if each.result is not None}
    assert len(results) == trials, [(each.trial.id, each.status, each.reason) for each in attempts]
    return list(results.values())
