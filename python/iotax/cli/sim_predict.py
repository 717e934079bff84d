"""`iotax sim predict`: what a table of costs says of treatments that were measured, beside what was measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from iotax.calibration import Predicted, Prediction, predict
from iotax.cli.console import console, say
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.measurements import costs_of, measured, simulating, tell
from iotax.cli.notebooks import open_notebook
from iotax.engine import find_engine
from iotax.units import show_rate
from iotax.wording.figures import figure

_CLOSE = 0.1
"""As a share of what was measured."""


def predicted(path: Path | None, run: int | None, costs: str, document: Path | None) -> None:
    with open_notebook(path) as notebook:
        judged(document, notebook.path, Path(costs))
        table = costs_of(costs, "--costs")
        data, source = measured(notebook, run)
        with simulating():
            found = predict(data, source, table, find_engine(), tell)
        if document != STDOUT:
            _print(found, costs)
        if document is not None:
            write_document(
                document, {"costs": costs, "measured": source} | _document(found), notebook.path, Path(costs)
            )


def _print(found: Prediction, costs: str) -> None:
    console().print(_rows(found, costs))
    rates = [row.rate_iops for row in found.rows if row.rate_iops is not None]
    for what, figures in (("CPU per I/O", [row.cpu_ns for row in found.rows]), ("IOPS", rates)):
        if figures:
            say(_sentence(what, figures))
    if len(rates) < len(found.rows):
        say("IOPS are compared over loopback alone, where nothing but threads takes time.")
    say("Treatments that the table was made from tell how it fits, not how it predicts.")
    for line in found.left_out:
        say(f"Left out: {line}.")


def _sentence(what: str, figures: list[Predicted]) -> str:
    close = [abs(each.off) <= _CLOSE for each in figures]
    said = f"{what}: {sum(close)} of {len(figures)} simulated within 10 % of what was measured."
    scattered = sum(each.is_within_scatter for each, near in zip(figures, close, strict=True) if not near)
    others = len(figures) - sum(close)
    if scattered:
        said += f" Of the other {others}, {scattered} lie in the measurement's own 95 % interval."
    return said


def _rows(found: Prediction, costs: str) -> Table:
    shown = Table(title=f"As measured, with 95 % intervals, and as {escape(costs)} says", title_justify="left")
    shown.add_column("treatment")
    for name in ("IOPS measured", "simulated", "off", "CPU µs/IO measured", "simulated", "off"):
        shown.add_column(name, justify="right")
    for row in found.rows:
        rate = ["", "", ""] if row.rate_iops is None else _cells(row.rate_iops, show_rate)
        shown.add_row(escape(row.treatment), *rate, *_cells(row.cpu_ns, lambda ns: figure(ns / 1000)))
    return shown


def _cells(found: Predicted, shown: Callable[[float], str]) -> list[str]:
    mean, off = found.measured, f"{100 * found.off:+.0f} %".replace("-", "−")
    known = mean.low is not None and mean.high is not None
    ends = f" [{shown(max(0.0, mean.low or 0.0))}, {shown(mean.high or 0.0)}]" if known else ""
    return [escape(f"{shown(mean.value)}{ends}"), shown(found.simulated), off]


def _document(found: Prediction) -> dict[str, Any]:
    return {
        "treatments": [
            {
                "treatment": row.treatment,
                "rate_iops": None if row.rate_iops is None else _told(row.rate_iops),
                "cpu_ns": _told(row.cpu_ns),
            }
            for row in found.rows
        ],
        "left_out": found.left_out,
    }


def _told(found: Predicted) -> dict[str, Any]:
    mean = found.measured
    return {
        "measured": mean.value,
        "low": mean.low,
        "high": mean.high,
        "simulated": found.simulated,
        "off": found.off,
    }
