"""Throughput around the events of runs, aligned to their begin: a panel for each treatment, a line for each event."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from iotax.analysis import CellSummary, Run, Summary
from iotax.analysis.recovery import BACK_NS, IOS_MIN
from iotax.report.charts.base import Drawing, Scale, arm_titles, axis, brief, colour, file_name, parted
from iotax.report.charts.vega import Spec, layer, number, picture, word
from iotax.report.palette import Look
from iotax.wording import figure
from iotax.wording.recovery import around

_HEIGHT_PX = 200
_POINTS_MAX = 200
"""Of one line."""
_PEAK_MAX = 3.0
"""Times the median rate at which peaks are cut."""


def around_events(summary: Summary, looks: Mapping[str, Look]) -> list[Drawing]:
    """All panels have the same axes. Empty without events, or where too few I/Os complete."""
    lines = {cell.cell: found for cell in summary.cells if (found := _lines(cell))}
    if not lines:
        return []
    points = [point for found in lines.values() for line in found for point in line.items()]
    across = Scale([at_s for at_s, _ in points], log=False)
    # Before the event there are seconds below zero, which no other axis has.
    across.low = min(at_s for at_s, _ in points)
    # A backlog that is worked off makes peaks many times as high as anything else.
    highest = min(max(rate for _, rate in points), _PEAK_MAX * median(rate for _, rate in points if rate > 0))
    up = Scale([highest], zero=True, log=False)
    cells = [cell for cell in summary.cells if cell.cell in lines]
    return [_drawing(summary, dict(looks), cell, lines[cell.cell], across, up) for cell in cells]


def _drawing(
    summary: Summary,
    looks: dict[str, Look],
    cell: CellSummary,
    lines: Sequence[Mapping[float, float]],
    across: Scale,
    up: Scale,
) -> Drawing:
    heading = " · ".join(filter(None, (arm_titles(summary)[cell.arm], cell.condition)))
    undone_s = median((each.undone_ns - each.began_ns) / 1e9 for run in cell.runs for each in run.result.events)
    return Drawing(
        file_name("around events", cell.arm, cell.condition),
        heading,
        f"{summary.rate_unit} from the begin of each event on, one line for each, their median in bold. {around(cell)}",
        lambda width: _draw(cell, looks, lines, (across, up), undone_s, summary.rate_unit, width, heading),
    )


def _lines(cell: CellSummary) -> list[dict[float, float]]:
    """For each event: seconds from its begin to the middle of an interval → I/Os per second."""
    widths = [each for run in cell.runs if run.result.events and (each := _width_ns(run)) is not None]
    return [line for run in cell.runs for line in of_run(run, max(widths))] if widths else []


def _width_ns(run: Run) -> int | None:
    """Of an interval with enough I/Os in it, and few enough of them for a line."""
    counted = run.result.counted
    if counted is None or (enough := counted.wider(IOS_MIN, BACK_NS)) is None:
        return None
    fewest = math.ceil(len(counted.ios) / _POINTS_MAX) * counted.interval_ns
    return max(enough.interval_ns, fewest)


def of_run(run: Run, width_ns: int) -> list[dict[float, float]]:
    counted, events = run.result.counted, run.result.events
    if counted is None:
        return []
    interval_ns = counted.interval_ns
    width = max(1, width_ns // interval_ns)
    begins = [round(event.began_ns / interval_ns) for event in events]
    found = []
    for number_of, begin in enumerate(begins):
        first = begins[number_of - 1] if number_of else 0
        last = begins[number_of + 1] if number_of + 1 < len(begins) else len(counted.ios)
        bins = range(-((begin - first) // width), (last - begin) // width)
        line = {}
        for place in bins:
            at = begin + place * width
            ios = sum(counted.ios[at : at + width])
            line[(place + 0.5) * width * interval_ns / 1e9] = ios / (width * interval_ns / 1e9)
        found.append(line)
    return found


def _draw(
    cell: CellSummary,
    looks: dict[str, Look],
    lines: Sequence[Mapping[float, float]],
    scales: tuple[Scale, Scale],
    undone_s: float,
    unit: str,
    width_px: int,
    heading: str,
) -> Spec:
    across, up = scales
    rows: list[Spec] = [
        {"x": at_s, "y": rate, "arm": cell.arm, "event": number_of}
        for number_of, line in enumerate(lines)
        for at_s, rate in line.items()
    ]
    together: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        together[row["x"]].append(row["y"])
    middle: list[Spec] = [
        {"x": at_s, "y": median(rates), "arm": cell.arm, "say": f"{figure(at_s)} s: {brief(median(rates))} {unit}"}
        for at_s, rates in sorted(together.items())
    ]
    x = number("x", across.vega, axis("Seconds from the event", across, labelOverlap=True))
    y = number("y", up.vega, axis(unit, up, grid=True))
    channels = {"x": x, "y": y, "color": colour(looks, [cell.arm])}
    edges: list[Spec] = [{"x": 0.0}, {"x": undone_s}]
    return picture(
        [
            *parted(edges, [], x, y, width_px)[:1],
            layer("line", rows, {**channels, "detail": word("event")}, strokeWidth=0.9, opacity=0.45, clip=True),
            layer("line", middle, channels, strokeWidth=2, clip=True),
        ],
        width_px,
        _HEIGHT_PX,
        heading,
    )
