"""Ratios to the baseline with their intervals and the margin of equivalence."""

import math

from iotax.analysis import Comparison, Response, Summary
from iotax.report import font
from iotax.report.charts.base import Drawing, Scale, arm_titles, axis, brief, colour, dots, file_name, shape
from iotax.report.charts.vega import LABEL_PX, Spec, end, layer, number, picture, quoted, word
from iotax.report.palette import Look, ref
from iotax.wording import figure, signed

_ROW_PX = 26
ROWS_MAX = 12
"""With more rows than this the chart is left out; over a factor's levels there is another."""
_LABEL_MAX_PX = 140
"""Width of a condition with the names of its factors."""
_CLOSE = (95.0, 98.0, 99.0, 101.0, 102.0, 105.0)
"""Steps in percent for ratios near 1."""
_TICK_APART = 0.16
"""Share of the axis."""
_TICK_PX = 34
"""Space for a tick's label."""
_EDGE = 0.025
"""Whether half a label would lie outside the picture."""


def ratio_forest(summary: Summary, looks: dict[str, Look], response: Response) -> Drawing | None:
    """One panel: each judged arm under each condition, baseline = 100."""
    found = [
        c
        for c in summary.comparisons
        if c.response is response and not (summary.grid.local and c.verdict is None and c.arm == summary.grid.local)
    ]
    if not found or (len(found) > ROWS_MAX and summary.grid.x_factor is not None):
        return None
    names = arm_titles(summary)
    base = names[summary.grid.baseline_arm]
    heading = f"{response.short}, {base} = 100 (right: {response.unit})"
    said = "; ".join(f"{names[c.arm]}, {c.condition}: {100 * c.ratio.value:.0f}" for c in found)
    good = "Right" if response.more_is_better else "Left"
    return Drawing(
        file_name("ratio", response.key),
        heading,
        f"{good} of 100 is better. {said}.",
        lambda width: _draw(summary, looks, found, width, heading),
    )


def _draw(summary: Summary, looks: dict[str, Look], found: list[Comparison], width_px: int, heading: str) -> Spec:
    names = arm_titles(summary)
    several = len({c.condition for c in found}) > 1
    arms = list(dict.fromkeys(c.arm for c in found))
    conditions = _fitting(summary, found) if several else {}
    rows = [_row(summary, names, c, f"{arms.index(c.arm)}|{conditions.get(c.condition or '', '')}") for c in found]
    by_arm = [[row["row"] for row in rows if row["arm"] == arm] for arm in arms]
    order = [place for number, own in enumerate(by_arm) for place in ([f"{number}|", *own] if several else own)]
    margin = 1 + summary.data.study.margin / 100
    ends = [100 / margin, 100 * margin, *(r["low"] for r in rows), *(r["high"] for r in rows)]
    labels = [(place.partition("|")[2], False) for place in order] + [(names[arm], True) for arm in arms]
    label_px = max(font.width_px(text, LABEL_PX, bold) for text, bold in labels) + 4
    values_px = max(font.width_px(row["values"], LABEL_PX) for row in rows) + 14
    scale_px = max(60.0, width_px - label_px - values_px)
    scale = Scale(ends, log=True)
    scale.ticks = ratio_ticks(scale, max(_TICK_APART, _TICK_PX / scale_px))
    share = values_px / scale_px
    domain = {**scale.vega, "domain": [scale.low, scale.high * (scale.high / scale.low) ** share]}
    x = number("x", domain, axis(None, scale, grid=True, labelOverlap=False))
    y = word("row", sort=None, scale={"padding": 0.5, "domain": order}, axis=_row_axis(names, looks, arms, label_px))
    layers = [
        layer("rect", [{"x": 100 / margin, "x2": 100 * margin}], {"x": x, "x2": end("x2")}, color=ref("band")),
        layer("rule", [{"x": 100}], {"x": x}, color=ref("axis")),
        layer(
            "rule",
            rows,
            {"x": number("low", domain), "x2": end("high"), "y": y, "color": colour(looks, arms)},
            strokeWidth=2.5,
            strokeCap="round",
        ),
        dots(rows, {"x": x, "y": y, "color": colour(looks, arms), "shape": shape(looks, arms)}, size=62),
        layer(
            "text",
            [{**row, "x": scale.high} for row in rows],
            {"x": x, "y": y, "text": word("values")},
            align="left",
            dx=8,
            fontSize=LABEL_PX,
            color=ref("soft"),
        ),
    ]
    return picture(layers, width_px, 62 + _ROW_PX * len(order), heading)


def _fitting(summary: Summary, found: list[Comparison]) -> dict[str, str]:
    """Labels of conditions: never cut, but without the names of their first factors if those would leave no room for
    the chart."""
    told = {c.condition for c in found}
    cells = {each.condition: each.cell for each in summary.cells if each.condition in told}
    said = {}
    for unnamed in range(len(summary.grid.factors) + 1):
        said = {condition: summary.grid.condition(cell, unnamed) for condition, cell in cells.items()}
        if max(font.width_px(text, LABEL_PX) for text in said.values()) <= _LABEL_MAX_PX:
            break
    return said


def _row(summary: Summary, names: dict[str, str], c: Comparison, place: str) -> Spec:
    values = {each.cell: each.values[c.response.key].value for each in summary.cells if c.response.key in each.values}
    arms = {each.arm: values[each.cell] for each in summary.cells if each.condition == (c.condition or "")}
    own, base = arms[c.arm], arms[summary.grid.baseline_arm]
    low, high = c.ratio.low or c.ratio.value, c.ratio.high or c.ratio.value
    return {
        "row": place,
        "arm": c.arm,
        "x": 100 * c.ratio.value,
        "low": 100 * low,
        "high": 100 * high,
        "values": f"{brief(own)} / {brief(base)}",
        "say": f"{names[c.arm]}, {c.condition}: {100 * c.ratio.value:.1f} "
        f"({100 * low:.1f} to {100 * high:.1f}), {signed(c.ratio.value - 1)}, {c.verdict or 'no verdict'}; "
        f"{figure(own)} against {figure(base)} {c.response.unit}",
    }


def _row_axis(names: dict[str, str], looks: dict[str, Look], arms: list[str], label_px: float) -> Spec:
    """Labels from the left: an arm's name in bold and its colour (rows `0|`), its conditions below (`0|condition`)."""
    heads = {f"{number}|": arm for number, arm in enumerate(arms)}
    name = "".join(f"datum.label == {quoted(head)} ? {quoted(names[arm])} : " for head, arm in heads.items())
    hue = [
        {"test": f"datum.label == {quoted(head)}", "value": looks[arm].colour.stand_in} for head, arm in heads.items()
    ]
    return {
        "title": None,
        "labelExpr": f"{name}slice(datum.label, indexof(datum.label, '|') + 1)",
        "labelAlign": "left",
        "labelPadding": label_px,
        "labelLimit": label_px,
        "labelFontWeight": {
            "condition": {"test": " || ".join(each["test"] for each in hue), "value": "bold"},
            "value": "normal",
        },
        "labelColor": {"condition": hue, "value": ref("soft")},
        "domain": False,
    }


def ratio_ticks(scale: Scale, apart: float = _TICK_APART) -> list[float]:
    """100 and round percentages on both sides, far enough apart for their labels."""
    round_ones = sorted(
        (*_CLOSE, *(d * 10.0**k for k in range(5) for d in (1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 7, 8, 9))),
        key=lambda t: abs(math.log(t / 100)),
    )
    chosen: list[float] = []
    for tick in round_ones:
        inside = scale.low <= tick <= scale.high and _EDGE < scale.at(tick) < 1 - _EDGE
        if inside and all(abs(scale.at(tick) - scale.at(other)) > apart for other in chosen):
            chosen.append(tick)
    return sorted(chosen)
