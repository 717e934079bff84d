"""Wilcoxon's signed-rank test, exact, for differences of pairs of which some are only known to lie within bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class Shift:
    """How much longer the one of a pair takes. Ends may be infinite."""

    low: float
    high: float
    """Ends of the interval."""
    least: float
    most: float
    """The estimate lies between these two, which differ only where a difference is not known."""


def shift(differences: Sequence[tuple[float, float]], confidence: float) -> Shift:
    """The median of the averages of all pairs of differences, and its interval (Wilcoxon 1945; Hodges and Lehmann
    1963), for at least one difference, each known to lie between two bounds; -inf and inf if nothing is known of it.

    The lower end is that of the lower bounds, the upper end that of the upper bounds, so the interval holds whatever
    the true differences are. With fewer differences than `design.power.pairs_needed` both ends are infinite.
    """
    lows, highs = (_averages(np.array(each, dtype=float)) for each in zip(*differences, strict=True))
    outside = _outside(len(differences), 1 - confidence)
    return Shift(
        low=float(lows[outside - 1]) if outside else -math.inf,
        high=float(highs[-outside]) if outside else math.inf,
        least=_median(lows),
        most=_median(highs),
    )


def _averages(values: np.ndarray) -> np.ndarray:
    """Of every pair of values and of each with itself, in order."""
    first, second = np.triu_indices(len(values))
    return np.sort((values[first] + values[second]) / 2)


def _median(averages: np.ndarray) -> float:
    middle = len(averages) // 2
    if len(averages) % 2 or averages[middle] == averages[middle - 1]:
        return float(averages[middle])
    return float((averages[middle - 1] + averages[middle]) / 2)


@lru_cache
def _outside(pairs: int, alpha: float) -> int:
    """How many averages lie outside either end: the most for which both tails together have at most `alpha`."""
    below = np.cumsum(_distribution(pairs))
    return int(np.searchsorted(below, alpha / 2 + 1e-12, side="right"))


def _distribution(pairs: int) -> np.ndarray:
    """Probability of each rank sum of the positive differences, from 0, if each sign is as likely as the other."""
    chances = np.ones(1)
    for rank in range(1, pairs + 1):
        longer = np.zeros(len(chances) + rank)
        longer[: len(chances)] += chances / 2
        longer[rank:] += chances / 2
        chances = longer
    return chances
