"""Throughput and latency around the events of runs, aligned to their begin: a panel for each treatment, a line for each
event."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

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


Cell: TypeAlias = tuple[str, ...]
Lines: TypeAlias = Sequence[Mapping[float, float]]


@dataclass(frozen=True)
class _Shown:
    """What the lines of some panels show, and their common axes."""

    name: str
    """In file names."""
    unit: str
    """On the axis and in hints."""
    said: str
    """What the panel of a cell shows, for readers who cannot see it."""
    across: Scale
    up: Scale


def around_events(summary: Summary, looks: Mapping[str, Look]) -> list[Drawing]:
    """Throughput. All panels have the same axes. Empty without events, or where too few I/Os complete."""
    found = {cell.cell: lines for cell in summary.cells if (lines := _lines(cell))}
    if not found:
        return []
    rates = _values(found)
    # A backlog that is worked off makes peaks many times as high as anything else.
    highest = min(max(rates), _PEAK_MAX * median(rate for rate in rates if rate > 0))
    unit = summary.rate_unit
    shown = _Shown("around events", unit, unit, _across(found), Scale([highest], zero=True, log=False))
    return _drawings(summary, dict(looks), found, shown)


def latency_around_events(summary: Summary, looks: Mapping[str, Look]) -> list[Drawing]:
    """The same of the latency; empty where no percentiles are known."""
    found = {cell.cell: lines for cell in summary.cells if any(lines := _latencies(cell))}
    if not found:
        return []
    said = "99th percentile of the latency in ms"
    shown = _Shown("p99 around events", "p99, ms", said, _across(found), Scale(_values(found), log=True))
    return _drawings(summary, dict(looks), found, shown)


def _values(found: Mapping[Cell, Lines]) -> list[float]:
    return [value for lines in found.values() for line in lines for value in line.values()]


def _across(found: Mapping[Cell, Lines]) -> Scale:
    times_s = [at_s for lines in found.values() for line in lines for at_s in line]
    across = Scale(times_s, log=False)
    # Before the event there are seconds below zero, which no other axis has.
    across.low = min(times_s)
    return across


def _drawings(summary: Summary, looks: dict[str, Look], found: Mapping[Cell, Lines], shown: _Shown) -> list[Drawing]:
    return [_drawing(summary, looks, cell, found[cell.cell], shown) for cell in summary.cells if cell.cell in found]


def _drawing(summary: Summary, looks: dict[str, Look], cell: CellSummary, lines: Lines, shown: _Shown) -> Drawing:
    heading = " · ".join(filter(None, (arm_titles(summary)[cell.arm], cell.condition)))
    undone_s = median((each.undone_ns - each.began_ns) / 1e9 for run in cell.runs for each in run.result.events)
    return Drawing(
        file_name(shown.name, cell.arm, cell.condition),
        heading,
        f"{shown.said} from the begin of each event on, one line for each, their median in bold. {around(cell)}",
        lambda width: _draw(cell, looks, lines, shown, undone_s, width, heading),
    )


def _latencies(cell: CellSummary) -> list[dict[float, float]]:
    """For each event: seconds from its begin to the middle of an interval → the 99th percentile of its I/Os, in ms.
    Without intervals in which none completed."""
    return [line for run in cell.runs for line in latencies_of_run(run)]


def latencies_of_run(run: Run) -> list[dict[float, float]]:
    known = [
        (each.at_ns, each.duration_ns, each.latency_p99_ns / 1e6)
        for each in run.result.series
        if each.duration_ns and each.latency_p99_ns
    ]
    begins = [event.began_ns for event in run.result.events]
    found = []
    for begin, before, after in zip(begins, [0, *begins], [*begins[1:], math.inf], strict=False):
        line = {}
        for at_ns, width_ns, latency in known:
            if before <= at_ns and at_ns + width_ns <= after:
                # Lines of runs whose intervals begin at other moments share a grid, so that they have a median.
                line[((at_ns - begin + width_ns / 2) // width_ns + 0.5) * width_ns / 1e9] = latency
        found.append(line)
    return found


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
    lines: Lines,
    shown: _Shown,
    undone_s: float,
    width_px: int,
    heading: str,
) -> Spec:
    across, up, unit = shown.across, shown.up, shown.unit
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
