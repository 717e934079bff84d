"""The verdict: a table with every comparison, what limits trust in it, and the same in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from iotax.analysis import Comparison, Overall, Summary
from iotax.report import charts, renderer
from iotax.report.section import Answers, Box, Folded, Panels, Part, Section, Source, Text, note
from iotax.report.sections import clients, search
from iotax.report.sections.forest import Forest, Row, forest
from iotax.wording import SIMULATED, answer, brief, indexed, title, trust, verdict_word
from iotax.wording.verdicts import judged


def section(source: Source) -> Section:
    summary = source.summary
    parts: list[Part] = []
    if summary.data.simulated:
        parts.append(Box([Text(SIMULATED, "warning")]))
    if not renderer.available():
        parts.append(note(f"{renderer.MISSING[:1].upper()}{renderer.MISSING[1:]}.", "No charts."))
    if not summary.cells:
        parts.append(Text("Nothing has been measured yet.", "lead"))
    searched = search.lead(summary)
    if searched:
        parts.append(Answers([("What the search found", [Text(line, "lead") for line in searched])]))
    drawn = forest(summary) if summary.data.runs else None
    if drawn is not None:
        if drawn.lead and not searched:
            parts.append(Text(drawn.lead, "lead"))
        parts.append(ForestTable(drawn, drawn.rows, source.base, "Verdicts"))
        if drawn.folded:
            more = ForestTable(drawn, drawn.folded, source.base, "Further verdicts")
            parts.append(Folded(f"{len(drawn.folded)} more comparisons", [more]))
    parts += _trust(summary)
    parts += clients.parts(source)
    if summary.data.runs:
        parts += _in_sentences(source, lead=not searched)
    ratios = source.drawn(charts.ratio_forest(summary, source.looks, each) for each in summary.responses)
    if ratios:
        caption = (
            f"Ratio to {source.base} under each condition, with 95 % intervals that include {source.base}’s own "
            "scatter. The shaded band is the margin within which a difference does not matter. For throughput right of "
            f"100 is better; for latency and CPU, left. At the right: its own value and {source.base}’s."
        )
        parts.append(Panels(ratios, caption, first=3))
    return Section("verdict", "Verdict", parts, "Verdict")


@dataclass(frozen=True)
class ForestTable:
    """Comparisons, each with its interval drawn beside it."""

    kind: ClassVar[str] = "forest"
    forest: Forest
    rows: Sequence[Row]
    base: str
    label: str


def _trust(summary: Summary) -> list[Part]:
    found = trust(summary)
    warnings = [Text(each.text, "warning") for each in found if each.tone == "warning"]
    validity = brief.validity(summary).removeprefix("Validity: ")
    parts: list[Part] = [Box([Text(validity), *warnings], strip=True)]
    if found:
        others = [Text(each.text, each.tone) for each in found if each.tone != "warning"]
        parts.append(Folded("Precision and validity in sentences", [Box(others)]))
    return parts


def _in_sentences(source: Source, *, lead: bool) -> list[Part]:
    """The findings and a card for each arm. The primary response's findings lead, unless a search's do."""
    summary = source.summary
    primary = summary.responses[0].key if summary.responses else ""
    answers = [
        (
            each.title,
            [
                Text(f.sentence, "lead" if lead and f.response_key and f.response_key == primary else "")
                for f in each.findings
            ],
        )
        for each in answer(summary)
    ]
    if not answers:
        return []
    of_arms = cards(summary)
    shown: list[Part] = [Answers(answers)]
    if of_arms:
        shown.append(Cards(of_arms, source.base))
    return [Folded("The verdict in sentences", shown)]


@dataclass(frozen=True)
class Card:
    """The verdict on one arm."""

    arm: str
    name: str
    lines: list[CardLine]


@dataclass(frozen=True)
class CardLine:
    response: str
    ratio: str
    verdict: str
    tone: str
    text: str


@dataclass(frozen=True)
class Cards:
    kind: ClassVar[str] = "cards"
    cards: Sequence[Card]
    base: str


def cards(summary: Summary) -> list[Card]:
    """A badge marks figures that rest on mostly doubtful runs; the verdict above gives the reason once."""
    found = []
    said = [each.finding for each in judged(summary)]
    for arm in dict.fromkeys(o.arm for o in summary.overalls):
        lines = []
        for overall in (o for o in summary.overalls if o.arm == arm):
            sentence = next(f for f in said if f.subject == title(arm) and f.response_key == overall.response.key)
            by_condition = [c for c in summary.comparisons if c.response is overall.response and c.arm == arm]
            verdict, tone = _verdict(overall, by_condition)
            verdict += " (doubtful)" if summary.doubt(arm, overall.response).most else ""
            ratio = _ratio_range(overall, by_condition)
            lines.append(CardLine(overall.response.title, ratio, verdict, tone, sentence.text))
        found.append(Card(arm, title(arm), lines))
    return found


def _ratio_range(overall: Overall, by_condition: list[Comparison]) -> str:
    ratios = [c.ratio.value for c in by_condition if c.ratio.low is not None]
    if overall.depends and len(ratios) > 1:
        return span(ratios)
    return "–" if overall.comparison.ratio.low is None else indexed(overall.comparison.ratio.value)


def span(ratios: Sequence[float]) -> str:
    """The lowest and highest index, with 100 as the baseline; one number if both are written alike."""
    ends = dict.fromkeys(f"{100 * ratio:,.0f}" for ratio in (min(ratios), max(ratios)))
    return "–".join(ends)


def _verdict(overall: Overall, by_condition: list[Comparison]) -> tuple[str, str]:
    verdicts = {c.verdict for c in by_condition} if overall.depends else {overall.comparison.verdict}
    if len(verdicts) > 1:
        return "depends", "depends"
    verdict = verdicts.pop()
    return verdict_word(overall.response, verdict), verdict or "none"
