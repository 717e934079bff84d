"""Published figures beside measured ones, as rows of text."""

from iotax.analysis.published import Agreement, Beside, Source
from iotax.report.charts.published import span_text
from iotax.report.tables import Column, Figure, Group, Row, absolute
from iotax.wording import title

_SAID: dict[Agreement, str] = {
    "agrees": "agrees",
    "lower": "ours lower",
    "higher": "ours higher",
    "unknown": "",
}


def columns(source: Source) -> list[Column]:
    unit = source.response.unit
    found = []
    if _has_relative(source):
        found += [Column("Published", f"{title(source.baseline)} = 100"), Column("Measured", "95 % interval")]
    if _has_absolute(source):
        found += [Column("Published", unit), Column("Measured", f"{unit}, 95 % interval")]
    return [*found, Column("Together", "")]


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
    return Row(each.arm, title(each.treatment), figures, f"published as {each.called}" if each.called else "")


def _has_relative(source: Source) -> bool:
    return any(each.published is not None for each in source.figures)


def _has_absolute(source: Source) -> bool:
    return any(each.published_absolute is not None or each.measured_absolute is not None for each in source.figures)


def words(source: Source) -> str:
    """How many of the figures agree."""
    known = [each.agreement for each in source.figures if each.agreement != "unknown"]
    if not known:
        return "None of these figures was measured with an interval in this run."
    agreeing = known.count("agrees")
    return f"{agreeing} of {len(known)} published figures lie within the measured intervals."
