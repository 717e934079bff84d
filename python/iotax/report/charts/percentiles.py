"""Latency at every percentile up to the maximum, from counts added up over the runs."""

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

from iotax.analysis import CellSummary, Summary
from iotax.analysis.histogram import LatencyBins, merge, of
from iotax.analysis.responses import READ, WRITE
from iotax.report.charts.base import (
    PANEL_PX,
    Drawing,
    Scale,
    arm_titles,
    axis,
    colour,
    file_name,
    names_beside,
    room_px,
)
from iotax.report.charts.vega import Spec, layer, number, picture, word
from iotax.report.palette import Look
from iotax.wording import figure

HEIGHT_PX = 290
_TICK_APART = 0.45
_TICKS = ((50, "50"), (90, "90"), (99, "99"), (99.9, "99.9"), (99.99, "99.99"), (99.999, "99.999"))


Part: TypeAlias = Literal["", "reads", "writes"]
PARTS: tuple[Part, ...] = ("reads", "writes")


def percentile_curves(summary: Summary, looks: dict[str, Look], condition: str, part: Part = "") -> Drawing | None:
    """All I/Os, or only the reads or writes of a mixed load."""
    cells = [c for c in summary.cells if c.condition == condition]
    if part:
        cells = [c for c in cells if {READ.key, WRITE.key} <= c.values.keys()]
    found = {c.arm: latency for c in cells if (latency := _latency(c, part)).total}
    if not found:
        return None
    names = arm_titles(summary)
    medians = "; ".join(
        f"{names[arm]}: median {figure(latency.percentile_ns(50) / 1e3)} µs, "
        f"p99 {figure(latency.percentile_ns(99) / 1e3)} µs, maximum {figure(latency.percentile_ns(100) / 1e3)} µs"
        for arm, latency in found.items()
    )
    said = ", ".join(each for each in (condition, part) if each)
    heading = said[:1].upper() + said[1:]
    return Drawing(
        file_name("latency percentiles", said),
        heading or "Latency percentiles",
        f"Latency{f' of {part}' if part else ''} over percentile on logarithmic scales. {medians}.",
        lambda width: _draw(summary, looks, found, width, heading),
    )


def _latency(cell: CellSummary, part: Part) -> LatencyBins:
    """The sum of the runs' counts."""
    if not part:
        return cell.latency
    sides = [run.result.read if part == "reads" else run.result.write for run in cell.runs]
    return merge(of(side.histogram) for side in sides if side.latency == "histogram")


def _draw(
    summary: Summary, looks: dict[str, Look], latencies: Mapping[str, LatencyBins], width_px: int, heading: str
) -> Spec:
    names = arm_titles(summary)
    curves = {arm: latency.curve() for arm, latency in latencies.items()}
    last = max(_nines(p) for curve in curves.values() for p, _ in curve if p < 100)
    end = last + 0.35
    rows: list[Spec] = [
        {
            "x": end if percent == 100 else _nines(percent),
            "y": max(ns, 1) / 1e3,
            "arm": arm,
            "say": _say(names[arm], latencies[arm], percent, ns),
        }
        for arm, curve in curves.items()
        for percent, ns in curve
    ]
    arms = list(curves)
    scale = Scale([row["y"] for row in rows], log=True)
    ticks = [(_nines(p), label) for p, label in _TICKS if _nines(p) <= end - _TICK_APART]
    words = "".join(f"abs(datum.value - {x}) < 1e-6 ? '{label}' : " for x, label in ticks) + "'max'"
    free_px = room_px(names[arm] for arm in arms)
    percentile = {
        "title": "Percentile",
        "values": [*(tick for tick, _ in ticks), end],
        "labelExpr": words,
        "grid": True,
        "titleAnchor": "start",
        "labelOverlap": False,
    }
    channels = {
        "x": number("x", {"domain": [0, end * (1 + free_px / (PANEL_PX - 60 - free_px))], "nice": False}, percentile),
        "y": number("y", scale.vega, axis("Latency (µs)", scale)),
        "color": colour(looks, arms),
    }
    line = layer("line", rows, {**channels, "detail": word("arm")}, strokeWidth=2, interpolate="monotone")
    marks = layer("point", rows, channels, size=16, filled=True, opacity=1)
    text = names_beside(rows, arms, names, channels, scale, HEIGHT_PX - 75)
    return picture([line, marks, text], width_px, HEIGHT_PX, heading)


def _say(name: str, latency: LatencyBins, percent: float, ns: float) -> str:
    """The interval assumes independent I/Os. I/Os of one queue are not quite independent, so the uncertainty is at
    least this."""
    if percent == 100:
        return f"{name}, maximum: {figure(ns / 1e3)} µs"
    bounds = latency.percentile_interval_ns(percent) if percent > 0 else None
    inside = f" ({figure(bounds[0] / 1e3)} to {figure(bounds[1] / 1e3)} at least)" if bounds else ""
    return f"{name}, p{percent:g}: {figure(ns / 1e3)} µs{inside}"


def _nines(percent: float) -> float:
    """0 at the minimum, 1 at p90, 2 at p99: each step leaves a tenth of the I/Os."""
    return -math.log10(1 - percent / 100)
