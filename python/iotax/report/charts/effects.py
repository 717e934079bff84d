"""The effect of each factor on the primary response, and the model's residuals."""

from collections.abc import Sequence

from iotax.analysis import Response, Summary
from iotax.analysis.effects import Effect, Residual, effects, residuals
from iotax.report.charts.base import PANEL_PX, Drawing, Scale, axis, brief, colour, dots, file_name, shape
from iotax.report.charts.ratios import ratio_ticks
from iotax.report.charts.vega import Spec, end, layer, number, picture, word
from iotax.report.palette import Look, ref
from iotax.wording import figure, inside, signed, title

_ARM_PX = 20
_LABEL_PX = 150
_VALUE_PX = 44
"""Space for a value at the right."""
_RESIDUAL_PX = 240
_LEVELS_MAX = 3


def factor_effects(summary: Summary, looks: dict[str, Look], response: Response) -> Drawing | None:
    """Ratios of a factor's levels to its first, arm by arm (only the last level if there are many); None if only one
    factor varies besides the arms."""
    if len([name for name in summary.grid.others if len(summary.grid.factors[name]) > 1]) < 2:
        return None
    levels = {name: [level.label for level in found] for name, found in summary.grid.factors.items()}
    found = [
        each
        for each in effects(summary.models[response.key])
        if each.arm != summary.grid.local
        and (len(levels[each.factor]) <= _LEVELS_MAX or each.level == levels[each.factor][-1])
    ]
    if not found:
        return None
    said = "; ".join(f"{title(e.arm)}, {_step(e)}: {signed(e.ratio.value - 1)}" for e in found)
    heading = f"{response.short}, change by factor (right: first level, {response.unit})"
    return Drawing(
        file_name("effects", response.key),
        heading,
        f"Geometric mean relative to the factor’s first level, averaged over other factors, with 95 % intervals. "
        f"{said}.",
        lambda width: _effects(found, looks, width, heading),
    )


def model_residuals(summary: Summary, looks: dict[str, Look], response: Response) -> list[Drawing]:
    """Residuals over fitted values, in run order, and against a normal distribution."""
    model = summary.models[response.key]
    if model.model.layout.residual_df < 1:
        return []
    found = residuals(model)
    kinds = (
        ("fitted", "Over fitted values", "The model expects an even band; a fan contradicts it."),
        ("order", "In run order", "A slope or a step is drift within blocks."),
        (
            "normal",
            "Against a normal distribution",
            "Points on the line are normal; ends off the line are outliers.",
        ),
    )
    return [
        Drawing(
            file_name("residuals", response.key, kind),
            f"Residuals of {inside(response.short)}: {heading.lower()}",
            text,
            lambda width, kind=kind, heading=heading: _residuals(found, response, looks, width, kind, heading),
        )
        for kind, heading, text in kinds
    ]


def effect_panel(
    rows: Sequence[Spec],
    looks: dict[str, Look],
    width_px: int,
    heading: str,
    x_title: str,
    scale: Scale,
    neutral: float,
) -> Spec:
    """Changes with their intervals: one row for each change, one point for each arm, and a line at no change. If rows
    have a `value`, it stands at the right."""
    arms, labels = (list(dict.fromkeys(row[key] for row in rows)) for key in ("arm", "row"))
    values = [{**row, "x": scale.high} for row in rows if "value" in row]
    domain = scale.vega
    if values:
        share = _VALUE_PX / (width_px - _LABEL_PX - _VALUE_PX)
        domain = {**domain, "domain": [scale.low, scale.value(1 + share)]}
    x = number("x", domain, axis(x_title, scale, grid=True, labelOverlap=True, titleAnchor="start"))
    row_axis = {
        "title": None,
        "domain": False,
        "labelColor": ref("ink"),
        "labelLimit": 190 if width_px > PANEL_PX else _LABEL_PX,
    }
    shared = {
        "y": word("row", sort=labels, axis=row_axis, scale={"padding": 0.3}),
        "yOffset": {"field": "arm", "type": "nominal", "sort": arms, "scale": {"paddingOuter": 0.2}},
        "color": colour(looks, arms),
    }
    spans = {"x": number("low", domain), "x2": end("high"), **shared}
    layers = [
        layer("rule", [{"x": neutral}], {"x": x}, color=ref("axis")),
        layer("rule", rows, spans, strokeWidth=2.2, strokeCap="round"),
        dots(rows, {"x": x, **shared, "shape": shape(looks, arms)}, size=52),
    ]
    if values:
        plain = {"x": x, "y": shared["y"], "yOffset": shared["yOffset"], "text": word("value")}
        layers.append(layer("text", values, plain, align="left", dx=6, fontSize=11, color=ref("soft")))
    return picture(layers, width_px, 80 + (_ARM_PX * len(arms) + 8) * len(labels), heading)


def residual_panel(
    rows: Sequence[Spec], looks: dict[str, Look], width_px: int, x_title: str, heading: str, spread: float | None
) -> Spec:
    """Residuals in percent around zero; with `spread`, against normal quantiles with a line of that slope."""
    reach = max(1.0, *(abs(row["y"]) for row in rows)) * 1.12
    scale, x_scale = Scale([-reach, reach], log=False), Scale([row["x"] for row in rows], log=False)
    scale.low, scale.high = -reach, reach
    if spread is not None:
        edge = 1.08 * max(abs(row["x"]) for row in rows)
        x_scale = Scale([-edge, edge], log=False)
        x_scale.low, x_scale.high = -edge, edge
    if all(float(row["x"]).is_integer() for row in rows):  # run numbers
        x_scale.ticks = [tick for tick in x_scale.ticks if tick >= 1 and tick % 1 == 0]
    percent = "(datum.value > 0 ? '+' : '') + format(datum.value, '~r') + ' %'"
    x = number("x", x_scale.vega, axis(x_title, x_scale, labelOverlap=True, titleAnchor="start"))
    y = number("y", scale.vega, axis(None, scale, labelExpr=percent))
    slope = spread or 0.0
    line = [{"x": at, "y": max(-reach, min(reach, at * slope))} for at in (x_scale.low, x_scale.high)]
    if spread is None:
        line = [{"x": x_scale.low, "y": 0.0}, {"x": x_scale.high, "y": 0.0}]
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    layers = [
        layer("line", line, {"x": x, "y": y}, color=ref("axis"), strokeWidth=1),
        dots(rows, {"x": x, "y": y, "color": colour(looks, arms), "shape": shape(looks, arms)}, size=26),
    ]
    return picture(layers, width_px, _RESIDUAL_PX, heading)


def _effects(found: Sequence[Effect], looks: dict[str, Look], width_px: int, heading: str) -> Spec:
    rows: list[Spec] = []
    for each in found:
        low, high = each.ratio.low or each.ratio.value, each.ratio.high or each.ratio.value
        change = f"{signed(each.ratio.value - 1)} ({signed(low - 1)} to {signed(high - 1)})"
        rows.append(
            {
                "row": _step(each),
                "arm": each.arm,
                "x": 100 * each.ratio.value,
                "low": 100 * low,
                "high": 100 * high,
                "value": brief(each.first_value),
                "say": f"{title(each.arm)}, {_step(each)}: {change}, {figure(each.first_value)} at {each.first}",
            }
        )
    scale = Scale([100.0, *(row["low"] for row in rows), *(row["high"] for row in rows)], log=True)
    scale.ticks = ratio_ticks(scale)
    return effect_panel(rows, looks, width_px, heading, "First level = 100", scale, 100)


def _residuals(
    found: Sequence[Residual], response: Response, looks: dict[str, Look], width_px: int, kind: str, heading: str
) -> Spec:
    rows: list[Spec] = []
    for place, each in enumerate(found, start=1):
        text = ", ".join(filter(None, (title(each.arm), each.condition, f"block {each.run.trial.block}")))
        x = {"fitted": each.fitted, "order": float(place), "normal": each.normal}[kind]
        rows.append({"x": x, "y": 100 * each.share, "arm": each.arm, "say": f"{text}: {signed(each.share)}"})
    x_title = {
        "fitted": f"Fitted ({response.unit})",
        "order": "Runs in run order",
        "normal": "Normal quantile",
    }[kind]
    spread = (sum(row["y"] ** 2 for row in rows) / len(rows)) ** 0.5 if kind == "normal" else None
    return residual_panel(rows, looks, width_px, x_title, heading, spread)


def _step(each: Effect) -> str:
    return f"{each.factor.replace('_', ' ')} {each.first} → {each.level}"
