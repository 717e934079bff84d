"""The effects of events on a run: wrong data first, then the recovery time."""

from __future__ import annotations

from iotax.analysis.interruptions import interruptions
from iotax.analysis.recovery import MedianRecovery
from iotax.analysis.summary import Summary
from iotax.records.interruptions import WRONG_DATA
from iotax.units import counted
from iotax.wording.conditions import under
from iotax.wording.figures import figure
from iotax.wording.names import title

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


def wrong_data(summary: Summary) -> str:
    """Empty if every block read after an event was correct."""
    hit = [each for each in summary.data.attempts if each.reason.startswith(WRONG_DATA)]
    if not hit:
        return ""
    return f"{counted(len(hit), 'attempt')} read {hit[0].reason}. Trial {hit[0].trial.id}. Its numbers do not count."


def sentence(summary: Summary) -> str:
    """Empty if the study has no events."""
    known = [(cell, found) for cell in summary.cells if (found := interruptions(cell.runs).recovery) is not None]
    if not known:
        return ""
    several = len({cell.condition for cell, _ in known}) > 1
    told = [
        f"{title(cell.arm)}{f' {under(cell.condition)}' if several else ''} {median(found)} s"
        + (f" ({recovered(found)} recovered)" if found.unrecovered else "")
        for cell, found in known[:_NAMED_MAX]
    ]
    more = f" and {len(known) - _NAMED_MAX} more in the report" if len(known) > _NAMED_MAX else ""
    return f"Median time until throughput was back at 95 %: {', '.join(told)}{more}."
