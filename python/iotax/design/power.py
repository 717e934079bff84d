"""The power of a design: of a two-sided t-test of a difference of logarithms."""

from __future__ import annotations

import math

from scipy.special import nctdtrinc, stdtrit

POWER = 0.9
ALPHA = 0.05
BLOCKS_ENOUGH = 5
"""More of them narrow the interval of a mean over blocks by little more than the root of their number."""
_REPLICATES_MAX = 100_000


def block_reach(blocks: int) -> float:
    """Standard errors to each side in the 95 % interval of a mean over so many blocks."""
    return float(stdtrit(blocks - 1, 1 - ALPHA / 2))


def detectable_ratio(cv: float, runs: int, freedom: float) -> float | None:
    """The smallest ratio of two means of `runs` each that is seen with 90 % power; None without degrees of freedom.

    `cv` is the scatter of runs, as a share; the logarithms then have about that standard deviation. The chance to be
    significant on the wrong side, below 1e-4 at this power, counts as none.
    """
    if freedom < 1:
        return None
    error = math.sqrt(math.log1p(cv * cv)) * math.sqrt(2 / runs)
    return math.exp(error * seen_errors(freedom))


def seen_errors(freedom: float) -> float:
    """The smallest difference that is seen with 90 % power, in its standard errors."""
    return float(nctdtrinc(freedom, 1 - POWER, stdtrit(freedom, 1 - ALPHA / 2)))


def replicates_to_detect(cv: float, ratio: float) -> int:
    """Replicates of each of two treatments that show `ratio` with 90 % power."""

    def shown(runs: int) -> bool:
        seen = detectable_ratio(cv, runs, 2 * (runs - 1))
        return seen is not None and seen <= ratio

    # Fewer runs may not detect what more runs do: double the number until it is enough, then halve the gap.
    enough = 2
    while not shown(enough):
        enough *= 2
        if enough > _REPLICATES_MAX:
            raise ValueError(f"more than {_REPLICATES_MAX} replicates")
    few = enough // 2 if enough > 2 else 1
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if shown(middle) else (middle, enough)
    return enough


def each_of(comparisons: int, together: float = 0.95) -> float:
    """The confidence of each of so many intervals by which they hold together (Bonferroni)."""
    return 1 - (1 - together) / max(1, comparisons)


def pairs_needed(confidence: float) -> int:
    """The fewest pairs whose differences, if all have one sign, exclude "no difference" by the signed-rank test."""
    return 1 + math.ceil(-math.log2(1 - confidence) - 1e-12)
