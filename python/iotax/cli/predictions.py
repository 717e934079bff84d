"""Compares figures simulated with a cost table with the measured ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from iotax.calibration import Predicted, Row
from iotax.units import show_rate
from iotax.wording.figures import figure

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
