"""Code shared by commands that compare measurements with simulations."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from iotax.analysis import StudyData
from iotax.calibration import NothingMeasured
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.collected import study_data
from iotax.engine import EngineError
from iotax.labs.base import TrialFailed
from iotax.notebook import Notebook, NotebookError
from iotax.study.sim import CostsError, CostTable, read_costs


def measured(notebook: Notebook, run: int | None) -> tuple[StudyData, str]:
    """One run of a notebook, and its name. Exits with the reason if there is none."""
    try:
        found = notebook.run(run)
        return study_data(notebook, found.id), f"{notebook.path.name}, run {found.id} ({found.name})"
    except NotebookError as error:
        leave(Exit.NOTEBOOK, str(error))


def costs_of(table: str, option: str) -> CostTable:
    """A built-in table by its name, or a file. Exits with the reason if there is none."""
    try:
        return read_costs(table)
    except CostsError as error:
        leave(Exit.USAGE, f"{option}: {error}")


@contextmanager
def simulating() -> Generator[None]:
    """Exits with the reason if measured treatments cannot be simulated."""
    try:
        yield
    except NothingMeasured as nothing:
        leave(Exit.USAGE, str(nothing))
    except (EngineError, TrialFailed) as error:
        leave(Exit.LAB, f"a treatment could not be simulated: {error}")


def tell(step: str) -> None:
    """The notebook while a command reads it."""
    echo(f"{step[:1].upper()}{step[1:]}.", err=True)
