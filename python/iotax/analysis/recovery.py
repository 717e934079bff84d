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
"""Of the median throughput before the first event of a run,"""
BACK_NS = 1_000_000_000
"""held for so long: then it is back."""
IOS_MIN = 20
"""Of an interval on average: with fewer, throughput scatters too much to say when it is back."""


@dataclass(frozen=True)
class Recovery:
    """From when an event was done until throughput was back."""

    seconds: float
    is_bound: bool = False
    """It took longer: the window, or the time to the next event, ended first."""


def recoveries(result: TrialResult) -> list[Recovery]:
    """One for each event, by time; none where nothing happened, or where too few I/Os complete to tell."""
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
        first, last = event.began_ns // interval_ns, end - held
        back = (at for at in range(first, last + 1) if ios[at] >= enough and sum(ios[at : at + held]) >= held * enough)
        at = next(back, None)
        seconds = ((last if at is None else at) * interval_ns - event.began_ns) / 1e9
        found.append(Recovery(max(0.0, seconds), is_bound=at is None))
    return found


@dataclass(frozen=True)
class MedianRecovery:
    """Of several events."""

    seconds: float | None
    """None where half of them, or more, were not over when they were last seen."""
    more_than_s: float
    """The longest time that any was seen for: then the median is longer."""
    events: int
    unrecovered: int
    """Those whose window ended first."""


def median_recovery(observed: Iterable[Recovery]) -> MedianRecovery | None:
    """The first time at which the share that is not back, by the product-limit estimate, is a half or less (Kaplan and
    Meier, Nonparametric estimation from incomplete observations, JASA 53, 1958). None of no event."""
    # At one time, what is back is back before others are lost from sight.
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
