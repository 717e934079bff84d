"""The first screen: what each protocol adds, what differs, what is equivalent, what is not settled."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from iotax.analysis.compare import Comparison
from iotax.analysis.precision import Precision, detectable_percent, half_width_percent, precisions
from iotax.analysis.responses import Response
from iotax.analysis.sessions import SESSIONS_MAX, for_width
from iotax.analysis.summary import Summary
from iotax.analysis.validity import Doubt
from iotax.analysis.verdict import Cause, Verdict
from iotax.units import counted, show_minutes
from iotax.wording.conditions import emulated, encrypted
from iotax.wording.costs import by_rate, priced
from iotax.wording.figures import ALIKE, Finding, listed, signed, title
from iotax.wording.processors import controllers, left_out, not_measured, within
from iotax.wording.verdicts import doubtful_runs, judged, not_achieved, paired_over, response_name, taxed

_PERCENT_MAX = 100
"""An effect known only to a factor of two is not written to a tenth of a percent."""

_SENTENCES_MANY = 10
"""With more sentences, the answer is hard to find among them; a summary in a few lines then comes first."""
_LINES_MAX = 8
_STEP = math.log(1.1)
"""Ratios that differ by less count as about the same."""
_SHOWN_MIN = 0.05
"""More precision than this is not needed."""
_ALIKE_PERCENT = 1e-7


@dataclass(frozen=True)
class Part:
    """Sentences under one title."""

    title: str
    findings: tuple[Finding, ...]


def answer(summary: Summary) -> list[Part]:
    """Absolute before relative; findings before inconclusive comparisons. Parts without a sentence are left out."""
    doubts = _Doubts()
    significant, equivalent, open_, withheld = [], [], [], []
    for each in judged(summary):
        found = {comparison.verdict for comparison in each.rests_on}
        finding = doubts.marked(each.finding, each.doubt, title(summary.grid.baseline_arm))
        if found & {Verdict.BETTER, Verdict.WORSE}:
            significant.append(finding)
        elif Verdict.INCONCLUSIVE in found:
            open_.append(_with_what_it_takes(finding, each.rests_on, summary))
        elif Verdict.EQUIVALENT in found:
            equivalent.append(finding)
        else:
            withheld.append(_with_what_it_takes(finding, each.rests_on, summary))
    local = title(summary.grid.local or "")
    adds = [doubts.marked(finding, doubt, local) for finding, doubt in taxed(summary)]
    base = title(summary.grid.baseline_arm)
    costs = [doubts.marked(finding, doubt, base) for finding, doubt in priced(summary)]
    margin = f"{summary.data.study.margin:g} %"
    several = sum(len(each) for each in (significant, equivalent, open_, withheld)) > _SENTENCES_MANY
    parts = [
        Part("In short", tuple(in_short(summary)) if several else ()),
        Part("What each I/O costs at the rates of the study", (*costs, *by_rate(summary))),
        Part("What each protocol adds to an I/O", tuple(adds)),
        Part("Significant differences", tuple(significant)),
        Part(f"No difference beyond the margin of {margin}", tuple(equivalent)),
        Part("Not settled", tuple(open_)),
        Part("Over the conditions, each measured once: no verdict", tuple(paired_over(summary))),
        Part("No verdict", tuple(each for each in withheld if not _over_conditions(each, summary))),
        Part("Offered and not completed", tuple(not_achieved(summary))),
        Part("Not measured", tuple(not_measured(summary))),
        Part("What CPU per I/O leaves out", tuple(left_out(summary))),
        Part("What CPU per I/O includes", tuple(within(summary))),
        Part("Simulated controllers", tuple(controllers(summary))),
        Part("Why doubtful", tuple(doubts.reasons())),
    ]
    said = " ".join(finding.text for part in parts for finding in part.findings)
    parts.append(Part("Transport used here", tuple(emulated(summary, said))))
    if text := encrypted(summary):
        parts.append(Part("What counts here", (Finding("", text.removesuffix(".")),)))
    return [part for part in parts if part.findings]


def _over_conditions(finding: Finding, summary: Summary) -> bool:
    """Whether it only says that there are too few runs while another sentence says how the conditions differ."""
    return any(
        (title(each.arm), each.response.key) == (finding.subject, finding.response_key) for each in summary.paired
    )


def in_short(summary: Summary) -> list[Finding]:
    """Every response of each arm in one line; arms with the same answers share a line."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for arm in dict.fromkeys(overall.arm for overall in summary.overalls):
        kinds = tuple(_kind(summary, arm, response) + _about(summary, arm, response) for response in summary.responses)
        groups.setdefault(kinds, []).append(arm)
    lines = []
    for arms in groups.values():
        doubtful = any(summary.doubt(arm, summary.responses[0]).most for arm in arms)
        said = [_of_all(summary, arms, response) for response in summary.responses]
        text = f"{'; '.join(filter(None, said))}{' (doubtful)' if doubtful else ''}"
        lines.append(Finding("", f"{listed([title(arm) for arm in arms])}: {text}"))
    if len(lines) > _LINES_MAX:
        lines = [*lines[: _LINES_MAX - 1], Finding("", f"{len(lines) - _LINES_MAX + 1} more groups: see below")]
    base = title(summary.grid.baseline_arm)
    return [Finding("", f"Against {base}, where an interval within {summary.data.study.margin:g} % is equal"), *lines]


def _own(summary: Summary, arm: str, response: Response) -> list[Comparison]:
    found = [each for each in summary.comparisons if each.response is response and each.arm == arm]
    return found or [each.comparison for each in summary.overalls if each.response is response and each.arm == arm]


def _kind(summary: Summary, arm: str, response: Response) -> str:
    """The part of an arm's answer that other arms may share word for word."""
    own = _own(summary, arm, response)
    overall = next((o for o in summary.overalls if o.response is response and o.arm == arm), None)
    if overall is None or not own:
        return ""
    if overall.comparison.verdict is None and not overall.depends:
        return "none"
    if not overall.depends:
        return overall.comparison.verdict.value if overall.comparison.verdict else "none"
    verdicts = {each.verdict for each in own}
    return (verdicts.pop() or "none") if len(verdicts) == 1 else "by load"


def _about(summary: Summary, arm: str, response: Response) -> str:
    """The approximate size of its difference: arms that lie far apart share no line. Empty if there is no
    difference."""
    if _kind(summary, arm, response) in ("", "equivalent"):
        return ""
    logs = [math.log(each.ratio.value) for each in _own(summary, arm, response)]
    return f" {round(sum(logs) / len(logs) / _STEP)}"


def _of_all(summary: Summary, arms: Sequence[str], response: Response) -> str:
    """One response for arms of one kind, with the lowest and highest ratio over their loads."""
    kind = _kind(summary, arms[0], response)
    name = response_name(response)
    ratios = [each.ratio.value for arm in arms for each in _own(summary, arm, response)]
    if not kind or not ratios:
        return ""
    low, high = signed(min(ratios) - 1), signed(max(ratios) - 1)
    between = low if low == high else f"{low} to {high}"
    match kind:
        case "equivalent":
            return f"{name} equal"
        case "inconclusive":
            return f"{name} not settled ({between})"
        case "none":
            return f"{name} {between}, no verdict"
        case "by load":
            return f"{name} {between}, by load"
    return f"{name} {between}"


class _Doubts:
    """Marks each sentence whose runs are doubtful; gives their number and the reason once for all that share it."""

    def __init__(self) -> None:
        self._subjects: dict[tuple[str, str], dict[str, None]] = {}
        """What is said about the runs, and the baseline → the subjects for which both hold."""

    def marked(self, finding: Finding, doubt: Doubt, against: str) -> Finding:
        if not doubt.most:
            return finding
        self._subjects.setdefault((doubtful_runs(doubt), against), {})[finding.subject] = None
        return replace(finding, text=f"{finding.text}; doubtful", tone="warning")

    def reasons(self) -> list[Finding]:
        compared = {against for (_, against), subjects in self._subjects.items() if {*subjects} != {against}}
        return [
            Finding("", f"{_against(list(subjects), against)}: {runs}")
            for (runs, against), subjects in self._subjects.items()
            # A sentence about the other arms includes the baseline's runs.
            if {*subjects} != {against} or against not in compared
        ]


def _against(subjects: Sequence[str], base: str) -> str:
    """ "NFSv3 and iSCSI, each against local"; a baseline's own figure is compared with nothing."""
    others = [each for each in subjects if each != base]
    return f"{listed(others)}{', each' if len(others) > 1 else ''} against {base}" if others else base


def precision(summary: Summary) -> Finding | None:
    """How wide the primary response's intervals are, which difference they can detect, and what it takes to halve them
    unless a sentence about sessions says so."""
    if not summary.responses:
        return None
    primary = summary.responses[0]
    own = next((each for each in precisions(summary) if each.response is primary), None)
    if own is None or (widest := _widest(own)) is None:
        return None
    if widest < _ALIKE_PERCENT:
        return Finding("precision", f"{primary.short}: ratios have {ALIKE}.")
    blocks = _blocks(summary)
    seen = detectable_percent(widest, blocks)
    text = f"{primary.short}: ratios are known to " + " and ".join(_widths(own))
    # With drawn costs, more replicates do not make a smaller difference detectable.
    if seen is not None and _SHOWN_MIN <= seen <= _PERCENT_MAX and not summary.data.costs_drawn:
        text += f"; minimum detectable difference (90 % power) {'over all loads ' if own.overall_percent else ''}"
        text += f"{seen:.1f} %"
        text += "" if summary.session_scatter else f"; half of it takes a run of {effort(summary, 0.5)}"
    return Finding("precision", text + ".")


def _widest(own: Precision) -> float | None:
    return own.overall_percent if own.overall_percent is not None else own.cell_worst_percent


def _widths(own: Precision) -> list[str]:
    found = [] if own.overall_percent is None else [f"{reach(own.overall_percent)} over all loads"]
    if own.cell_median_percent is not None and own.cell_worst_percent is not None:
        found.append(f"{reach(own.cell_median_percent)} under one load (median; worst {reach(own.cell_worst_percent)})")
    return found


def reach(half_width: float) -> str:
    """Half the width of an interval: "±1.9 %"."""
    if half_width > _PERCENT_MAX:
        return f"more than ±{_PERCENT_MAX} %"
    return f"±{half_width:.1f} %" if half_width >= _SHOWN_MIN else f"better than ±{_SHOWN_MIN:g} %"


def _with_what_it_takes(finding: Finding, comparisons: Sequence[Comparison], summary: Summary) -> Finding:
    """Intervals that exclude "no difference" or lie within the margin, if the estimates stay as they are."""
    margin_percent = summary.data.study.margin
    shares = []
    for each in comparisons:
        width = half_width_percent(each.ratio)
        looked = each.withheld is not None and each.withheld.cause is Cause.LOOKED
        if width and (looked or each.verdict is Verdict.INCONCLUSIVE):
            away = 100 * abs(each.ratio.value - 1)
            shares.append(max(margin_percent - away, away) / width)
    if not shares:
        return finding
    if summary.data.costs_drawn:
        # Drawn costs keep their uncertainty, whatever the number of draws.
        text = f"{finding.text}. Better known costs would settle it, not more replicates"
        return replace(finding, text=text)
    takes = effort(summary, min(*shares, 1.0))
    # Adding runs until the difference is significant is not a valid test.
    return replace(finding, text=f"{finding.text}. To settle it: a new run, with another seed, of {takes}")


def effort(summary: Summary, share: float) -> str:
    """What it takes to narrow the intervals to this share of their width: "about 14 sessions (6 min 10 s)"."""
    blocks = _blocks(summary)
    unit = summary.data.study.design.unit
    wanted = for_width(blocks, share) if blocks > 1 else None
    if wanted is None:
        return f"more than {counted(SESSIONS_MAX, unit)}"
    wall_ns = summary.data.wall_ns
    took = f" ({show_minutes(wall_ns / 1e9 * wanted / blocks)})" if wall_ns else ""
    return f"about {counted(wanted, unit)}{took}"


def _blocks(summary: Summary) -> int:
    """Sessions, or replicates of the treatment with the fewest."""
    return min((len(cell.runs) for cell in summary.cells), default=0)
