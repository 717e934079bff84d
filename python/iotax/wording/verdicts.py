"""The answer in sentences: each arm against the baseline, response by response, the headline first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from iotax.analysis.compare import Comparison, Overall, Tax
from iotax.analysis.estimate import Estimate
from iotax.analysis.responses import (
    CPU,
    CPU_HYPERVISOR,
    CPU_INITIATOR,
    CPU_MACHINE,
    CPU_TARGET,
    CPU_TRANSACTION,
    CPU_TRANSACTION_HYPERVISOR,
    CPU_TRANSACTION_INITIATOR,
    CPU_TRANSACTION_TARGET,
    DISK_IOPS,
    IOPS,
    LATENCY,
    LONGEST_GAP,
    ROLE_OF,
    ROLES,
    TRANSACTIONS,
    UTILISATION,
    Response,
)
from iotax.analysis.summary import Summary
from iotax.analysis.validity import TITLES, Doubt, kept_up
from iotax.analysis.verdict import Cause, Verdict, Withheld
from iotax.analysis.withheld import described
from iotax.units import counted
from iotax.wording.conditions import because, under
from iotax.wording.figures import (
    TIMES_RATIO_MIN,
    Finding,
    Tone,
    ends,
    figure,
    inside,
    interval,
    listed,
    percent,
    span,
    title,
)

_BEHIND_MAX = 2
"""Loads that fell behind, worst first; the others are counted."""


@dataclass(frozen=True)
class _Words:
    """The words for a response."""

    name: str
    more: str
    less: str
    verb: str
    up: str
    """A table cell that says "more of it"."""
    down: str


def _of_role(name: str, verb: str = "needs") -> _Words:
    return _Words(name, f"more {name}", f"less {name}", verb, "more CPU", "less CPU")


_WORDS = {
    IOPS.key: _Words("IOPS", "more IOPS", "fewer IOPS", "delivers", "faster", "slower"),
    LATENCY.key: _Words("mean latency", "more latency", "less latency", "shows", "slower", "faster"),
    CPU.key: _Words("CPU per I/O", "more CPU per I/O", "less CPU per I/O", "needs", "more CPU", "less CPU"),
    **{
        each.key: _of_role(f"{name} CPU per I/O")
        for each, name in (
            (CPU_INITIATOR, "initiator"),
            (CPU_TARGET, "target"),
            (CPU_HYPERVISOR, "hypervisor"),
            (CPU_MACHINE, "whole-machine"),
        )
    },
    **{each.key: _of_role(f"CPU utilisation of the {ROLES[ROLE_OF[each.key]]}", "has") for each in UTILISATION},
    TRANSACTIONS.key: _Words(
        "transactions/s", "more transactions/s", "fewer transactions/s", "delivers", "faster", "slower"
    ),
    LONGEST_GAP.key: _Words("longest gap", "longer gaps", "shorter gaps", "has", "longer gaps", "shorter gaps"),
    DISK_IOPS.key: _Words("disk IOPS", "more disk IOPS", "fewer disk IOPS", "does", "more I/O", "less I/O"),
    CPU_TRANSACTION.key: _Words(
        "CPU per transaction", "more CPU per transaction", "less CPU per transaction", "needs", "more CPU", "less CPU"
    ),
    **{
        each.key: _of_role(f"{name} CPU per transaction")
        for each, name in (
            (CPU_TRANSACTION_INITIATOR, "initiator"),
            (CPU_TRANSACTION_TARGET, "target"),
            (CPU_TRANSACTION_HYPERVISOR, "hypervisor"),
        )
    },
}


def verdicts(summary: Summary) -> list[Finding]:
    """One finding for each response and arm, then the cost of each protocol compared with local; each
    states its doubt."""
    said = [cautioned(each.finding, each.doubt) for each in judged(summary)]
    return said + not_achieved(summary) + [cautioned(*each) for each in taxed(summary)]


@dataclass(frozen=True)
class Judged:
    """A verdict as a sentence, without the doubt about its runs."""

    finding: Finding
    rests_on: list[Comparison]
    """By condition if the answer depends on it."""
    doubt: Doubt


def judged(summary: Summary) -> list[Judged]:
    """One sentence for each response and arm."""
    found = []
    for response in summary.responses:
        for overall in (o for o in summary.overalls if o.response is response):
            by_condition = [c for c in summary.comparisons if c.response is response and c.arm == overall.arm]
            finding = against_baseline(
                overall, by_condition, title(summary.grid.baseline_arm), simulated=summary.data.simulated
            )
            rests_on = by_condition if overall.depends and len(by_condition) > 1 else [overall.comparison]
            found.append(Judged(finding, rests_on, summary.doubt(overall.arm, response)))
    return found


def caution(doubt: Doubt) -> str:
    """The remark on figures from mostly doubtful runs: "all 8 runs are doubtful (steady state)". Empty otherwise."""
    if not doubt.most:
        return ""
    if doubt.of == 1:
        return f"its only run is doubtful ({why(doubt)})"
    runs = f"all {doubt.of} runs" if doubt.runs == doubt.of else f"{doubt.runs} of these {doubt.of} runs"
    return f"{runs} are doubtful ({why(doubt)})"


def doubtful_runs(doubt: Doubt) -> str:
    """The same if several sentences share the word "doubtful": "28 of 36 runs (steady state)"."""
    runs = f"{doubt.runs} of {counted(doubt.of, 'run')}"
    if doubt.runs == doubt.of:
        runs = "the only run" if doubt.of == 1 else f"all {doubt.of} runs"
    return f"{runs} ({why(doubt)})"


def why(doubt: Doubt) -> str:
    """The commonest findings."""
    return ", ".join(inside(TITLES[key]) for key in doubt.keys[:2])


def verdict_word(response: Response, verdict: Verdict | None) -> str:
    """A word for a table cell or a badge: "faster", "less CPU", "equivalent"."""
    if verdict is None:
        return "no verdict"
    if verdict in (Verdict.EQUIVALENT, Verdict.INCONCLUSIVE):
        return verdict.value
    words = _words(response)
    return words.up if (verdict is Verdict.BETTER) == response.more_is_better else words.down


def response_name(response: Response) -> str:
    """ "IOPS", "hypervisor CPU per I/O"."""
    return _words(response).name


def change(response: Response, ratio: float) -> str:
    """A ratio in words: "34 % more IOPS", "2.10 times the CPU per I/O"."""
    words = _words(response)
    if ratio >= TIMES_RATIO_MIN:
        return f"{figure(ratio)} times the {words.name}"
    return f"{percent(abs(ratio - 1))} {words.more if ratio >= 1 else words.less}"


def against_baseline(overall: Overall, by_condition: Sequence[Comparison], base: str, *, simulated: bool) -> Finding:
    """One arm's answer for one response; `base` is the baseline's written name."""
    response, arm = overall.response, title(overall.arm)
    found = "simulated" if simulated else "measured"
    known = [c for c in by_condition if c.ratio.low is not None and c.verdict is not None]
    details = tuple(f"{c.condition}: {_compared(c, arm, base, found)}" for c in by_condition if c.condition)
    if overall.flips:
        text = f"no overall winner: {_sides(response, _each_end(known), base)}"
        return Finding(arm, text, "inconclusive", details, response.key, "has")
    if overall.depends and len(known) > 1:
        text, tone, verb = _by_load(response, known, base, len(by_condition))
        return Finding(arm, text, tone, details, response.key, verb)
    comparison = overall.comparison
    tone: Tone = comparison.verdict.value if comparison.verdict else "plain"
    details = details if len(by_condition) > 1 else ()
    return Finding(arm, _compared(comparison, arm, base, found), tone, details, response.key, _verb(comparison))


def cautioned(finding: Finding, doubt: Doubt) -> Finding:
    """The finding, with a remark if it rests on mostly doubtful runs."""
    said = caution(doubt)
    return replace(finding, text=f"{finding.text}; but {said}", tone="warning") if said else finding


def paired_over(summary: Summary) -> list[Finding]:
    """How arms differ over conditions measured once each, with the smallest and largest difference."""
    found = []
    base = title(summary.grid.baseline_arm)
    for each in summary.paired:
        (least, where_least), (most, where_most) = each.least, each.most
        text = (
            f"{_difference(each.response, each.ratio, base)}, paired over {each.conditions} conditions; from "
            f"{change(each.response, least)} ({where_least}) to {change(each.response, most)} ({where_most})"
        )
        verb = _words(each.response).verb
        found.append(Finding(title(each.arm), text, response_key=each.response.key, verb=verb))
    return found


def not_achieved(summary: Summary) -> list[Finding]:
    """Open-loop treatments that fell behind the offered rate: a finding, although the rate is not compared."""
    found = []
    for arm in summary.grid.arms:
        behind = []
        for cell in (c for c in summary.cells if c.arm == arm):
            rates = [run.result.open for run in cell.runs if run.result.open is not None]
            if shares := [each.achieved for each in rates if not kept_up(each)]:
                behind.append((min(shares), " ".join(filter(None, (percent(min(shares)), under(cell.condition))))))
        if behind:
            worst = [said for _, said in sorted(behind)[:_BEHIND_MAX]]
            more = (
                f", and less than all under {counted(len(behind) - len(worst), 'more load')}"
                if behind[_BEHIND_MAX:]
                else ""
            )
            text = f"only a part of the offered I/Os: {', '.join(worst)}{more} (slowest run of each)"
            found.append(Finding(title(arm), text, "warning", verb="completed"))
    return found


def _compared(comparison: Comparison, arm: str, base: str, found: str) -> str:
    """One comparison in words, with its interval. `found`: "measured" or "simulated"."""
    if comparison.ends:
        return _at_ends(comparison, arm, base, found)
    response, ratio = comparison.response, comparison.ratio
    name = _words(response).name
    if comparison.verdict is None:
        why = because(comparison.withheld or Withheld(Cause.RUNS), arm, base)
        if ratio.low is None:
            return f"no comparison with {base} in {name}: {why}"
        return f"no verdict against {base} in {name}: {why}; {found}: {_difference(response, ratio, base)}"
    if comparison.verdict is Verdict.EQUIVALENT:
        return f"equivalent to {base} in {name}, within the margin ({span(ratio)})"
    if comparison.verdict is Verdict.INCONCLUSIVE:
        return f"no significant difference from {base} in {name} ({span(ratio)})"
    return _difference(response, ratio, base)


_WHATEVER = "however much of the transport the adapter handles"


def _at_ends(comparison: Comparison, arm: str, base: str, found: str) -> str:
    """The same for a protocol for which the lab has both bounds."""
    response, name = comparison.response, _words(comparison.response).name
    spans = " and ".join(f"{span(end.ratio)} over {listed(end.carriers)}" for end in comparison.ends)
    if comparison.verdict is Verdict.EQUIVALENT:
        return f"equivalent to {base} in {name}, within the margin {_WHATEVER} ({spans})"
    if comparison.verdict is Verdict.INCONCLUSIVE:
        return f"no significant difference from {base} in {name}, {_WHATEVER} ({spans})"
    each = " and ".join(
        f"{change(response, end.ratio.value)} ({span(end.ratio)}) over {listed(end.carriers)}"
        for end in comparison.ends
    )
    if comparison.verdict is None:
        why = because(comparison.withheld or Withheld(Cause.RUNS), arm, base)
        return f"no verdict against {base} in {name}: {why}; {found}: {each}"
    words = _words(response)
    more = words.more if comparison.ratio.value > 1 else words.less
    return f"{more} than {base} {_WHATEVER}: {each}"


def _difference(response: Response, ratio: Estimate, base: str) -> str:
    said = change(response, ratio.value)
    link = "of" if ratio.value >= TIMES_RATIO_MIN else "than"
    return f"{said} {link} {base} ({span(ratio)})"


def _verb(comparison: Comparison) -> str:
    match comparison.verdict:
        case None:
            return "gets" if comparison.ratio.low is not None else "has"
        case Verdict.EQUIVALENT:
            return "is"
        case Verdict.INCONCLUSIVE:
            return "shows"
    return _words(comparison.response).verb


def _each_end(known: Sequence[Comparison]) -> list[tuple[Comparison, str]]:
    """Comparisons with their conditions in words; for a protocol with two bounds, one at each bound."""
    return [
        (replace(c, ratio=end.ratio, verdict=end.verdict), f"{under(c.condition)} over {listed(end.carriers)}".strip())
        for c in known
        for end in c.ends
    ] + [(c, under(c.condition)) for c in known if not c.ends]


def _differs(comparison: Comparison) -> bool:
    return comparison.verdict not in (None, Verdict.EQUIVALENT, Verdict.INCONCLUSIVE)


def _by_load(response: Response, known: Sequence[Comparison], base: str, of: int) -> tuple[str, Tone, str]:
    """(text, tone, verb) if the ratio depends on the condition: both extremes, never their mean. `of`: all conditions,
    including those without a verdict."""
    name, verdicts = _words(response).name, {c.verdict for c in known}
    each = _each_end(known)
    low, high = min(each, key=lambda c: c[0].ratio.value), max(each, key=lambda c: c[0].ratio.value)
    reach = f"each 95 % CI within {_reach([c for c, _ in each])}"
    reach = "no intervals: all runs alike" if all(c.ratio.alike for c, _ in each) else reach
    every = "under every load" if len(known) == of else f"under {len(known)} of {of} loads"
    any_ = "under any load" if len(known) == of else every
    if verdicts == {Verdict.INCONCLUSIVE}:
        return f"no significant difference from {base} in {name} {any_} ({reach})", "inconclusive", "shows"
    if verdicts == {Verdict.EQUIVALENT}:
        return f"equivalent to {base} in {name}, within the margin {every} ({reach})", "equivalent", "is"
    differing = [(c, where) for c, where in each if _differs(c)]
    if not differing:
        equal = f"equivalent, within the margin, under {sum(c.verdict is Verdict.EQUIVALENT for c in known)} of them"
        return f"no significant difference from {base} in {name} {any_} ({reach}); {equal}", "inconclusive", "shows"
    if not _differs(low[0]) and not _differs(high[0]):
        # Both extremes are too uncertain; then one condition that does differ, and the opposite extreme.
        clear = max(differing, key=lambda c: abs(math.log(c[0].ratio.value)))
        low, high = (low, clear) if clear[0].ratio.value > 1 else (clear, high)
    extremes = [f"{_extreme(response, c)} {where} ({span(c.ratio)})" for c, where in (low, high)]
    words = _words(response)
    if len(verdicts) == 1:
        tone: Tone = next(v.value for v in verdicts if v is not None)
        more = words.more if low[0].ratio.value > 1 else words.less
        return f"{more} than {base} {every}: from {' to '.join(extremes)}", tone, words.verb
    return f"a difference from {base} in {name} that depends on the load: {'; '.join(extremes)}", "plain", "shows"


def _extreme(response: Response, comparison: Comparison) -> str:
    """ "19 % fewer", "2.10 times", "no significant difference"; the response is named elsewhere."""
    if comparison.verdict is Verdict.INCONCLUSIVE:
        return "no significant difference"
    if comparison.verdict is Verdict.EQUIVALENT:
        return "equivalent"
    ratio = comparison.ratio.value
    if ratio >= TIMES_RATIO_MIN:
        return f"{figure(ratio)} times"
    words = _words(response)
    return f"{percent(abs(ratio - 1))} {(words.more if ratio >= 1 else words.less).partition(' ')[0]}"


def _reach(known: Sequence[Comparison]) -> str:
    low, high = min(c.ratio.low or 0.0 for c in known), max(c.ratio.high or 0.0 for c in known)
    return ends(low, high)


def _sides(response: Response, known: Sequence[tuple[Comparison, str]], base: str) -> str:
    """Where it is ahead and where behind, each at the clearest condition."""
    parts = []
    for ahead in (True, False):
        some = [
            (c, where)
            for c, where in known
            if c.verdict in (Verdict.BETTER, Verdict.WORSE) and (c.ratio.value > 1) == ahead
        ]
        if some:
            best, where = (max if ahead else min)(some, key=lambda each: each[0].ratio.value)
            others = f" and in {counted(len(some) - 1, 'more case')}" if len(some) > 1 else ""
            parts.append(f"{_difference(response, best.ratio, base)} {where}{others}")
    return "; ".join(parts)


def _words(response: Response) -> _Words:
    name = inside(response.title)
    up, down = ("faster", "slower") if response.more_is_better else ("slower", "faster")
    if name.startswith("CPU"):
        up, down = "more CPU", "less CPU"
    return _WORDS.get(response.key, _Words(name, f"more ({name})", f"less ({name})", "shows", up, down))


def taxed(summary: Summary) -> list[tuple[Finding, Doubt]]:
    """The cost compared with local under the lightest load, which the study names first and where queueing adds least.
    None without an interval. The doubt about its runs is separate from the sentence."""
    said = []
    for arm in dict.fromkeys(tax.arm for tax in summary.taxes):
        tax = next(t for t in summary.taxes if t.arm == arm)
        parts = [
            f"{_us(estimate)} of {what}"
            for estimate, what in ((tax.latency_us, "latency"), *_cpu_by_side(tax))
            if estimate is not None and estimate.low is not None
        ]
        if parts:
            text = f"adds {listed(parts)} to each I/O"
            if (lost := tax.throughput_percent) is not None and lost.low is not None and lost.low > 0:
                text += f" and loses {_share(lost)} of the throughput"
            text += f", compared with the same volume reached locally {under(tax.condition)}".rstrip()
            if tax.carrier.emulated:
                text += f"; it runs here over {described(tax.carrier)}, whose cost is included"
            said.append((Finding(title(arm), text), summary.tax_doubt(tax)))
    return said


def _cpu_by_side(tax: Tax) -> list[tuple[Estimate | None, str]]:
    """The CPU time of both sides separately if both were measured, else together."""
    if tax.initiator_us is None or tax.target_us is None:
        return [(tax.cpu_us, "CPU")]
    return [(tax.initiator_us, "initiator CPU"), (tax.target_us, "target CPU")]


def _share(lost: Estimate) -> str:
    return f"{figure(lost.value)} % ({interval(lost)})"


def _us(estimate: Estimate) -> str:
    return f"{figure(estimate.value)} µs ({interval(estimate)})"
