"""The answer in one line for each comparison, with its interval: the first screen and the report's first page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from iotax.analysis.compare import Comparison, Paired
from iotax.analysis.estimate import Estimate
from iotax.analysis.precision import precisions
from iotax.analysis.responses import Response
from iotax.analysis.summary import Summary
from iotax.analysis.validity import doubt
from iotax.analysis.verdict import Verdict
from iotax.study.imported import ImportedStudy
from iotax.units import counted
from iotax.wording.answer import effort, reach
from iotax.wording.conditions import brief_condition
from iotax.wording.figures import PERCENT_RATIO_MAX, TIMES_RATIO_MIN, ends, figure, signed, title
from iotax.wording.published import agreed_count
from iotax.wording.trust import limited
from iotax.wording.verdicts import Tone, judged, response_name, why

LINES_MAX = 6
"""Number of comparisons on the first screen."""
_RANK = {"better": 0, "worse": 0, "mixed": 0, "equivalent": 1, "inconclusive": 2, "plain": 3}


@dataclass(frozen=True)
class Line:
    """One comparison with the baseline."""

    arm: str
    subject: str
    """The arm's name as the field writes it."""
    response: Response
    name: str
    effect: str
    """"−3.4 %", "2.10×", or "−12 % to +30 %" if it depends on the load."""
    interval: str
    """"[−5.2, −1.5]"; empty if there is none."""
    word: str
    tone: Tone
    doubtful: bool
    ratios: tuple[Estimate, ...]
    """The values to draw: one ratio with its interval, or the lowest and highest over the loads."""
    rank: int
    size: float
    """The effect's size as a logarithm."""
    parts: tuple["Line", ...] = ()
    """If the effect depends on the load: the loads that differ, the largest difference first, with the load as name."""


def lines(summary: Summary) -> list[Line]:
    """One line for each response and arm: differences first, largest first."""
    found = []
    for each in judged(summary):
        arm = each.rests_on[0].arm
        doubtful = each.doubt.most
        known = [one for one in each.rests_on if one.ratio.low is not None and one.verdict is not None]
        line = (
            _over_loads(arm, known, doubtful=doubtful)
            if len(known) > 1
            else _one(arm, known[0] if known else each.rests_on[0], doubtful=doubtful)
        )
        found.append(line)
    paired = {(title(each.arm), each.response.key): each for each in summary.paired}
    found = [
        _paired(line, paired[line.subject, line.response.key]) if (line.subject, line.response.key) in paired else line
        for line in found
    ]
    order = {response.key: number for number, response in enumerate(summary.responses)}
    return sorted(found, key=lambda line: (line.rank, -line.size, order.get(line.response.key, 0)))


def first(summary: Summary) -> tuple[list[Line], str]:
    """The lines that fit a screen, and one that counts the others; empty if it leaves out none."""
    every = lines(summary)
    judged_lines = [line for line in every if line.rank < _RANK["plain"]]
    top = (judged_lines or [line for line in every if line.interval])[:LINES_MAX]
    rest = [line for line in every if line not in top]
    shown = _with_parts(top)
    if not rest:
        return shown, ""
    differ = sum(line.rank == 0 for line in rest)
    parts = [
        *([f"{differ} {'smaller difference' if differ == 1 else 'smaller differences'}"] if differ else []),
        *(f"{number} {word}" for word in ("equivalent", "inconclusive") if (number := _counted(rest, word))),
    ]
    if without := _counted(rest, "no verdict"):
        parts.append(f"{without} without a verdict")
    return shown, f"{'Also ' if shown else ''}{', '.join(parts)}: see --long."


def _with_parts(found: Sequence[Line]) -> list[Line]:
    """The loads of comparisons that depend on the load, as far as there is room."""
    shown, room = [], LINES_MAX - len(found)
    for line in found:
        parts = line.parts[:room]
        shown += [line, *parts]
        room -= len(parts)
    return shown


def _counted(found: Sequence[Line], word: str) -> int:
    return sum(line.word == word for line in found)


def validity(summary: Summary) -> str:
    """The number of runs and of flagged runs, in one line."""
    data, runs = summary.data, summary.run_checks
    planned = data.planned_count or len({a.trial.id for a in data.attempts})
    text = f"{len(data.measured)} of {planned} trials {'simulated' if data.simulated else 'measured'}"
    if isinstance(data.study, ImportedStudy):
        text = f"{counted(len(data.measured), 'result')} imported; iotax did not measure them"
    parts, found = [text], doubt(list(runs.values()))
    if found.runs:
        parts.append(f"{found.runs} flagged ({why(found)})")
    elif runs:
        parts.append("none flagged")
    if hit := limited(summary):
        parts.append(f"the initiator may limit {hit}")
    for number, what in ((len(data.excluded), "excluded"), (len(data.apart), "with fewer hosts")):
        if number:
            parts.append(f"{number} {what}")
    if data.not_done:
        parts.append(f"{counted(len(data.not_done), 'failed attempt')}")
    return f"Validity: {', '.join(parts)}."


def precise(summary: Summary) -> str:
    """How wide the primary response's intervals are and what it takes to halve them; empty if there are none."""
    if not summary.responses:
        return ""
    primary = summary.responses[0]
    own = next((each for each in precisions(summary) if each.response is primary), None)
    if own is None:
        return ""
    width, where = own.overall_percent, " over all loads" if len(summary.grid.conditions) > 1 else ""
    if width is None:
        width, where = own.cell_worst_percent, " under the worst load"
    if width is None or width < 1e-7:
        return ""
    text = f"Precision: {response_name(primary)} ratios {reach(width)}{where}"
    if summary.data.costs_drawn or isinstance(summary.data.study, ImportedStudy):
        return f"{text}."
    return f"{text}; half takes a run of {effort(summary, 0.5).removeprefix('about ')}."


def published(summary: Summary) -> str:
    """How many published figures agree; empty if the study has none."""
    agree, of = agreed_count(summary.sources)
    return f"Published: {agree} of {of} published figures agree with these: see --long." if of else ""


def _one(arm: str, comparison: Comparison, *, doubtful: bool) -> Line:
    ratio, verdict = comparison.ratio, comparison.verdict
    effect, interval = change(ratio)
    tone: Tone = verdict.value if verdict else "plain"
    word = _word(verdict, ratio)
    return _line(arm, comparison.response, (effect, interval, word), tone, (ratio,), doubtful=doubtful)


def _over_loads(arm: str, known: Sequence[Comparison], *, doubtful: bool) -> Line:
    """If the ratio depends on the load, both ends, never a mean."""
    low, high = (pick(known, key=lambda each: each.ratio.value).ratio for pick in (min, max))
    verdicts = {each.verdict for each in known}
    alike = len(verdicts) == 1
    only = known[0].verdict if alike else None
    tone: Tone = only.value if only else "plain"
    word = _word(only, low) if only is not None else "by load"
    times = low.value >= TIMES_RATIO_MIN
    if not alike and not verdicts & {Verdict.BETTER, Verdict.WORSE}:
        # Some loads are equivalent, the others too uncertain.
        tone, word = "inconclusive", "inconclusive"
    _, interval = change(Estimate(low.value, low.low, high.high))
    said = ends(low.value, high.value, times=times), interval, word
    line = _line(arm, known[0].response, said, tone, (low, high), doubtful=doubtful)
    if word != "by load":
        return line
    parts = [
        replace(_one(arm, each, doubtful=doubtful), subject="", name=brief_condition(each.condition))
        for each in known
        if each.verdict in (Verdict.BETTER, Verdict.WORSE) and each.condition is not None
    ]
    return replace(line, parts=tuple(sorted(parts, key=lambda part: -part.size)))


def _paired(line: Line, found: Paired) -> Line:
    """Over conditions measured once each, with too few runs for a verdict."""
    effect, interval = change(found.ratio)
    return replace(line, effect=effect, interval=interval, ratios=(found.ratio,), size=abs(math.log(found.ratio.value)))


def _line(
    arm: str,
    response: Response,
    said: tuple[str, str, str],
    tone: Tone,
    ratios: tuple[Estimate, ...],
    *,
    doubtful: bool,
) -> Line:
    effect, interval, word = said
    rank = _RANK["mixed"] if word == "by load" else _RANK[tone]
    size = max(abs(math.log(each.value)) for each in ratios)
    name = response_name(response)
    return Line(
        arm,
        title(arm),
        response,
        f"{name[:1].upper()}{name[1:]}",
        effect,
        interval,
        word,
        tone,
        doubtful,
        ratios,
        rank,
        size,
    )


def _word(verdict: Verdict | None, ratio: Estimate) -> str:
    if verdict is None:
        return "no verdict"
    if verdict in (Verdict.EQUIVALENT, Verdict.INCONCLUSIVE):
        return verdict.value
    return "more" if ratio.value > 1 else "less"


def change(ratio: Estimate) -> tuple[str, str]:
    """A ratio and its interval: ("−3.4 %", "[−5.2, −1.5]"), ("2.10×", "[1.98, 2.23]")."""
    times = ratio.value >= TIMES_RATIO_MIN or (ratio.high or 0.0) > PERCENT_RATIO_MAX
    effect = f"{figure(ratio.value)}×" if times else signed(ratio.value - 1)
    if ratio.low is None or ratio.high is None or ratio.alike:
        return effect, ""
    if times:
        return effect, f"[{ends(ratio.low, ratio.high, times=True).removesuffix(' times').replace(' to ', ', ')}]"
    return effect, f"[{ends(ratio.low, ratio.high).replace(' %', '').replace(' to ', ', ')}]"
