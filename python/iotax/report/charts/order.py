"""Each run against the mean of its own treatment in run order: shows drift and outliers."""

from iotax.analysis import Response, Summary
from iotax.report.charts.base import (
    PANEL_PX,
    WIDE_PX,
    Drawing,
    Scale,
    arm_titles,
    axis,
    colour,
    dots,
    file_name,
    parted,
    shape,
)
from iotax.report.charts.vega import Spec, layer, number, picture
from iotax.report.palette import Look, ref
from iotax.wording import signed

HEIGHT_PX = 240


def run_order(summary: Summary, looks: dict[str, Look], response: Response) -> Drawing | None:
    model = summary.models[response.key]
    if len(model.observed) < 2:
        return None
    heading = f"{response.title} of each run against the mean of its treatment"
    return Drawing(
        file_name("run order", response.key),
        heading,
        "Percent above or below the mean of the same treatment, in run order. Vertical lines separate the blocks. "
        "A slope is drift, a step a change of the machine; comparisons within blocks exclude both.",
        lambda width: _draw(summary, looks, response, width, heading if width > PANEL_PX else response.title),
        WIDE_PX,
    )


def _draw(summary: Summary, looks: dict[str, Look], response: Response, width_px: int, heading: str) -> Spec:
    model, names = summary.models[response.key], arm_titles(summary)
    rows: list[Spec] = []
    for place, ((run, value), cell) in enumerate(zip(model.observed, model.cells, strict=True), start=1):
        mean = model.absolute(cell)
        assert mean is not None
        off = value / mean.value - 1
        arm = summary.grid.arm(cell)
        text = f"run {place}: {names[arm]}, {summary.grid.condition(cell)}, block {run.trial.block}: {signed(off)}"
        rows.append({"x": place, "y": 100 * off, "arm": arm, "block": run.trial.block, "say": text})
    arms = [arm for arm in summary.grid.arms if any(r["arm"] == arm for r in rows)]
    reach = max(2.0, *(abs(r["y"]) for r in rows)) * 1.1
    scale = Scale([-reach, reach])
    scale.low, scale.high = -reach, reach
    edges, labels = [], []
    for block in dict.fromkeys(r["block"] for r in rows):
        places = [r["x"] for r in rows if r["block"] == block]
        labels.append({"x": min(places) - 0.4, "y": reach, "text": f"block {block}"})
        if min(places) > 1:
            edges.append({"x": min(places) - 0.5})
    places_axis = {"title": "Runs in run order", "tickMinStep": 1, "format": "d", "tickCount": 8}
    x = number("x", {"domain": [0.3, len(rows) + 0.7], "nice": False}, places_axis)
    percent = "(datum.value > 0 ? '+' : '') + format(datum.value, '~r') + ' %'"
    y = number("y", scale.vega, axis(None, scale, labelExpr=percent))
    layers = [
        layer("rule", [{"y": 0}], {"y": y}, color=ref("axis")),
        dots(rows, {"x": x, "y": y, "color": colour(looks, arms), "shape": shape(looks, arms)}, size=44),
    ]
    return picture([*layers, *parted(edges, labels, x, y, width_px)], width_px, HEIGHT_PX, heading)
