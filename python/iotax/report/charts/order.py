"""Each run against the mean of its own treatment in run order: shows drift and outliers."""

from iotax.analysis import Response, Summary
from iotax.report.charts.base import (
    PANEL_PX,
    WIDE_PX,
    Drawing,
    arm_titles,
    boundaries,
    colour,
    dots,
    file_name,
    parted,
    percents,
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
    reach, y = percents(r["y"] for r in rows)
    firsts: dict[str, int] = {}
    for row in rows:
        firsts.setdefault(f"block {row['block']}", row["x"])
    edges, labels = boundaries(firsts, reach)
    places_axis = {"title": "Runs in run order", "tickMinStep": 1, "format": "d", "tickCount": 8}
    x = number("x", {"domain": [0.3, len(rows) + 0.7], "nice": False}, places_axis)
    layers = [
        layer("rule", [{"y": 0}], {"y": y}, color=ref("axis")),
        dots(rows, {"x": x, "y": y, "color": colour(looks, arms), "shape": shape(looks, arms)}, size=44),
    ]
    return picture([*layers, *parted(edges, labels, x, y, width_px)], width_px, HEIGHT_PX, heading)
