"""The method, and the commands that give the same results again."""

from __future__ import annotations

import yaml

from iotax.analysis import Summary
from iotax.redaction import redact, redact_data
from iotax.report.section import Folded, Preformatted, Section, Source, Text
from iotax.study.imported import ImportedStudy

_METHOD = (
    "Responses are analysed as logarithms: a mean for each treatment, and blocks as fixed effects. A ratio is a ratio "
    "of geometric means. Its standard error allows each treatment its own variance (heteroscedasticity-consistent, "
    "Satterthwaite’s degrees of freedom). Intervals of ratios are simultaneous: all comparisons of one response hold "
    "together with 95 % confidence (Dunnett’s, max-t). The verdict follows from the interval beside it. “Faster”, "
    "“slower”, “less CPU”, “more CPU”: the interval excludes “no difference”. “Equivalent”: the whole interval lies "
    "within the margin. “Inconclusive”: neither; it never means “the same”. A tax is a difference of geometric means "
    "by the delta method. No run is excluded because of its value."
)


def method() -> Section:
    return Section("method", "Method", [Text(_METHOD)])


def section(source: Source) -> Section:
    summary = source.summary
    study = summary.data.study
    imported = isinstance(study, ImportedStudy)
    again = "To run the same study in the same order, on another machine or another day:"
    kept = redact_data(study.model_dump(mode="json", exclude_defaults=True))
    text = redact(yaml.safe_dump(kept, sort_keys=False, allow_unicode=True))
    whole = "The study, as the notebook keeps it" if imported else "The study file"
    parts = [
        Text("To import the same files again:" if imported else again),
        Preformatted(redact(_command(summary))),
        Text("To write this report and its charts from the notebook:"),
        Preformatted(f"iotax report {source.notebook} --charts charts"),
        Folded(whole, [Preformatted(text)], printed=True),
    ]
    return Section("again", "Reproduce", parts, "Reproduce")


def _command(summary: Summary) -> str:
    words = summary.data.environment.get("command_line")
    if not words:
        return f"iotax run {summary.data.study.name}"
    return " ".join(["iotax", *map(str, words[1:])])
