"""Ratios to the baseline over a factor's levels, drawn under a chart of absolute values on the same axis."""

from iotax.analysis import Comparison, Response, Summary
from iotax.report.charts.base import (
    Drawing,
    Scale,
    arm_titles,
    axis,
    colour,
    dots,
    factor_title,
    file_name,
    names_beside,
    room_px,
    say,
    shape,
)
from iotax.report.charts.levels import level_axis
from iotax.report.charts.ratios import ratio_ticks
from iotax.report.charts.vega import Spec, end, layer, number, picture, word
from iotax.report.palette import Look, ref

_HEIGHT_PX = 220


def ratio_over_levels(summary: Summary, looks: dict[str, Look], response: Response, facet: str) -> Drawing | None:
    """One panel: each judged arm over the numeric factor, baseline = 100; None if no factor is numeric."""
    factor = summary.grid.x_factor
    rows = _rows(summary, response, facet)
    if factor is None or not rows:
        return None
    heading = f"{response.short}, {arm_titles(summary)[summary.grid.baseline_arm]} = 100"
    if facet:
        heading += f", {facet}"
    return Drawing(
        file_name("ratio", response.key, "over", factor, facet),
        heading,
        f"Ratio to the baseline over {factor_title(factor).lower()}, with 95 % intervals. "
        f"{'; '.join(str(row['say']) for row in rows)}.",
        lambda width: _draw(summary, looks, rows, factor, width, heading),
    )


def _rows(summary: Summary, response: Response, facet: str) -> list[Spec]:
    names, factor = arm_titles(summary), summary.grid.x_factor
    values = {c.cell: c.values[response.key].value for c in summary.cells if response.key in c.values}
    rows: list[Spec] = []
    for cell in summary.cells:
        found: Comparison | None = cell.ratios.get(response.key)
        if factor is None or found is None or found.verdict is None or summary.grid.facet(cell.cell) != facet:
            continue
        ratio = found.ratio
        low, high = ratio.low or ratio.value, ratio.high or ratio.value
        own, base = values[cell.cell], values[summary.grid.baseline_of(cell.cell)]
        text = (
            f"{names[cell.arm]}, {summary.grid.level(cell.cell, factor)}: {100 * ratio.value:.1f} "
            f"({100 * low:.1f} to {100 * high:.1f}), {say(own, response.unit)} against {say(base, response.unit)}"
        )
        rows.append(
            {
                "x": float(summary.grid.value(cell.cell, factor)),
                "y": 100 * ratio.value,
                "low": 100 * low,
                "high": 100 * high,
                "arm": cell.arm,
                "say": text,
            }
        )
    return rows


def _draw(summary: Summary, looks: dict[str, Look], rows: list[Spec], factor: str, width_px: int, heading: str) -> Spec:
    names = arm_titles(summary)
    arms = [arm for arm in summary.grid.arms if any(row["arm"] == arm for row in rows)]
    margin = 1 + summary.data.study.margin / 100
    scale = Scale([100 / margin, 100 * margin, *(row[key] for row in rows for key in ("low", "high"))], log=True)
    scale.ticks = ratio_ticks(scale)
    channels = {
        "x": level_axis(summary, factor, room_px(names[a] for a in arms), width_px),
        "y": number("y", scale.vega, axis(None, scale)),
        "color": colour(looks, arms),
    }
    band = {"y": number("y", scale.vega), "y2": end("y2")}
    whiskers = {**channels, "y": number("low", scale.vega), "y2": end("high")}
    layers = [
        layer("rect", [{"y": 100 / margin, "y2": 100 * margin}], band, color=ref("band")),
        layer("rule", [{"y": 100}], {"y": number("y", scale.vega)}, color=ref("axis")),
        layer("line", rows, {**channels, "detail": word("arm")}, strokeWidth=2),
        layer("rule", rows, whiskers, strokeWidth=2, strokeCap="round"),
        dots(rows, {**channels, "shape": shape(looks, arms)}, size=46),
        names_beside(rows, arms, names, channels, scale, _HEIGHT_PX - 60),
    ]
    return picture(layers, width_px, _HEIGHT_PX, heading)
