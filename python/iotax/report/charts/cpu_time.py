"""Processors that each role kept busy during a run: a panel for each role and condition, a line for each run."""

from collections.abc import Sequence

from iotax.analysis import CellSummary, Summary
from iotax.analysis.responses import ROLES
from iotax.records import CpuRole
from iotax.report.charts.base import Drawing, Scale, arm_titles, axis, colour, file_name
from iotax.report.charts.vega import Spec, layer, number, picture, word
from iotax.report.palette import Look
from iotax.wording import figure

_HEIGHT_PX = 200
_FEWEST = 2
"""Minimum number of points for a line."""


def cpu_over_time(summary: Summary, looks: dict[str, Look], condition: str, role: CpuRole) -> Drawing | None:
    """None if the role was read only at the window's ends."""
    cells = [cell for cell in summary.cells if cell.condition == condition]
    lines = [(cell, line) for cell in cells for line in _lines(cell, role)]
    if not lines:
        return None
    names = arm_titles(summary)
    heading = " · ".join(filter(None, (ROLES[role][:1].upper() + ROLES[role][1:], condition)))
    reach = {
        names[cell.arm]: [cores for other, line in lines if other.arm == cell.arm for _, cores in line]
        for cell, _ in lines
    }
    said = "; ".join(f"{name}: {figure(min(each))} to {figure(max(each))}" for name, each in reach.items())
    return Drawing(
        file_name("cpu over time", role, condition),
        heading,
        f"Busy processors of the {ROLES[role]} over each run, including its background without load. {said}.",
        lambda width: _draw(lines, looks, names, width, heading),
    )


def _lines(cell: CellSummary, role: CpuRole) -> list[list[tuple[float, float]]]:
    """For each run: (seconds from the window's start to the middle of the interval, busy processors)."""
    found = []
    for run in cell.runs:
        points = [
            ((each.at_ns + each.duration_ns / 2) / 1e9, cores)
            for each in run.result.cpu_over_time
            if (cores := each.cores(role)) is not None
        ]
        if len(points) >= _FEWEST:
            found.append(points)
    return found


def _draw(
    lines: Sequence[tuple[CellSummary, list[tuple[float, float]]]],
    looks: dict[str, Look],
    names: dict[str, str],
    width_px: int,
    heading: str,
) -> Spec:
    rows: list[Spec] = [
        {
            "x": at_s,
            "y": cores,
            "arm": cell.arm,
            "run": number_of,
            "say": f"{names[cell.arm]}, {figure(at_s)} s: {figure(cores)} processors",
        }
        for number_of, (cell, line) in enumerate(lines)
        for at_s, cores in line
    ]
    arms = list(dict.fromkeys(cell.arm for cell, _ in lines))
    across, up = Scale([row["x"] for row in rows], log=False), Scale([row["y"] for row in rows], zero=True, log=False)
    channels = {
        "x": number("x", across.vega, axis("Seconds of the run", across, labelOverlap=True)),
        "y": number("y", up.vega, axis("Busy processors", up, grid=True)),
        "color": colour(looks, arms),
        "detail": word("run"),
    }
    return picture([layer("line", rows, channels, strokeWidth=1.4, opacity=0.75)], width_px, _HEIGHT_PX, heading)
