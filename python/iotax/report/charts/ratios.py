"""Ratios to the baseline with their intervals and the margin of equivalence."""

import math

from iotax.analysis import Comparison, Response, Summary
from iotax.report.charts.base import Drawing, Scale, arm_titles, axis, brief, colour, dots, file_name, shape
from iotax.report.charts.vega import Spec, end, layer, number, picture, word
from iotax.report.palette import Look, ref
from iotax.wording import figure, signed

_ROW_PX = 30
_VALUES_PX = 92
"""What the absolute values at the right need."""
ROWS_MAX = 12
"""More rows are no picture; over the levels of a factor they are."""
_LABEL_LETTERS = 22
_CLOSE = (95.0, 98.0, 99.0, 101.0, 102.0, 105.0)
"""Percentages for ratios near 1."""
_TICK_APART = 0.16
"""Share of the axis."""
_EDGE = 0.025
"""Where half a label would leave the picture."""


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
    values = {(c.arm, c.condition): c.values[found[0].response.key].value for c in summary.cells if c.values}
    rows: list[Spec] = []
    for c in found:
        own, base = values[c.arm, c.condition or ""], values[summary.grid.baseline_arm, c.condition or ""]
        low, high = c.ratio.low or c.ratio.value, c.ratio.high or c.ratio.value
        label = c.condition if several and c.condition else names[c.arm]
        rows.append(
            {
                "row": f"{c.arm}|{label}",
                "arm": c.arm,
                "x": 100 * c.ratio.value,
                "low": 100 * low,
                "high": 100 * high,
                "values": f"{brief(own)} / {brief(base)}",
                "say": f"{names[c.arm]}, {c.condition}: {100 * c.ratio.value:.1f} "
                f"({100 * low:.1f} to {100 * high:.1f}), {signed(c.ratio.value - 1)}, {c.verdict or 'no verdict'}; "
                f"{figure(own)} against {figure(base)} {c.response.unit}",
            }
        )
    margin = 1 + summary.data.study.margin / 100
    ends = [100 / margin, 100 * margin, *(r["low"] for r in rows), *(r["high"] for r in rows)]
    scale = Scale(ends, log=True)
    scale.ticks = ratio_ticks(scale)
    label_px = 8 + 6 * min(_LABEL_LETTERS, max(len(r["row"].partition("|")[2]) for r in rows))
    share = _VALUES_PX / max(60.0, width_px - label_px - _VALUES_PX)
    right = scale.high
    domain = {**scale.vega, "domain": [scale.low, scale.high * (scale.high / scale.low) ** share]}
    x = number("x", domain, axis(None, scale, grid=True, labelOverlap=True))
    row_axis = {
        "title": None,
        "labelLimit": 6 * _LABEL_LETTERS,
        "domain": False,
        "labelExpr": "split(datum.label, '|')[1]",
    }
    y = word(
        "row",
        sort=None,
        scale={"padding": 0.5},
        axis=row_axis,
    )
    arms = list(dict.fromkeys(c.arm for c in found))
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
            [{**row, "x": right} for row in rows],
            {"x": x, "y": y, "text": word("values")},
            align="left",
            dx=8,
            fontSize=11,
            color=ref("soft"),
        ),
    ]
    return picture(layers, width_px, 62 + _ROW_PX * len(rows), heading)


def ratio_ticks(scale: Scale) -> list[float]:
    """100, and round percentages on both sides as far apart as their labels need."""
    round_ones = sorted(
        (*_CLOSE, *(d * 10.0**k for k in range(5) for d in (1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 7, 8, 9))),
        key=lambda t: abs(math.log(t / 100)),
    )
    chosen: list[float] = []
    for tick in round_ones:
        inside = scale.low <= tick <= scale.high and _EDGE < scale.at(tick) < 1 - _EDGE
        if inside and all(abs(scale.at(tick) - scale.at(other)) > _TICK_APART for other in chosen):
            chosen.append(tick)
    return sorted(chosen)
