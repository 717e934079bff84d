"""How much the turns of threads vary: the figure with which simulated rates come closest to measured ones.

Threads whose turns all take what they cost wait for each other in step, or never. Real ones do not: what varies shows
in the rate wherever two threads have work for each other at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from iotax.calibration.treatments import Treatment

_COARSE_PERCENT = (0, 20, 40, 60, 80, 100)
_FINER_PERCENT = (10, 5)
_TREATMENTS_MIN = 3


def tell_turns_apart(treatments: Sequence[Treatment]) -> bool:
    """Whether rates say how much turns vary: those over loopback of several I/Os at a time."""
    return sum(each.gaps_ns is not None and not each.alone for each in treatments) >= _TREATMENTS_MIN


def closest_percent(rms_at: Callable[[int], float]) -> int:
    """The coefficient of variation, in steps of 5 %, with the smallest error; calls `rms_at` once for each."""
    found: dict[int, float] = {}

    def ask(percents: Sequence[int]) -> int:
        for percent in percents:
            if percent not in found:
                found[percent] = rms_at(percent)
        return min(found, key=lambda percent: (found[percent], percent))

    best = ask(_COARSE_PERCENT)
    for step in _FINER_PERCENT:
        best = ask([percent for percent in (best - step, best + step) if 0 <= percent <= 100])
    return best


def rms_off(treatments: Sequence[Treatment], rates_iops: Mapping[str, float]) -> float:
    """Root mean square of the logarithmic errors of simulated rates against measured ones over loopback. `rates_iops`:
    treatment → rate."""
    squares = [
        math.log(rates_iops[each.name] * sum(each.gaps_ns.values()) / len(each.gaps_ns) / 1e9) ** 2
        for each in treatments
        if each.gaps_ns
    ]
    return math.sqrt(sum(squares) / len(squares))
