"""Sentences about the agreement with published figures, by response, with the largest differences."""

from collections.abc import Sequence
from typing import Any

from iotax.analysis.published import Beside, Source, Tally, largest, tallies
from iotax.study.published import Span
from iotax.wording.figures import figure, inside, interval, percent, title


def span_text(span: Span) -> str:
    low, high = span
    return figure(low) if low == high else f"{figure(low)} to {figure(high)}"


def agreed_count(sources: Sequence[Source]) -> tuple[int, int]:
    """How many published figures agree, of those that can be judged."""
    found = tallies(sources)
    return sum(each.agree for each in found), sum(each.judged for each in found)


def agreement(sources: Sequence[Source], gained: str) -> list[str]:
    """The summary: how many figures agree, by response, and the three largest differences with their likely reason.
    `gained`: whether the runs' own figures were measured or simulated."""
    found = tallies(sources)
    agree, judged = agreed_count(sources)
    if not judged:
        return []
    lines = [f"{agree} of {judged} published figures agree with what was {gained}: {'; '.join(map(_tally, found))}."]
    apart = largest(sources)
    if apart:
        several = f"The {len(apart)} largest differences" if len(apart) > 1 else "The largest difference"
        lines.append(f"{several}:")
        lines += [_difference(source, each, gained) for source, each in apart]
    return lines


def _tally(each: Tally) -> str:
    text = f"{_what(each.response.title, each.response.unit, each.baseline)} {each.agree} of {each.judged}"
    return f"{text} ({each.others} not judged)" if each.others else text


def _what(name: str, unit: str, baseline: str) -> str:
    said = inside(name) if name.partition(",")[0] != "Throughput" else unit
    return f"{said} against {title(baseline)}" if baseline else said


def _difference(source: Source, each: Beside, gained: str) -> str:
    published, measured = each.judged
    assert published is not None and measured is not None
    relative = each.published is not None
    unit = f"{title(source.baseline)} = 100" if relative else source.response.unit
    name = _what(source.response.title, source.response.unit, source.baseline if relative else "")
    treatment = f", {title(each.treatment)}" if each.treatment else ""
    text = (
        f"{name[:1].upper()}{name[1:]}{treatment}: published {span_text(published)} ({unit}), "
        f"{gained} {figure(measured.value)} ({interval(measured)}), {percent(each.beyond - 1)} apart. "
    )
    return text + (f"Likely reason: {source.reason}." if source.reason else "No reason is known.")


def agreement_document(sources: Sequence[Source]) -> dict[str, Any] | None:
    """The summary and every figure, for `iotax show --json`; None if nothing was published."""
    if not sources:
        return None
    found = tallies(sources)
    return {
        "agree": sum(each.agree for each in found),
        "judged": sum(each.judged for each in found),
        "by_response": [
            {
                "response": each.response.key,
                "baseline": each.baseline,
                "agree": each.agree,
                "judged": each.judged,
                "others": each.others,
            }
            for each in found
        ],
        "largest_differences": [
            {
                "source": source.citation,
                "response": source.response.key,
                "baseline": source.baseline,
                "treatment": each.treatment,
                "apart_ratio": each.beyond,
                "reason": source.reason,
            }
            for source, each in largest(sources)
        ],
        "sources": [_source_document(source) for source in sources],
    }


def _source_document(source: Source) -> dict[str, Any]:
    return {
        "source": source.citation,
        "response": source.response.key,
        "unit": source.response.unit,
        "baseline": source.baseline,
        "statistic": source.statistic,
        "remarks": source.remarks,
        "reason": source.reason,
        "figures": [
            {
                "treatment": each.treatment,
                "levels": dict(each.levels),
                "outstanding": list(each.outstanding),
                "called": each.called,
                "published_relative": each.published,
                "relative": _estimate(each.measured),
                "published_absolute": each.published_absolute,
                "absolute": _estimate(each.measured_absolute),
                "agreement": each.agreement,
            }
            for each in source.figures
        ],
    }


def _estimate(estimate: Any) -> dict[str, float | None] | None:
    return None if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}
