"""The rates that one search for a knee may try: a ladder of its own for each treatment in each block.

A search that is repeated over the same rates ends at the same rate whatever scatters, and its repeats would say nothing
of how well the knee is known. So each ladder is shifted by a share of its step that is drawn anew: where the bracket
lies about the knee is then chance, and the mean of brackets' middles is not biased by the steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from iotax.design.random import derive_seed
from iotax.study.model import Search


@dataclass(frozen=True)
class Ladder:
    """Rungs 1 to `rungs` - 1 lie within the search's range; 0 and `rungs` lie outside and are never tried."""

    low_log: float
    step: float
    rungs: int

    def rate_iops(self, rung: int) -> int:
        return round(math.exp(self.low_log + rung * self.step))

    @property
    def middle_iops(self) -> int:
        """The first rate of a search."""
        return self.rate_iops(self.rungs // 2)


def halvings(search: Search) -> int:
    """Steps on a ladder until two neighbouring rungs are left."""
    assert search.rate_max is not None
    span = math.log(search.rate_max / search.rate_min)
    return max(1, math.ceil(math.log2(span / math.log1p(search.precision / 100) + 1)))


def ladder(search: Search, seed: int, name: str, block: int) -> Ladder:
    """`name` is the treatment's."""
    assert search.rate_max is not None
    rungs = 2 ** halvings(search)
    step = math.log(search.rate_max / search.rate_min) / (rungs - 1)
    shift = derive_seed(seed, f"rates of {name}", block) / 2**63
    return Ladder(math.log(search.rate_min) - shift * step, step, rungs)
