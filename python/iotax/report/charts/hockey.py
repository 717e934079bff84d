"""The hockey-stick chart: throughput on x, latency on y; latency climbs as the number of outstanding I/Os grows."""

from iotax.analysis import CellSummary, Response, Summary
from iotax.analysis.data import LOAD_FACTORS, RATE
from iotax.analysis.responses import IOPS
from iotax.report import font
from iotax.report.charts.base import (
    HALF_PX,
    Drawing,
    Scale,
    arm_titles,
    axis,
    colour,
    dots,
    factor_title,
    file_name,
    say,
    shape,
    short,
)
from iotax.report.charts.placing import Plot, Point
from iotax.report.charts.vega import FONT_PX, LABEL_PX, Spec, layer, number, picture, word
from iotax.report.palette import Look, ref

CLOSED_LOAD = tuple(name for name in LOAD_FACTORS if name != RATE)
"""Open loops have a separate chart over the offered rate."""
_AXES_PX = (54, 66)
"""Approximate width and height that heading, axes and their labels take."""


def hockey_stick(summary: Summary, looks: dict[str, Look], latency: Response, facet: str) -> Drawing | None:
    factor = summary.grid.x_factor
    cells = [
        c
        for c in summary.cells
        if summary.grid.facet(c.cell) == facet and latency.key in c.values and IOPS.key in c.values
    ]
    if not cells or factor not in CLOSED_LOAD:  # the curve has its shape only along this factor
        return None
    heading = f"{latency.title} against throughput" + (f", {facet}" if facet else "")
    return Drawing(
        file_name("throughput against", latency.key, facet),
        heading,
        f"Lines join means over {factor_title(factor).lower()}; the number at each mean is its level. "
        "Down and to the right is better.",
        lambda width: _draw(summary, looks, latency, cells, factor, width, heading),
        HALF_PX,
    )


def _draw(
    summary: Summary,
    looks: dict[str, Look],
    latency: Response,
    cells: list[CellSummary],
    factor: str,
    width_px: int,
    heading: str,
) -> Spec:
    names = arm_titles(summary)
    points: list[Spec] = []
    means: list[Spec] = []
    for cell in cells:
        level = summary.grid.level(cell.cell, factor)
        value = summary.grid.value(cell.cell, factor)
        x, y = cell.values[IOPS.key].value, cell.values[latency.key].value
        text = f"{names[cell.arm]}, {factor_title(factor).lower()} {level}: {say(x, 'IOPS')}, {say(y, latency.unit)}"
        means.append({"x": x, "y": y, "arm": cell.arm, "level": level, "order": float(value), "say": text})
        for run in cell.runs:
            iops, delay = IOPS.of(run), latency.of(run)
            if iops is not None and delay is not None:
                points.append({"x": iops, "y": delay, "arm": cell.arm, "say": f"{text} (block {run.trial.block})"})
    arms = [arm for arm in summary.grid.arms if any(m["arm"] == arm for m in means)]
    height_px = 340 if width_px > 400 else 300
    x_scale, y_scale = Scale([p["x"] for p in points]), Scale([p["y"] for p in points])
    channels = {
        "x": number("x", x_scale.vega, axis("Throughput (IOPS)", x_scale, grid=True, labelOverlap=True)),
        "y": number("y", y_scale.vega, axis(f"{latency.title} ({latency.unit})", y_scale)),
        "color": colour(looks, arms),
    }
    along = {"order": {"field": "order", "type": "quantitative"}, "detail": word("arm")}
    line = layer("line", means, {**channels, **along}, strokeWidth=2, strokeJoin="round")
    runs = dots(points, {**channels, "shape": shape(looks, arms)}, size=30)
    tops = {arm: max((m for m in means if m["arm"] == arm), key=lambda m: m["order"]) for arm in arms}
    plot = Plot(
        width_px - _AXES_PX[0],
        height_px - _AXES_PX[1],
        [_at(p, x_scale, y_scale, width_px, height_px) for p in points],
        [[_at(m, x_scale, y_scale, width_px, height_px) for m in means if m["arm"] == arm] for arm in arms],
    )

    def beside(mean: Spec, text: str, size_px: int, bold: bool) -> Spec:
        middle = plot.place(
            _at(mean, x_scale, y_scale, width_px, height_px), font.width_px(text, size_px, bold), size_px
        )
        x, y = x_scale.value(middle[0] / plot.width_px), y_scale.value(middle[1] / plot.height_px)
        return {"x": x, "y": y, "arm": mean["arm"], "text": text}

    # Names are placed first, since they are the widest. At an arm's last level its name and the level share a label.
    named = [beside(top, f"{short(names[arm])} {top['level']}", FONT_PX, True) for arm, top in tops.items()]
    others = [beside(mean, mean["level"], LABEL_PX, False) for mean in means if mean is not tops[mean["arm"]]]
    layers = [line, runs, layer("text", named, {**channels, "text": word("text")}, fontWeight="bold")]
    if others:
        plain = {"x": channels["x"], "y": channels["y"], "text": word("text")}
        layers.append(layer("text", others, plain, fontSize=LABEL_PX, color=ref("soft")))
    return picture(layers, width_px, height_px, heading)


def _at(mean: Spec, x_scale: Scale, y_scale: Scale, width_px: int, height_px: int) -> Point:
    return x_scale.at(mean["x"]) * (width_px - _AXES_PX[0]), y_scale.at(mean["y"]) * (height_px - _AXES_PX[1])
