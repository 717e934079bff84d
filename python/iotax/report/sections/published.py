"""Published figures beside measured ones."""

from __future__ import annotations

from collections.abc import Sequence

from iotax.analysis import StudyData
from iotax.analysis.published import Agreement, Beside, Source
from iotax.analysis.validity import Doubt
from iotax.analysis.withheld import described
from iotax.report import charts
from iotax.report.section import Heading, Panels, Part, Section, Table, Text, note
from iotax.report.section import Source as Report
from iotax.report.tables import Column, Figure, Group, Row, absolute
from iotax.study.published import Statistic
from iotax.wording import figure, title
from iotax.wording.figures import listed
from iotax.wording.published import agreement, span_text
from iotax.wording.verdicts import caution

_SAID: dict[Agreement, str] = {
    "agrees": "agrees",
    "lower": "ours lower",
    "higher": "ours higher",
    "between": "between our two ends",
    "unknown": "",
    "carrier": "not judged",
    "rates": "not judged",
}


_JUDGED = ("agrees", "lower", "higher")
_BESIDE: dict[Agreement, str] = {
    "between": "lies between our two ends",
    "lower": "lies above both of our ends",
    "higher": "lies below both of our ends",
}


def section(report: Report) -> Section | None:
    summary = report.summary
    if not summary.sources:
        return None
    own = gained(summary.data)
    parts: list[Part] = [
        Text(
            "Published figures for this question, beside those of these runs. Hardware and software differ: agreement "
            "proves nothing, and a difference is not an error."
        )
    ]
    said = agreement(summary.sources, own)
    parts += [Text(line, "" if number else "lead") for number, line in enumerate(said)]
    if drawn := report.drawn(charts.published_figures(summary.sources, report.looks, own, summary.grid.compared)):
        caption = (
            f"Bars: {own}, with 95 % intervals that include the baseline’s own scatter; from zero. Grey bands: "
            "published, a line where one number was given."
        )
        legend = report.legend(clustered(summary.sources, summary.grid.arms))
        parts.append(Panels(drawn, caption, 2, legend))
    doubt = summary.doubt_of(summary.cells)
    for source in summary.sources:
        parts += [
            Heading(source.response.title),
            Text(f"{source.citation}. {source.remarks}".rstrip(), "cite"),
            Table(columns(source, own), groups(source), f"Published and {own}"),
            note(f"{words(source, doubt, own)} {statistic(source)}"),
        ]
    return Section("published", f"Published and {own}", parts, "Published")


def gained(data: StudyData) -> str:
    """How the runs' own figures were made."""
    return "simulated" if data.simulated else "measured"


def columns(source: Source, gained: str) -> list[Column]:
    own, unit = gained.capitalize(), source.response.unit
    found = []
    if _has_relative(source):
        found += [Column("Published", f"{title(source.baseline)} = 100"), Column(own, "95 % interval")]
    if _has_absolute(source):
        found += [Column("Published", unit), Column(own, f"{unit}, 95 % interval")]
    return [*found, Column("Together", "")]


_STATISTICS: dict[Statistic, str] = {
    "geometric mean": "the geometric mean over their levels",
    "mean of ratios": "the arithmetic mean of the ratios over their levels, as the source has it",
    "ratio of means": "a ratio of arithmetic means over their levels, as the source has it",
}


def statistic(source: Source) -> str:
    """How a treatment that leaves factors open becomes one number."""
    return f"A treatment that leaves factors unspecified is {_STATISTICS[source.statistic]}."


def clustered(sources: list[Source], arms: Sequence[str]) -> list[str]:
    """The arms shown in the bars of these sources, in order."""
    used = {each.arm for source in sources for each in source.figures}
    return [arm for arm in arms if arm in used]


def groups(source: Source) -> list[Group]:
    return [Group("", [_row(source, each) for each in source.figures])]


def _row(source: Source, each: Beside) -> Row:
    figures = []
    if _has_relative(source):
        base = Figure("100", tone="base")
        figures.append(base if each.is_baseline else Figure(span_text(each.published) if each.published else "–"))
        figures.append(base if each.is_baseline else absolute(each.measured))
    if _has_absolute(source):
        theirs = each.published_absolute
        figures += [Figure(span_text(theirs) if theirs else "–"), absolute(each.measured_absolute)]
    figures.append(Figure(_SAID[each.agreement]))
    notes = [f"published as {each.called}"] if each.called else []
    if each.ends:
        notes.append("here " + listed([f"{figure(ratio.value)} over {name}" for name, ratio in each.ends]))
    elif each.carrier.emulated:
        notes.append(f"here over {described(each.carrier)}")
    notes += ["rates differ here"] if each.agreement == "rates" else []
    return Row(each.arm, title(each.treatment), figures, "; ".join(notes))


def _has_relative(source: Source) -> bool:
    return any(each.published is not None for each in source.figures)


def _has_absolute(source: Source) -> bool:
    return any(each.published_absolute is not None or each.measured_absolute is not None for each in source.figures)


def words(source: Source, runs: Doubt, gained: str) -> str:
    """How many figures agree, and whether most runs of the study are doubtful."""
    emulated = [each.carrier for each in source.figures if each.agreement == "carrier"]
    known = [each.agreement for each in source.figures if not each.ends and each.agreement in _JUDGED]
    aside = "".join(_at_ends(source, each) for each in source.figures if each.ends)
    if emulated:
        over = " and ".join(dict.fromkeys(described(each) for each in emulated))
        aside += f" {_are(len(emulated))} not judged: here over {over}."
    if unequal := sum(each.agreement == "rates" for each in source.figures):
        aside += (
            f" {_are(unequal)} not judged: utilisation compares costs only at equal rates, and the rates differ here."
        )
    if not known:
        return aside.strip() or f"None of these figures was {gained} with an interval in this run."
    doubted = f"; but {said}" if (said := caution(runs)) else ""
    overlap = f"{known.count('agrees')} of {len(known)} published figures overlap the {gained} 95 % intervals"
    return f"{overlap}{doubted}.{aside}"


def _at_ends(source: Source, each: Beside) -> str:
    """Where a published figure lies relative to the two bounds of a transport."""
    if each.agreement not in _BESIDE or each.published is None:
        return ""
    base = title(source.baseline)
    measured = listed([f"{figure(ratio.value)} over {name}" for name, ratio in each.ends])
    published = f"the published {span_text(each.published)} ({base} = 100)"
    lies = f"{published} {_BESIDE[each.agreement]}: {measured}"
    return f" For {title(each.treatment)} {lies}. A real adapter lies between the two."


def _are(count: int) -> str:
    return f"{count} {'are' if count > 1 else 'is'}"
