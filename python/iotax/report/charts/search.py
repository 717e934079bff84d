"""The search for the knee: every rate tried, and whether it met the objective."""

from iotax.analysis import Summary
from iotax.analysis.knee import holds
from iotax.analysis.search import winners
from iotax.report.charts.base import HALF_PX, Drawing, Scale, arm_titles, axis, colour, say, shape
from iotax.report.charts.vega import Spec, layer, number, picture, word
from iotax.report.palette import Look, ref

_HEIGHT_PX = 300


def probes(summary: Summary, looks: dict[str, Look]) -> Drawing | None:
    """None if the study searches for no knee, or nothing was tried yet."""
    search = summary.data.study.search
    if search is None or search.rate_max is None:
        return None
    names = arm_titles(summary)
    rows: list[Spec] = []
    for attempt in summary.data.attempts:
        result = attempt.result
        if attempt.status != "done" or result is None or attempt.trial.role not in ("probe", "replicate"):
            continue
        if not result.ios or "rate_iops" not in attempt.trial.treatment:
            continue
        cell = summary.grid.cell(attempt.trial)
        arm, rate = summary.grid.arm(cell), float(str(attempt.trial.treatment["rate_iops"]))
        y, held = result.latency_ns(search.percentile) / 1e3, holds(search, result)
        place = ", ".join(filter(None, (names[arm], summary.grid.condition(cell))))
        text = f"{place}: {say(rate, 'IOPS')} offered, {say(y, 'µs')}, {'held' if held else 'not held'}"
        rows.append({"x": rate, "y": y, "arm": arm, "held": held, "say": text})
    if not rows:
        return None
    heading = f"p{search.percentile:g} latency over the rate tried (µs)"
    found = "; ".join(
        f"{place}: {', '.join(f'{knee:,.0f}' for knee in winner.by_block.values())} IOPS"
        if winner.by_block
        else f"{place}: none"
        for winner in winners(summary.data.study, summary.data.attempts)
        for place in [winner.condition or summary.data.study.name]
    )
    return Drawing(
        "search-probes",
        heading,
        "Filled points met the objective, open points did not; the line is the objective. "
        f"Knees found, search by search: {found}.",
        lambda width: _draw(rows, looks, search.latency_max / 1e3, width, heading),
        HALF_PX,
    )


def _draw(rows: list[Spec], looks: dict[str, Look], limit_us: float, width_px: int, heading: str) -> Spec:
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    x_scale = Scale([row["x"] for row in rows], log=True)
    scale = Scale([limit_us, *(row["y"] for row in rows)], log=True)
    channels = {
        "x": number("x", x_scale.vega, axis("Offered rate (IOPS)", x_scale, labelOverlap=True, titleAnchor="start")),
        "y": number("y", scale.vega, axis(None, scale)),
        "color": colour(looks, arms),
        "shape": shape(looks, arms),
    }
    layers = [layer("rule", [{"y": limit_us}], {"y": channels["y"]}, color=ref("axis"), strokeDash=[4, 3])]
    for held in (True, False):
        some = [row for row in rows if row["held"] is held]
        if some:
            layers.append(layer("point", some, channels, size=52, filled=held, opacity=0.9, strokeWidth=1.6))
    layers.append(
        layer(
            "text",
            [{"y": limit_us, "t": "objective"}],
            {"y": channels["y"], "text": word("t")},
            align="left",
            dx=4,
            dy=-7,
            x=0,
            fontSize=11,
            color=ref("soft"),
        )
    )
    return picture(layers, width_px, _HEIGHT_PX, heading)
