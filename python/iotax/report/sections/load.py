"""Responses over the load: closed loops with outstanding I/Os, open loops with offered rates."""

from __future__ import annotations

from iotax.analysis import Summary
from iotax.analysis.data import LOAD_FACTORS
from iotax.analysis.responses import LATENCY, P99
from iotax.report import charts
from iotax.report.section import Heading, Panels, Part, Section, Source


def section(source: Source) -> Section:
    summary, looks, base = source.summary, source.looks, source.base
    grid = summary.grid
    facets = list(dict.fromkeys(grid.facet(c.cell) for c in summary.cells))
    open_loop = source.drawn(d for f in facets for d in charts.responses_over_rate(summary, looks, f))
    # The latency of an open loop is drawn with its service time there.
    over = [r for r in summary.responses if not (open_loop and r is LATENCY)]
    levels = source.drawn(charts.over_levels(summary, looks, r, f) for f in facets for r in over)
    axes = ""
    if grid.x_factor:
        sweep = charts.is_sweep(summary)
        axes = " Both axes are logarithmic." if sweep else " Axes that span more than a decade are logarithmic."
    caption = f"Every run is a point; lines join geometric means.{axes}"
    parts: list[Part] = [Panels(levels, caption, legend=source.legend())]
    if ratios := _ratios(source, facets):
        caption = (
            f"The same values as ratios to {base}, with 95 % intervals that include {base}’s own scatter; logarithmic. "
            "The shaded band is the margin within which a difference does not matter."
        )
        parts.append(Panels(ratios, caption, legend=source.judged()))
    hockey = source.drawn(charts.hockey_stick(summary, looks, r, f) for f in facets for r in (LATENCY, P99))
    if hockey:
        factor = (grid.x_factor or "").replace("_", " ")
        caption = f"Where a line turns upwards, more outstanding I/Os only wait longer. Numbers are levels of {factor}."
        parts.append(Panels(hockey, caption, 2))
    if open_loop:
        caption = (
            "Solid, with a point for each run: response time, from when an I/O was due. Dashed: service time, from "
            "when it was submitted. Where the two lines separate, I/Os wait for a slot; where the solid line turns "
            "upwards, the rate is more than the path can carry."
        )
        parts.append(Heading("Open loop: response over the offered rate"))
        parts.append(Panels(open_loop, caption, 2, source.legend(), 2))
        kept_up = source.drawn([charts.achieved_rate(summary, looks), charts.backlog(summary, looks)])
        caption = " ".join(each.description for each in kept_up)
        if len(kept_up) == 1:
            caption += " No I/O was dropped and none waited when a window ended."
        parts.append(Panels(kept_up, caption, 2, first=2))
    return Section("load", _title(summary), parts, "Load")


def _ratios(source: Source, facets: list[str]) -> list[charts.Drawing]:
    """Ratios over the load. Where the verdict draws all ratios, only for sweeps, which are read along an axis."""
    summary, looks = source.summary, source.looks
    in_verdict = any(charts.ratio_forest(summary, looks, each) for each in summary.responses)
    if in_verdict and not charts.is_sweep(summary):
        return []
    return source.drawn(charts.ratio_over_levels(summary, looks, r, f) for f in facets for r in summary.responses)


def _title(summary: Summary) -> str:
    factor = summary.grid.x_factor
    if factor is None:
        return "Every run"
    return "Over the load" if factor in LOAD_FACTORS else f"Over {charts.factor_title(factor).lower()}"
