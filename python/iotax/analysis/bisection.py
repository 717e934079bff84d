"""One search for a knee: which rate to ask next, and between which two rates the knee lies. Numbers only."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from iotax.design.plan import PROBE_TRIES
from iotax.design.rates import Ladder
from iotax.study.model import Search


@dataclass(frozen=True)
class Probe:
    """One run at a rate."""

    rate_iops: int
    held: bool


@dataclass(frozen=True)
class Bracket:
    """The highest rate that held below the lowest that did not, and that lowest rate; None if there is none."""

    passed: int | None
    failed: int | None

    @property
    def knee_iops(self) -> float:
        """Its geometric middle; if everything held, the highest rate tried. `passed` is not None."""
        assert self.passed is not None
        return self.passed if self.failed is None else math.sqrt(self.passed * self.failed)


def bracket(probes: Sequence[Probe]) -> Bracket:
    """A rate is too high once it missed `PROBE_TRIES` times and never held."""
    held: dict[int, list[bool]] = {}
    for probe in probes:
        held.setdefault(probe.rate_iops, []).append(probe.held)
    failed = min((rate for rate, some in held.items() if not any(some) and len(some) >= PROBE_TRIES), default=None)
    passed = max((rate for rate, some in held.items() if any(some) and (failed is None or rate < failed)), default=None)
    return Bracket(passed, failed)


def next_rate(search: Search, rungs: Ladder, probes: Sequence[Probe]) -> int | None:
    """None if two neighbouring rungs bracket the knee, or it lies outside the range."""
    if not probes:
        return rungs.middle_iops
    assert search.rate_max is not None
    last = probes[-1].rate_iops
    again = [probe.held for probe in probes if probe.rate_iops == last]
    if not any(again) and len(again) < PROBE_TRIES:
        return last
    found = bracket(probes)
    inside = range(1, rungs.rungs)
    low = bisect_right(inside, found.passed, key=rungs.rate_iops) if found.passed is not None else 0
    high = 1 + bisect_left(inside, found.failed, key=rungs.rate_iops) if found.failed is not None else rungs.rungs
    if high - low > 1:
        return rungs.rate_iops((low + high) // 2)
    # The ends of the range are not rungs: they are tried only if nothing held, or everything did.
    if found.passed is None and found.failed is not None and found.failed > search.rate_min:
        return search.rate_min
    return (
        search.rate_max
        if found.failed is None and found.passed is not None and found.passed < search.rate_max
        else None
    )
