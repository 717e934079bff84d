"""Open loops: response and service time over the offered rate, and how much of the offered load completed."""

from collections.abc import Callable, Sequence

import numpy as np

from iotax.analysis import CellSummary, Run, Summary, histogram
from iotax.analysis.data import RATE
from iotax.analysis.validity import ACHIEVED_MIN
from iotax.report.charts.base import (
    HALF_PX,
    LINE_PX,
    Drawing,
    Scale,
    arm_titles,
    axis,
    colour,
    dots,
    file_name,
    names_beside,
    room_px,
    say,
    shape,
)
from iotax.report.charts.levels import level_axis
from iotax.report.charts.vega import Spec, layer, number, picture, word
from iotax.report.palette import Look, ref

_HEIGHT_PX = 300
_FACTOR_ROOM = 1.2


def responses_over_rate(summary: Summary, looks: dict[str, Look], facet: str) -> list[Drawing]:
    """Mean and p99 of one panel: response time from an I/O's due time, and service time from its submission."""
    cells = [c for c in _cells(summary) if summary.grid.facet(c.cell) == facet]
    return [
        Drawing(
            file_name(name, "over offered rate", facet),
            f"{name} response and service" + (f", {facet}" if facet else ""),
            "Solid: from when an I/O was due; dashed: from its submission. Where they separate, I/Os wait for a slot.",
            lambda width, name=name, of=of: _responses(summary, looks, cells, name, of, width, facet),
            HALF_PX,
        )
        for name, of in (("Mean", _mean_us), ("p99", _p99_us))
        if cells
    ]


def achieved_rate(summary: Summary, looks: dict[str, Look]) -> Drawing | None:
    """The share of the offered rate that completed, for every run."""
    rows = _open_rows(summary, lambda run: 100 * run.result.open.achieved if run.result.open else None)
    if not rows:
        return None
    return Drawing(
        "achieved-over-offered",
        "Rate achieved (% of the offered)",
        f"Every run. Below {100 * ACHIEVED_MIN:.0f} % the rate was not achieved and the treatment is flagged, unless "
        f"random arrivals explain it.",
        lambda width: _shares(summary, looks, rows, width, "Rate achieved (% of the offered)", 100 * ACHIEVED_MIN),
        HALF_PX,
    )


def backlog(summary: Summary, looks: dict[str, Look]) -> Drawing | None:
    """I/Os that waited at the end or were dropped; None if there were none."""
    rows = _open_rows(summary, _left_behind)
    if not any(row["y"] for row in rows):
        return None
    return Drawing(
        "backlog-over-offered",
        "Dropped, or waiting at the end (% of the offered)",
        "Every run: I/Os that found the backlog full, and those still in it when the window ended.",
        lambda width: _shares(summary, looks, rows, width, "Dropped, or waiting at the end (% of the offered)", None),
        HALF_PX,
    )


def _cells(summary: Summary) -> list[CellSummary]:
    """Conditions with a rate, if the rate is the charts' x axis."""
    if summary.grid.x_factor != RATE:
        return []
    return [c for c in summary.cells if any(run.result.open and run.result.ios for run in c.runs)]


def _mean_us(run: Run) -> tuple[float, float]:
    return run.result.latency_mean_ns / 1e3, run.result.service_mean_ns / 1e3


def _p99_us(run: Run) -> tuple[float, float]:
    parts = [part.service for part in (run.result.read, run.result.write) if part.service is not None]
    response = run.latency.percentile_ns(99) / 1e3
    service = histogram.of(*(part.histogram for part in parts)).percentile_ns(99) / 1e3 if parts else response
    return response, service


def _responses(
    summary: Summary,
    looks: dict[str, Look],
    cells: Sequence[CellSummary],
    name: str,
    of: Callable[[Run], tuple[float, float]],
    width_px: int,
    facet: str,
) -> Spec:
    names = arm_titles(summary)
    points: list[Spec] = []
    lines: dict[str, list[Spec]] = {"response": [], "service": []}
    for cell in cells:
        x = float(summary.grid.value(cell.cell, RATE))
        found = [of(run) for run in cell.runs if run.result.ios]
        for i, kind in enumerate(lines):
            mean = float(np.exp(np.mean(np.log([pair[i] for pair in found]))))
            text = f"{names[cell.arm]}, {x:,.0f} IOPS offered, {name} {kind}: {say(mean, 'µs')}"
            lines[kind].append({"x": x, "y": mean, "arm": cell.arm, "say": text})
        for response, _ in found:
            text = f"{names[cell.arm]}, {x:,.0f} IOPS offered, {name} response of a run: {say(response, 'µs')}"
            points.append({"x": x, "y": response, "arm": cell.arm, "say": text})
    arms = [arm for arm in summary.grid.arms if any(p["arm"] == arm for p in points)]
    scale = Scale([row["y"] for row in (*points, *lines["service"])])
    channels = {
        "x": level_axis(summary, RATE, room_px(names[a] for a in arms), width_px),
        "y": number("y", scale.vega, axis("µs", scale)),
        "color": colour(looks, arms),
    }
    layers = [
        layer("line", lines["service"], {**channels, "detail": word("arm")}, strokeWidth=1.5, strokeDash=[4, 3]),
        layer("line", lines["response"], {**channels, "detail": word("arm")}, strokeWidth=2),
        dots(points, {**channels, "shape": shape(looks, arms)}, size=30),
        names_beside(lines["response"], arms, names, channels, scale, _HEIGHT_PX - 70),
    ]
    heading = f"{name} response and service" + (f", {facet}" if facet else "")
    return picture(layers, width_px, _HEIGHT_PX, heading)


def _left_behind(run: Run) -> float | None:
    held = run.result.open
    if held is None:
        return None
    return 100 * (held.dropped + held.backlog_end) / held.offered if held.offered else 0.0


def _open_rows(summary: Summary, of: Callable[[Run], float | None]) -> list[Spec]:
    names = arm_titles(summary)
    rows: list[Spec] = []
    for cell in _cells(summary):
        for run in cell.runs:
            share = of(run)
            if share is not None:
                x = float(summary.grid.value(cell.cell, RATE))
                text = f"{names[cell.arm]}, {cell.condition}, block {run.trial.block}: {share:.2f} %"
                rows.append({"x": x, "y": share, "arm": cell.arm, "say": text})
    return rows


def _shares(
    summary: Summary, looks: dict[str, Look], rows: list[Spec], width_px: int, heading: str, limit: float | None
) -> Spec:
    arms = [arm for arm in summary.grid.arms if any(row["arm"] == arm for row in rows)]
    scale = Scale([0.0, *(row["y"] for row in rows)], zero=True, log=False)
    if limit is not None:
        # The axis does not start at zero, so that small losses from 100 are visible; it holds points, not bars.
        lowest = min(limit, *(row["y"] for row in rows))
        scale.low, scale.high = lowest - 0.15 * (100.5 - lowest), max(100.5, *(row["y"] + 0.2 for row in rows))
        scale.ticks = [tick for tick in _percent_ticks(scale.low) if scale.low <= tick <= scale.high]
    y_axis = axis(None, scale, labelExpr="format(datum.value, ',~r') + ' %'")
    channels = {
        "x": level_axis(summary, RATE, LINE_PX * _FACTOR_ROOM, width_px),
        "y": number("y", scale.vega, y_axis),
    }
    points = dots(rows, {**channels, "color": colour(looks, arms), "shape": shape(looks, arms)}, size=30)
    rule = [layer("rule", [{"y": limit}], {"y": channels["y"]}, color=ref("axis"), strokeDash=[4, 3])] if limit else []
    return picture([*rule, points], width_px, _HEIGHT_PX, heading)


def _percent_ticks(low: float) -> list[float]:
    step = next(step for step in (0.5, 1, 2, 5, 10, 20) if (100 - low) / step <= 5 or step == 20)
    return [100 - i * step for i in range(6)]
