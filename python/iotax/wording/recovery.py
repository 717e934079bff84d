"""The effects of events on a run: wrong data first, then the recovery time."""

from __future__ import annotations

import math

from iotax.analysis.data import StudyData
from iotax.analysis.interruptions import Delay, delays, interruptions
from iotax.analysis.recovery import MedianRecovery
from iotax.analysis.signed_rank import Shift
from iotax.analysis.summary import CellSummary, Summary
from iotax.records.interruptions import WRONG_DATA
from iotax.units import counted
from iotax.wording.conditions import under
from iotax.wording.figures import figure, title

_NAMED_MAX = 6
"""Number of treatments in one sentence; the report's table has the others."""


def median(found: MedianRecovery | None) -> str:
    """In seconds: "1.02", "more than 21.0"."""
    if found is None:
        return "–"
    return figure(found.seconds) if found.seconds is not None else f"more than {figure(found.more_than_s)}"


def recovered(found: MedianRecovery | None) -> str:
    """ "2 of 3"."""
    return "–" if found is None else f"{found.events - found.unrecovered} of {found.events}"


def wrong_data(data: StudyData) -> str:
    """A block that was lost, stale or torn, in any attempt; empty if every block read was correct. The first line of
    whatever shows the results."""
    hit = [each for each in data.attempts if WRONG_DATA in each.reason]
    if not hit:
        return ""
    reason = hit[0].reason[hit[0].reason.index(WRONG_DATA) :]
    return f"{counted(len(hit), 'attempt')} read {reason}. Trial {hit[0].trial.id}. Its numbers do not count."


def delay(found: Shift) -> str:
    """How much later, in seconds: "−126 [−129, −125]", "over 12.4"; "–" if there is no interval."""
    if math.isinf(found.low) and math.isinf(found.high):
        return "–"
    if math.isinf(found.high) or math.isinf(found.low):
        low = math.isinf(found.high)
        return f"{'over' if low else 'under'} {figure(found.low if low else found.high)}"
    estimate = figure((found.least + found.most) / 2) if found.least == found.most else ""
    return f"{estimate} [{figure(found.low)}, {figure(found.high)}]".strip()


def around(cell: CellSummary) -> str:
    """A treatment's recovery in a sentence of its own."""
    found = interruptions(cell.runs).recovery
    if found is None:
        return "Too few I/Os complete to see the recovery."
    return f"Throughput is back at 95 % after {median(found)} s (median; {recovered(found)} recovered)."


def sentence(summary: Summary) -> str:
    """Empty if the study has no events."""
    known = [(cell, found) for cell in summary.cells if (found := interruptions(cell.runs).recovery) is not None]
    if not known:
        return ""
    several = len({cell.condition for cell, _ in known}) > 1
    told = [
        f"{_treatment(cell, several=several)} {median(found)} s"
        + (f" ({recovered(found)} recovered)" if found.unrecovered else "")
        for cell, found in known[:_NAMED_MAX]
    ]
    more = f" and {len(known) - _NAMED_MAX} more in the report" if len(known) > _NAMED_MAX else ""
    return f"Median time until throughput was back at 95 %: {', '.join(told)}{more}."


def compared(summary: Summary) -> str:
    """How treatments differ from the baseline, or how many events that would take. Empty without events."""
    found = delays(summary)
    if not found:
        return ""
    fewest = min(found, key=lambda each: each.events)
    if fewest.events < fewest.needed:
        return (
            f"To compare recovery times takes {counted(fewest.needed, 'event')} of each treatment; "
            f"there {'is' if fewest.events == 1 else 'are'} {fewest.events}."
        )
    differ = [each for each in found if each.seconds.low > 0 or each.seconds.high < 0]
    base = title(summary.grid.baseline_arm)
    if not differ:
        return f"No treatment's recovery was shown to take longer or shorter than that of {base}."
    several = len({each.cell.condition for each in found}) > 1
    told = [f"{_treatment(each.cell, several=several)} {_off(each)}" for each in differ[:_NAMED_MAX]]
    rest = len(found) - len(differ)
    more = f" and {len(differ) - _NAMED_MAX} more in the report" if len(differ) > _NAMED_MAX else ""
    others = f"; no difference shown for {counted(rest, 'other')}" if rest else ""
    return f"Compared with {base}, throughput was back: {', '.join(told)}{more}{others}."


def _treatment(cell: CellSummary, *, several: bool) -> str:
    return f"{title(cell.arm)}{f' {under(cell.condition)}' if several else ''}"


def _off(each: Delay) -> str:
    """ "127 s sooner [126, 129]"."""
    found = each.seconds
    word = "later" if found.low > 0 else "sooner"
    least, most = sorted(abs(end) for end in (found.low, found.high))
    if math.isinf(most):
        return f"over {figure(least)} s {word}"
    middle = abs(found.least + found.most) / 2
    about = "" if found.least != found.most else f"{figure(middle)} s "
    return f"{about}{word} [{figure(least)}, {figure(most)}]" + ("" if about else " s")
