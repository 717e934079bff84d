"""Effects of factors, and the residuals of the model."""

from __future__ import annotations

from iotax.report import charts
from iotax.report.section import Panels, Section, Source
from iotax.wording import inside


def section(source: Source) -> Section | None:
    summary, looks = source.summary, source.looks
    effects = source.drawn(charts.factor_effects(summary, looks, r) for r in summary.responses)
    residuals = source.drawn(d for r in summary.responses[:1] for d in charts.model_residuals(summary, looks, r))
    parts = []
    if effects:
        caption = (
            "The effect of each factor on each of what is compared, averaged over the other factors, with 95 % "
            "intervals; logarithmic. At the right: the value at the first level. Where the points of one row differ, "
            "the effect depends on what is compared: then read the figures by condition."
        )
        parts.append(Panels(effects, caption, legend=source.legend(), first=3))
    if residuals:
        caption = (
            f"Residuals of the blocked model for each run’s {inside(summary.responses[0].short)}. "
            f"{' '.join(each.description for each in residuals)}"
        )
        parts.append(Panels(residuals, caption, legend=source.legend([] if effects else None), first=3))
    return Section("effects", "Effects and residuals", parts, "Effects") if parts else None
