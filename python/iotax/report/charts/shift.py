"""The shift function: what a protocol adds at each quantile of the latency, not only to the mean."""

from collections.abc import Sequence

from iotax.analysis import Shift, Summary
from iotax.report import font
from iotax.report.charts.base import Drawing, Scale, arm_titles, axis, brief, colour, dots, file_name, shape
from iotax.report.charts.ratios import ratio_ticks
from iotax.report.charts.vega import LABEL_PX, Spec, end, layer, number, picture, word
from iotax.report.palette import Look, ref
from iotax.wording import figure

_HEIGHT_PX = 240
_FIRST = ("99.9", "50", "90", "99", "10", "30", "70")
"""Percentiles to label first."""


def shift_functions(summary: Summary, looks: dict[str, Look]) -> list[Drawing]:
    """One panel for each condition, one line for each arm; the baseline's quantile is 100."""
    panels: dict[str, list[Shift]] = {}
    for shift in summary.shifts:
        if shift.points:
            panels.setdefault(shift.condition, []).append(shift)
    names = arm_titles(summary)
    base = names[summary.grid.baseline_arm]
    return [
        Drawing(
            file_name("latency shift", condition),
            condition[:1].upper() + condition[1:] or f"Latency at each quantile, {base} = 100",
            f"Each quantile of the latency against the same of {base}, with 95 % intervals of the runs. "
            + "; ".join(_said(names, shift) for shift in shifts)
            + ".",
            lambda width, shifts=shifts, condition=condition: _draw(summary, looks, shifts, width, condition),
        )
        for condition, shifts in panels.items()
    ]


def _said(names: dict[str, str], shift: Shift) -> str:
    first, last = shift.points[0], shift.points[-1]
    return (
        f"{names[shift.arm]}: {figure(100 * first.ratio.value)} at p{first.percent:g}, "
        f"{figure(100 * last.ratio.value)} at p{last.percent:g}"
    )


def _draw(summary: Summary, looks: dict[str, Look], shifts: Sequence[Shift], width_px: int, condition: str) -> Spec:
    names = arm_titles(summary)
    rows: list[Spec] = []
    for shift in shifts:
        for point in shift.points:
            low, high = point.ratio.low or point.ratio.value, point.ratio.high or point.ratio.value
            added = point.difference_us
            sign = "+" if added.value >= 0 else "−"
            text = (
                f"{names[shift.arm]}, p{point.percent:g}: {100 * point.ratio.value:.1f} ({100 * low:.1f} to "
                f"{100 * high:.1f}), {sign}{figure(abs(added.value))} µs on {figure(point.base_us)} µs"
            )
            x = f"{point.percent:g}"
            y = {"y": 100 * point.ratio.value, "low": 100 * low, "high": 100 * high}
            rows.append({"x": x, **y, "arm": shift.arm, "say": text})
    arms = [shift.arm for shift in shifts]
    order = sorted({row["x"] for row in rows}, key=float)
    scale = Scale([100.0, *(row[key] for row in rows for key in ("low", "high"))], log=True)
    scale.ticks = ratio_ticks(scale)
    own = {f"{point.percent:g}": brief(point.base_us) for shift in shifts for point in shift.points}
    said = _labelled(order, own, (width_px - 45) / (len(order) - 0.2))
    words = "".join(f"datum.label == '{percent}' ? ['{percent}', '{own[percent]}'] : " for percent in said) + "''"
    x_axis = {
        "title": f"Percentile; below it {names[summary.grid.baseline_arm]}’s own µs",
        "titleAnchor": "start",
        "labelAngle": 0,
        "labelOverlap": False,
        "labelExpr": words,
        "labelFontSize": LABEL_PX,
    }
    shared = {
        "x": word("x", sort=order, axis=x_axis, scale={"type": "point", "padding": 0.4}),
        "color": colour(looks, arms),
    }
    y = number("y", scale.vega, axis(None, scale))
    layers = [
        layer("rule", [{"y": 100}], {"y": y}, color=ref("axis")),
        layer("line", rows, {**shared, "y": y, "detail": word("arm")}, strokeWidth=2),
        layer("rule", rows, {**shared, "y": number("low", scale.vega), "y2": end("high")}, strokeWidth=1.6),
        dots(rows, {**shared, "y": y, "shape": shape(looks, arms)}, size=36),
    ]
    return picture(layers, width_px, _HEIGHT_PX, condition[:1].upper() + condition[1:])


def _labelled(order: Sequence[str], own: dict[str, str], step_px: float) -> list[str]:
    """The percentiles whose labels fit beside each other."""
    wide_px = {each: max(font.width_px(text, LABEL_PX) for text in (each, own[each])) for each in order}
    chosen: list[str] = []
    for each in sorted(order, key=lambda each: _FIRST.index(each) if each in _FIRST else len(_FIRST)):
        apart = ((abs(order.index(each) - order.index(other)) * step_px, other) for other in chosen)
        if all(px > (wide_px[each] + wide_px[other]) / 2 + 5 for px, other in apart):
            chosen.append(each)
    return chosen
