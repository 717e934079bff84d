"""A response over the levels of a factor: every run a point, the means a line. Below it, on the same axis, the ratios
to the baseline."""

from iotax.analysis import CellSummary, Comparison, Response, Summary
from iotax.report.charts.base import (
    PANEL_PX,
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
from iotax.report.charts.ratios import ratio_ticks
from iotax.report.charts.vega import Spec, end, layer, number, picture, word
from iotax.report.palette import Look, ref
from iotax.wording import title

HEIGHT_PX = 280
RATIOS_HEIGHT_PX = 220


def over_levels(summary: Summary, looks: dict[str, Look], response: Response, facet: str) -> Drawing | None:
    """One panel: `response` over the numeric factor, or by arm if the study varies none."""
    cells = [c for c in summary.cells if summary.grid.facet(c.cell) == facet and response.key in c.values]
    if not cells:
        return None
    factor = summary.grid.x_factor
    heading = f"{response.title} ({response.unit})"
    if facet:
        heading += f", {facet}"
    means = "; ".join(
        f"{title(c.arm)}{', ' + c.condition if c.condition else ''}: {say(c.values[response.key].value, response.unit)}"
        for c in cells
    )
    return Drawing(
        file_name(response.key, "over", factor or "arms", facet),
        heading,
        f"Every run is a point, geometric means are joined. {means}.",
        lambda width: _draw(summary, looks, response, cells, width, heading),
    )


def _draw(
    summary: Summary,
    looks: dict[str, Look],
    response: Response,
    cells: list[CellSummary],
    width_px: int,
    heading: str,
) -> Spec:
    names, factor = arm_titles(summary), summary.grid.x_factor
    points, means = [], []
    for cell in cells:
        x = float(summary.grid.value(cell.cell, factor)) if factor else names[cell.arm]
        about = {"x": x, "arm": cell.arm}
        mean = cell.values[response.key].value
        means.append({**about, "y": mean, "say": f"{names[cell.arm]}, mean: {say(mean, response.unit)}"})
        for run in cell.runs:
            value = response.of(run)
            if value is not None:
                text = f"{names[cell.arm]}, {cell.condition or 'run'}, block {run.trial.block}"
                points.append({**about, "y": value, "say": f"{text}: {say(value, response.unit)}"})
    arms = [arm for arm in summary.grid.arms if any(m["arm"] == arm for m in means)]
    # Sweeps of sizes have logarithmic axes: a power law is a straight line, and a constant ratio a constant distance.
    scale = Scale([p["y"] for p in points], log=True if is_sweep(summary) else None)
    channels = {
        "x": level_axis(summary, factor, room_px(names[a] for a in arms), width_px)
        if factor
        else _x_arms([names[a] for a in arms]),
        "y": number("y", scale.vega, axis(None, scale)),
        "color": colour(looks, arms),
    }
    runs = dots(points, {**channels, "shape": shape(looks, arms)})
    if factor is None:
        ticks = layer("tick", means, channels, thickness=2, size=34, orient="horizontal")
        return picture([runs, ticks], width_px, HEIGHT_PX, heading)
    line = layer("line", means, {**channels, "detail": word("arm")}, strokeWidth=2)
    text = names_beside(means, arms, names, channels, scale, HEIGHT_PX - 60)
    return picture([line, runs, text], width_px, HEIGHT_PX, heading)


def is_sweep(summary: Summary) -> bool:
    """Block sizes spaced by ratio."""
    factor = summary.grid.x_factor
    return factor == "block_size" and len(summary.grid.factors[factor]) > 2


def _x_arms(names: list[str]) -> Spec:
    return word("x", sort=names, axis={"title": None, "labelAngle": 0, "labelLimit": 90, "labelPadding": 6})


def level_axis(summary: Summary, factor: str, free_px: float, width_px: int = PANEL_PX) -> Spec:
    """Ticks at the factor's levels, spaced by ratio if the levels grow by ratio; with room for names at the right."""
    levels = sorted(summary.grid.factors[factor], key=lambda level: float(level.value))
    values = [float(level.value) for level in levels]
    first, last = values[0], values[-1]
    log = first > 0 and last / first >= 8
    share = free_px / (width_px - 50 - free_px)
    domain = (
        [first * (first / last) ** 0.04, last * (last / first) ** share]
        if log
        else [first - 0.04 * (last - first), last + share * (last - first)]
    )
    words = "".join(f"datum.value == {float(x.value)} ? '{x.label}' : " for x in levels) + "''"
    return number(
        "x",
        {"type": "log" if log else "linear", "domain": domain, "nice": False, "zero": False},
        {
            "title": factor_title(factor),
            "values": values,
            "labelExpr": words,
            "labelOverlap": True,
            "titleAnchor": "start",
        },
    )


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
        lambda width: _draw_ratios(summary, looks, rows, factor, width, heading),
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


def _draw_ratios(
    summary: Summary, looks: dict[str, Look], rows: list[Spec], factor: str, width_px: int, heading: str
) -> Spec:
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
        names_beside(rows, arms, names, channels, scale, RATIOS_HEIGHT_PX - 60),
    ]
    return picture(layers, width_px, RATIOS_HEIGHT_PX, heading)
