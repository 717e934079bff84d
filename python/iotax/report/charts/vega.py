"""Vega-Lite specifications for the charts: layers of marks with channels, in one theme."""

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

from iotax.report import font
from iotax.report.palette import ref

Spec: TypeAlias = dict[str, Any]

FONT_PX = 12
LABEL_PX = FONT_PX - 1
"""Size of numbers at axes and of text smaller than a name."""
_HEADING_PX = FONT_PX + 1


def layer(mark: str, rows: Sequence[Spec], channels: Spec, **style: Any) -> Spec:
    """One kind of mark for each row. A row's `say` describes the mark in words."""
    spoken = {"description": word("say")} if rows and "say" in rows[0] else {}
    return {"mark": {"type": mark, **style}, "data": {"values": list(rows)}, "encoding": {**channels, **spoken}}


def number(field: str, scale: Spec, axis: Spec | None = None) -> Spec:
    return {"field": field, "type": "quantitative", "scale": scale, **({"axis": axis} if axis is not None else {})}


def end(field: str) -> Spec:
    """The other end of a bar or a rule."""
    return {"field": field}


def word(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "nominal", **more}


def chosen(field: str, domain: Sequence[str], values: Sequence[str]) -> Spec:
    """A colour or a shape for each word; the legend is in the page."""
    return word(field, scale={"domain": list(domain), "range": list(values)}, legend=None)


def quoted(text: str) -> str:
    """A text as an expression's literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def picture(layers: Sequence[Spec], width_px: int, height_px: int, heading: str = "") -> Spec:
    """The whole chart. Its size includes axes and labels."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": width_px,
        "height": height_px,
        "autosize": {"type": "fit", "contains": "padding"},
        "padding": {"left": 2, "right": 2, "top": 4, "bottom": 2},
        "title": {"text": _lines(heading, width_px), "anchor": "start", "frame": "bounds"} if heading else None,
        "layer": list(layers),
        "config": _theme(),
    }


def _lines(heading: str, width_px: int) -> list[str]:
    """Breaks a heading too wide for its chart between its parts, and a part too wide between its words."""

    def fits(text: str) -> bool:
        return font.width_px(text, _HEADING_PX, bold=True) <= width_px

    lines: list[str] = []
    for part in re.split(r"(?<=,) | (?=· )", heading):
        for piece in [part] if fits(part) else part.split(" "):
            longer = f"{lines[-1]} {piece}" if lines else piece
            if lines and fits(longer):
                lines[-1] = longer
            else:
                lines.append(piece)
    return lines


def _theme() -> Spec:
    return {
        "font": f"{font.FAMILY}, sans-serif",
        "background": None,
        "view": {"stroke": None},
        "axis": {
            "labelColor": ref("soft"),
            "titleColor": ref("soft"),
            "gridColor": ref("grid"),
            "domainColor": ref("axis"),
            "tickColor": ref("axis"),
            "labelFontSize": LABEL_PX,
            "titleFontSize": FONT_PX,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "labelPadding": 5,
            "ticks": False,
            "domain": False,
        },
        "axisX": {"labelSeparation": 6, "grid": False, "domain": True, "ticks": True, "tickSize": 4},
        "title": {"color": ref("ink"), "fontSize": _HEADING_PX, "fontWeight": "bold", "offset": 8},
        "text": {"fontSize": FONT_PX, "color": ref("ink")},
    }
