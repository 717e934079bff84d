"""Charts of the CPU cost model: its lines, its effects, interactions with the protocol, and its residuals."""

import math

from scipy.special import ndtri

from iotax.analysis.cost import CpuCosts
from iotax.analysis.cpu_model import CpuModel
from iotax.report.charts.base import (
    HALF_PX,
    Drawing,
    Scale,
    axis,
    colour,
    dots,
    factor_title,
    file_name,
    names_beside,
    room_px,
    shape,
)
from iotax.report.charts.effects import effect_panel, residual_panel
from iotax.report.charts.vega import Spec, end, layer, number, picture, word
from iotax.report.palette import Look, ref
from iotax.wording import figure, signed, span, title

_HEIGHT_PX = 280
_IDLE = "no load"
_FEWEST_EFFECTS = 4
"""Fewer effects show no line."""
_NAMED = 5
"""Number of effects, the largest ones, that get a label."""


def cost_lines(costs: CpuCosts, looks: dict[str, Look]) -> Drawing:
    """Every run, and the model's line for each protocol."""
    model = costs.model
    said = "; ".join(f"{title(arm)}: {figure(model.cost_us(arm).value)} µs per I/O" for arm in model.arms)
    return Drawing(
        "cpu-model-lines",
        "Busy processors over the rate",
        "Every run is a point; lines are the model at the mean over its factors. The slope is the CPU time per I/O. "
        f"{said}.",
        lambda width: _lines(model, looks, width),
        HALF_PX,
    )


def cost_effects(costs: CpuCosts, looks: dict[str, Look]) -> Drawing | None:
    """How much each factor changes the cost per I/O."""
    model = costs.model
    if not model.effects:
        return None
    said = "; ".join(
        f"{title(e.arm)}, {_name(e.factor)} {e.low} → {e.high}: {_signed_us(e.change_us)}" for e in model.effects
    )
    return Drawing(
        "cpu-model-effects",
        "Change of the CPU time per I/O",
        f"Change from a factor's first level, in percent of the CPU time there, with 95 % intervals. {said}.",
        lambda width: _effects(model, looks, width),
        HALF_PX,
    )


def cost_interactions(costs: CpuCosts, looks: dict[str, Look]) -> list[Drawing]:
    """The cost over each factor's levels, a line for each protocol: parallel lines mean no interaction."""
    model = costs.model
    return [
        Drawing(
            file_name("cpu model", factor),
            f"CPU time per I/O, {_name(factor)}",
            "Means over the other factors, with 95 % intervals. If lines are not parallel, the protocols react "
            "differently.",
            lambda width, factor=factor: _interaction(model, looks, factor, width),
        )
        for factor, levels in model.factors.items()
        if len(levels) > 1
    ]


def cost_half_normal(costs: CpuCosts, looks: dict[str, Look], base: str) -> Drawing | None:
    """Every effect on the cost per I/O, over the quantiles expected if none existed; None if there are too few."""
    effects = _sizes(costs.model, base)
    if len(effects) < _FEWEST_EFFECTS:
        return None
    largest = "; ".join(f"{name}: {figure(t)}" for _, name, t in effects[-_NAMED:][::-1])
    return Drawing(
        "cpu-model-half-normal",
        "Effects in order of size",
        "Each effect on the cost per I/O, and each protocol’s difference to the baseline, in standard errors over "
        "half-normal quantiles. Effects near the line are consistent with chance; effects far above it are not. "
        f"Largest: {largest}.",
        lambda width: _half_normal(effects, looks, costs.model.arms, width),
        HALF_PX,
    )


def cost_residuals(costs: CpuCosts, looks: dict[str, Look]) -> list[Drawing]:
    """The residuals over fitted values, over time, and against a normal distribution."""
    model = costs.model
    return [
        Drawing(
            "cpu-model-residuals-fitted",
            "Residuals over fitted values",
            "The model expects a band of even width around zero; a bow means a missing term.",
            lambda width: _residuals(model, looks, width, "Fitted (busy processors)", "fitted"),
        ),
        Drawing(
            "cpu-model-residuals-order",
            "Residuals in run order",
            "A slope or a step is drift within blocks.",
            lambda width: _residuals(model, looks, width, "Runs in run order", "order"),
        ),
        Drawing(
            "cpu-model-residuals-normal",
            "Residuals against a normal distribution",
            "Points on the line are normal; ends off the line are outliers.",
            lambda width: _residuals(model, looks, width, "Normal quantile", "normal"),
        ),
    ]


def _lines(model: CpuModel, looks: dict[str, Look], width_px: int) -> Spec:
    points: list[Spec] = []
    lines: list[Spec] = []
    for load in model.loads:
        if load.arm:
            about = ", ".join([title(load.arm), *(f"{_name(k)} {v}" for k, v in load.levels.items())])
            text = f"{about}: {load.rate_iops:,.0f} IOPS, {figure(load.busy_cores)} processors busy"
            points.append({"x": load.rate_iops, "y": load.busy_cores, "arm": load.arm, "say": text})
    highest = max(p["x"] for p in points)
    for arm in model.arms:
        lines += [{"x": rate, "y": model.line_cores(arm, rate), "arm": arm} for rate in (0.0, highest)]
    idle = [{"x": 0.0, "y": load.busy_cores, "say": _IDLE} for load in model.loads if not load.arm]
    names = {arm: title(arm) for arm in model.arms}
    scale = Scale([0.0, *(p["y"] for p in points), *(line["y"] for line in lines)], zero=True, log=False)
    room = room_px(names.values()) / (width_px - 60)
    x_scale = Scale([0.0, highest], zero=True, log=False)
    domain = {"type": "linear", "domain": [0, highest * (1 + room)], "nice": False, "zero": False}
    channels = {
        "x": number("x", domain, axis("IOPS", x_scale, labelOverlap=True)),
        "y": number("y", scale.vega, axis("Busy processors", scale)),
        "color": colour(looks, model.arms),
    }
    layers = [
        layer("line", lines, {**channels, "detail": word("arm")}, strokeWidth=2),
        dots(points, {**channels, "shape": shape(looks, model.arms)}, size=26),
        names_beside(lines, model.arms, names, channels, scale, _HEIGHT_PX - 70),
    ]
    if idle:
        plain = {"x": channels["x"], "y": channels["y"]}
        layers.append(layer("point", idle, plain, size=26, filled=False, color=ref("soft")))
    return picture(layers, width_px, _HEIGHT_PX, "Busy processors over the rate")


def _effects(model: CpuModel, looks: dict[str, Look], width_px: int) -> Spec:
    rows: list[Spec] = []
    for e in model.effects:
        label = f"{_name(e.factor)} {e.low} → {e.high}"
        value, low, high = (
            100 * ((e.ratio.value if end is None else end) - 1) for end in (e.ratio.value, e.ratio.low, e.ratio.high)
        )
        text = f"{title(e.arm)}, {label}: {_signed_us(e.change_us)}, {signed(value / 100)} ({span(e.ratio)})"
        rows.append({"row": label, "arm": e.arm, "x": value, "low": low, "high": high, "say": text})
    scale = Scale([0.0, *(r["low"] for r in rows), *(r["high"] for r in rows)], log=False)
    reach = 0.06 * (scale.high - min(0.0, *(r["low"] for r in rows)))
    scale.low = min(0.0, *(r["low"] for r in rows)) - reach
    return effect_panel(rows, looks, width_px, "Change of the CPU time per I/O", "Change, %", scale, 0)


def _interaction(model: CpuModel, looks: dict[str, Look], factor: str, width_px: int) -> Spec:
    levels = model.factors[factor]
    rows: list[Spec] = []
    for arm in model.arms:
        for level in levels:
            cost = model.cost_at_us(arm, {factor: level})
            low, high = cost.low or cost.value, cost.high or cost.value
            text = f"{title(arm)}, {_name(factor)} {level}: {figure(cost.value)} µs ({figure(low)} to {figure(high)})"
            rows.append({"x": level, "y": cost.value, "low": low, "high": high, "arm": arm, "say": text})
    scale = Scale([0.0, *(r["high"] for r in rows)], zero=True, log=False)
    x_axis = {"title": None, "labelAngle": 0, "labelPadding": 6, "labelFontSize": 12}
    x = word("x", sort=levels, axis=x_axis, scale={"type": "point", "padding": 0.6})
    y = number("y", scale.vega, axis("µs per I/O", scale))
    shared = {"x": x, "color": colour(looks, model.arms)}
    layers = [
        layer("line", rows, {**shared, "y": y, "detail": word("arm")}, strokeWidth=2),
        layer("rule", rows, {**shared, "y": number("low", scale.vega), "y2": end("high")}, strokeWidth=2),
        dots(rows, {**shared, "y": y, "shape": shape(looks, model.arms)}, size=52),
    ]
    return picture(layers, width_px, 250, factor_title(factor))


def _sizes(model: CpuModel, base: str) -> list[tuple[str, str, float]]:
    """(arm, name, |t|), smallest first."""
    found = []
    for arm in model.arms:
        if arm != base and base in model.arms:
            found.append((arm, title(arm), abs(model.apart(arm, base))))
        for term in model.equation(arm)[1:]:
            about = " × ".join(f"{_name(name)} {level}" for name, level in term.at)
            found.append((arm, f"{title(arm)}, {about}", abs(term.t)))
    return sorted((each for each in found if math.isfinite(each[2])), key=lambda each: each[2])


def _half_normal(effects: list[tuple[str, str, float]], looks: dict[str, Look], arms: list[str], width_px: int) -> Spec:
    count = len(effects)
    quantiles = [float(ndtri(0.5 + 0.5 * (place + 0.5) / count)) for place in range(count)]
    rows: list[Spec] = [
        {"x": x, "y": t, "arm": arm, "say": f"{name}: {figure(t)} standard errors"}
        for x, (arm, name, t) in zip(quantiles, effects, strict=True)
    ]
    highest = max(row["y"] for row in rows)
    scale = Scale([0.0, highest], zero=True, log=False)
    x_scale = Scale([0.0, quantiles[-1] * 1.08], zero=True, log=False)
    x = number("x", x_scale.vega, axis("Half-normal quantile", x_scale, labelOverlap=True, titleAnchor="start"))
    y = number("y", scale.vega, axis("Standard errors", scale))
    reach = min(x_scale.high, scale.high)
    line = [{"x": 0.0, "y": 0.0}, {"x": reach, "y": reach}]
    layers = [
        layer("line", line, {"x": x, "y": y}, color=ref("axis"), strokeWidth=1),
        dots(rows, {"x": x, "y": y, "color": colour(looks, arms), "shape": shape(looks, arms)}, size=40),
    ]
    return picture(layers, width_px, _HEIGHT_PX, "Effects in order of size")


def _residuals(model: CpuModel, looks: dict[str, Look], width_px: int, x_title: str, kind: str) -> Spec:
    rows: list[Spec] = []
    for r in model.residuals:
        if not r.load.arm:
            continue
        place = {"fitted": r.fitted_cores, "order": float(r.load.order), "normal": r.normal}[kind]
        about = ", ".join([title(r.load.arm), *(f"{_name(k)} {v}" for k, v in r.load.levels.items())])
        text = f"{about}, {r.load.rate_iops:,.0f} IOPS, block {r.load.block}: {signed(r.share)}"
        rows.append({"x": place, "y": 100 * r.share, "arm": r.load.arm, "say": text})
    heading = {"fitted": "Over fitted values", "order": "In run order", "normal": "Against a normal distribution"}[kind]
    spread = 100 * model.residual_share if kind == "normal" else None
    return residual_panel(rows, looks, width_px, x_title, heading, spread)


def _name(factor: str) -> str:
    return factor.replace("_", " ")


def _signed_us(value: float) -> str:
    return f"{'+' if value >= 0 else '−'}{figure(abs(value))} µs"
