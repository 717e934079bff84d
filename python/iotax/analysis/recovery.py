"""How long after an event throughput is back, where not every run shows it before its window ends.

The event is the unit of observation. A time that is only known to be longer than some time is censored: it counts among
those that wait still until then, and is never averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from iotax.trial import TrialResult

BACK = 0.95
"""Share of the median throughput before a run's first event,"""
BACK_NS = 1_000_000_000
"""held for so long: then it is back."""
IOS_MIN = 20
"""Average I/Os per interval: with fewer, throughput varies too much to see the recovery."""


@dataclass(frozen=True)
class Recovery:
    """Time from the begin of an event until throughput was back."""

    seconds: float
    is_bound: bool = False
    """Recovery took longer: the window ended, or the next event came, first."""


def recoveries(result: TrialResult) -> list[Recovery]:
    """One for each event, by time; none if nothing happened, or where too few I/Os complete to tell."""
    if not result.events or result.counted is None or (counted := result.counted.wider(IOS_MIN, BACK_NS)) is None:
        return []
    interval_ns, ios = counted.interval_ns, counted.ios
    before = ios[: result.events[0].began_ns // interval_ns]
    if not before:
        return []
    enough, held = BACK * median(before), math.ceil(BACK_NS / interval_ns)
    ends = [*(event.began_ns // interval_ns for event in result.events[1:]), len(ios)]
    found = []
    for event, end in zip(result.events, ends, strict=True):
        # The interval in which the event began was good for a part of it.
        first, last = -(-event.began_ns // interval_ns), end - held
        back = (at for at in range(first, last + 1) if ios[at] >= enough and sum(ios[at : at + held]) >= held * enough)
        at = next(back, None)
        seconds = 0.0 if at == first else ((last if at is None else at) * interval_ns - event.began_ns) / 1e9
        found.append(Recovery(max(0.0, seconds), is_bound=at is None))
    return found


def rate_after_iops(result: TrialResult) -> float:
    """Throughput from the end of each event to the next one or the window's end, recovery included; 0 where no I/O was
    counted by interval."""
    if not result.events or result.counted is None:
        return 0.0
    interval_ns, ios = result.counted.interval_ns, result.counted.ios
    ends = [*(event.began_ns // interval_ns for event in result.events[1:]), len(ios)]
    parts = [ios[-(-event.undone_ns // interval_ns) : end] for event, end in zip(result.events, ends, strict=True)]
    count = sum(map(len, parts))
    return sum(map(sum, parts)) * 1e9 / (count * interval_ns) if count else 0.0


@dataclass(frozen=True)
class MedianRecovery:
    """Recovery over several events."""

    seconds: float | None
    """None if half of them or more had not recovered when last seen."""
    more_than_s: float
    """The longest time that any was seen for: then the median is longer."""
    events: int
    unrecovered: int
    """Events whose window ended first."""


def median_recovery(observed: Iterable[Recovery]) -> MedianRecovery | None:
    """The first time at which at most half have not recovered, by the product-limit estimate (Kaplan and Meier,
    Nonparametric estimation from incomplete observations, JASA 53, 1958). None without events."""
    # At equal times, recoveries come before censored events.
    ordered = sorted(observed, key=lambda each: (each.seconds, each.is_bound))
    if not ordered:
        return None
    unrecovered = sum(each.is_bound for each in ordered)
    return MedianRecovery(_half(ordered), ordered[-1].seconds, len(ordered), unrecovered)


def _half(ordered: Sequence[Recovery]) -> float | None:
    share = 1.0
    for number, each in enumerate(ordered):
        if not each.is_bound:
            waiting = len(ordered) - number
            share *= (waiting - 1) / waiting
            if share <= 0.5 + 1e-12:
                return each.seconds
    return None
