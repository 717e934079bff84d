"""Studies that are measured for a moment, for tests of what is made of measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from command_line import ran
from iotax.analysis import StudyData
from iotax.collected import study_data
from iotax.notebook import Notebook


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
