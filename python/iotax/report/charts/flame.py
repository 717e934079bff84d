"""Flame graphs of the calls in which an I/O's instructions are spent, one for each arm and side. A row is a depth of
calls, callers below; the width of a box is the instructions of a function and everything it called."""

from __future__ import annotations

from collections.abc import Sequence

from iotax.analysis import Summary
from iotax.analysis.profile import CellProfile, cell_profiles
from iotax.report.calls import TEXT_PX, Box, boxes, fitting
from iotax.report.charts.base import WIDE_PX, Drawing, arm_titles, file_name
from iotax.report.charts.layers import FAMILY_COLOURS
from iotax.report.charts.vega import Spec, chosen, end, layer, number, picture, word
from iotax.report.palette import ref
from iotax.wording import figure
from iotax.wording.profile import FAMILIES, layer_tables

_ROW_PX = 15
_HEAD_PX = 34
_TEXT_ROOM_PX = 6
_BOX_PX_MIN = 1.5
"""Narrower boxes cannot be seen and are left out."""
_PALE = ("part-rest", "part-target", "part-background")
"""Colours of boxes on which dark text is readable, in light and dark mode; text on other boxes has the
page's colour."""
_FAMILY = {layer: family for family, layers in FAMILIES.items() for layer in layers}


def flame_graphs(summary: Summary) -> list[Drawing]:
    """None if no run has a call tree."""
    tables = layer_tables(cell_profiles(summary.cells))
    return [_drawing(summary, profile, table.side) for table in tables for profile in table.profiles if profile.calls]


def _drawing(summary: Summary, profile: CellProfile, side: str) -> Drawing:
    condition = f", {profile.condition}" if profile.condition else ""
    heading = f"{arm_titles(summary)[profile.arm]}, {side}{condition}"
    placed = boxes(profile.calls)
    most = sorted(placed, key=lambda box: box.begin - box.end)[:5]
    said = ", ".join(f"{box.frame.function} {figure(box.frame.instructions)}" for box in most)
    return Drawing(
        file_name("calls", profile.arm, side, profile.condition),
        heading,
        f"Instructions per {summary.counts} by call, callers below. Widest: {said}.",
        lambda width: _spec(placed, profile.instructions, width, heading),
        WIDE_PX,
    )


def _spec(placed: Sequence[Box], whole: float, width_px: int, heading: str) -> Spec:
    px = width_px / whole
    seen = [box for box in placed if (box.end - box.begin) * px >= _BOX_PX_MIN]
    rows = [
        {
            "x": box.begin,
            "x2": box.end,
            "y": box.depth + 0.04,
            "y2": box.depth + 0.96,
            "part": _FAMILY.get(box.frame.layer, "Not named"),
            "say": f"{box.frame.function}: {figure(box.frame.instructions)} instructions, "
            f"{100 * box.frame.instructions / whole:.1f} %, {box.frame.layer}",
        }
        for box in seen
    ]
    texts = [
        {"x": box.begin, "y": box.depth + 0.5, "text": text, "part": _FAMILY.get(box.frame.layer, "Not named")}
        for box in seen
        if (text := fitting(box.frame.function, (box.end - box.begin) * px - _TEXT_ROOM_PX))
    ]
    depth = 1 + max(box.depth for box in seen)
    x = number("x", {"domain": [0, whole], "nice": False}, axis=None) | {"axis": None}
    y = number("y", {"domain": [0, depth], "nice": False}, axis=None) | {"axis": None}
    fill = chosen("part", [part for part, _ in FAMILY_COLOURS], [ref(name) for _, name in FAMILY_COLOURS])
    letters = chosen(
        "part",
        [part for part, _ in FAMILY_COLOURS],
        [ref("ink" if name in _PALE else "page") for _, name in FAMILY_COLOURS],
    )
    bars = layer(
        "rect",
        rows,
        {"x": x, "x2": end("x2"), "y": y, "y2": end("y2"), "color": fill},
        stroke=ref("page"),
        strokeWidth=0.4,
    )
    text = layer(
        "text",
        texts,
        {"x": x, "y": y, "text": word("text"), "color": letters},
        align="left",
        baseline="middle",
        dx=3,
        fontSize=TEXT_PX,
    )
    # Text and boxes have separate colours.
    apart = {"resolve": {"scale": {"color": "independent"}}}
    return picture([bars, text], width_px, _HEAD_PX + _ROW_PX * depth, heading) | apart
