"""`iotax sim predict`: compares a cost table's predictions with measurements of the same treatments."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from iotax.analysis import StudyData
from iotax.calibration import NothingMeasured, Predicted, Prediction, Row, predict
from iotax.cli.console import console, say
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.loading import open_notebook
from iotax.cli.options import JsonFile, NotebookOption, NotebookPath, RunNumber, one_notebook
from iotax.collected import study_data
from iotax.engine import EngineError, find_engine
from iotax.labs.base import TrialFailed
from iotax.notebook import Notebook, NotebookError
from iotax.study.sim import CostsError, CostTable, read_costs
from iotax.units import show_rate
from iotax.wording.figures import figure


def predicted(
    path: NotebookPath = None,
    notebook_option: NotebookOption = None,
    run: RunNumber = None,
    costs: Annotated[
        str, typer.Option("--costs", metavar="TABLE", help="A built-in cost table, or a file.")
    ] = "loopback",
    document: JsonFile = None,
) -> None:
    """Compare a cost table with measurements.

    Simulates each treatment of a notebook with the table's costs, and shows rate and CPU per I/O beside the measured
    ones: how far to trust simulations with that table. Use measurements from the table's machine that the table was
    not made from. Keeps nothing.
    """
    with open_notebook(one_notebook(path, notebook_option)) as notebook:
        judged(document, notebook.path, Path(costs))
        table = costs_of(costs, "--costs")
        data, source = measured(notebook, run)
        with simulating():
            found = predict(data, source, table, find_engine(), tell)
        if document != STDOUT:
            _print(found, costs)
        if document is not None:
            told = {"costs": costs, "measured": source, "treatments": document_of(found.rows)}
            write_document(document, told | {"left_out": found.left_out}, notebook.path, Path(costs))


def _print(found: Prediction, costs: str) -> None:
    console().print(table_of(found.rows, costs))
    for line in sentences(found.rows):
        say(line)
    say("Treatments that the table was made from tell how it fits, not how it predicts.")
    for line in found.left_out:
        say(f"Left out: {line}.")


_CLOSE = 0.1
"""Largest difference that counts as close, as a share of the measured value."""


def table_of(rows: Sequence[Row], costs: str) -> Table:
    """One row for each treatment."""
    shown = Table(title=f"As measured, with 95 % intervals, and as {escape(costs)} says", title_justify="left")
    shown.add_column("treatment")
    for name in ("IOPS measured", "simulated", "off", "CPU µs/IO measured", "simulated", "off"):
        shown.add_column(name, justify="right")
    for row in rows:
        rate = ["", "", ""] if row.rate_iops is None else _cells(row.rate_iops, show_rate)
        shown.add_row(escape(row.treatment), *rate, *_cells(row.cpu_ns, lambda ns: figure(ns / 1000)))
    return shown


def sentences(rows: Sequence[Row]) -> list[str]:
    """How many simulated figures are close."""
    rates = [row.rate_iops for row in rows if row.rate_iops is not None]
    compared = (("CPU per I/O", [row.cpu_ns for row in rows]), ("IOPS", rates))
    told = [_sentence(what, figures) for what, figures in compared if figures]
    if len(rates) < len(rows):
        told.append("IOPS are compared over loopback alone, where nothing but threads takes time.")
    return told


def document_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The same for other programs."""
    return [
        {
            "treatment": row.treatment,
            "rate_iops": None if row.rate_iops is None else _told(row.rate_iops),
            "cpu_ns": _told(row.cpu_ns),
        }
        for row in rows
    ]


def _sentence(what: str, figures: list[Predicted]) -> str:
    close = [abs(each.off) <= _CLOSE for each in figures]
    said = f"{what}: {sum(close)} of {len(figures)} simulated within 10 % of what was measured."
    scattered = sum(each.is_within_scatter for each, near in zip(figures, close, strict=True) if not near)
    others = len(figures) - sum(close)
    if scattered:
        said += f" Of the other {others}, {scattered} lie in the measurement's own 95 % interval."
    return said


def _cells(found: Predicted, shown: Callable[[float], str]) -> list[str]:
    mean, off = found.measured, f"{100 * found.off:+.0f} %".replace("-", "−")
    known = mean.low is not None and mean.high is not None
    ends = f" [{shown(max(0.0, mean.low or 0.0))}, {shown(mean.high or 0.0)}]" if known else ""
    return [escape(f"{shown(mean.value)}{ends}"), shown(found.simulated), off]


def _told(found: Predicted) -> dict[str, Any]:
    mean = found.measured
    return {
        "measured": mean.value,
        "low": mean.low,
        "high": mean.high,
        "simulated": found.simulated,
        "off": found.off,
    }


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
