"""Latency distributions as counts in bins.

Counts of several runs add up; percentiles of several runs do not average. So everything here works on counts.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import betainc

from iotax import trial

CURVE_PERCENT = (0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999, 100)
"""The points of a percentile curve: even on a scale of 1/(1 - p), ends included."""


@dataclass(frozen=True)
class LatencyBins:
    """Counts in bins. A value is the highest that its bin stands for."""

    values_ns: np.ndarray
    counts: np.ndarray
    bin_error: float
    """Relative error of any value read from it, at most."""

    @property
    def total(self) -> int:
        return int(self._cumulative[-1]) if len(self.counts) else 0

    @cached_property
    def _cumulative(self) -> np.ndarray:
        return np.cumsum(self.counts)

    def percentile_ns(self, percent: float) -> float:
        """The smallest value that at least `percent` of the counts do not exceed; nan where there are none."""
        if not self.total:
            return float("nan")
        return self._nth_ns(trial.rank(percent, self.total))

    def mean_ns(self) -> float:
        return float(self.values_ns @ self.counts) / self.total if self.total else float("nan")

    def percentile_interval_ns(self, percent: float, confidence: float = 0.95) -> tuple[float, float] | None:
        """Order-statistic (binomial) interval for independent observations; None if there are too few."""
        tail = (1 - confidence) / 2
        p = percent / 100
        low = _binomial_quantile(tail, self.total, p)
        high = _binomial_quantile(1 - tail, self.total, p) + 1
        if low < 1 or high > self.total:
            return None
        return self._nth_ns(low), self._nth_ns(high)

    def curve(self) -> list[tuple[float, float]]:
        """(percent, ns) up to the maximum; percentiles that the counts cannot support are left out."""
        supported = [p for p in CURVE_PERCENT if p == 100 or self.total * (1 - p / 100) > 1 - 1e-9]
        return [(p, self.percentile_ns(p)) for p in supported] if self.total else []

    def _nth_ns(self, n: int) -> float:
        return float(self.values_ns[np.searchsorted(self._cumulative, n)])


def of(*streams: trial.Histogram) -> LatencyBins:
    """The counts of one run's streams together."""
    pairs = [np.asarray(s.counts, dtype=np.int64).reshape(-1, 2) for s in streams]
    digits = min((s.significant_digits for s in streams if s.counts), default=3)
    return _sum(np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64), 10.0**-digits)


def merge(histograms: Iterable[LatencyBins]) -> LatencyBins:
    """Adds counts, bin by bin."""
    parts = list(histograms)
    if not parts:
        return _sum(np.empty((0, 2), np.int64), 0.0)
    pairs = np.concatenate([np.column_stack((h.values_ns, h.counts)) for h in parts])
    return _sum(pairs, max(h.bin_error for h in parts))


def smallest_count(percent: float, confidence: float = 0.95) -> int:
    """The minimum number of independent observations for a two-sided interval of this percentile."""
    p = percent / 100
    extreme = max(p, 1 - p)
    return int(np.ceil(np.log((1 - confidence) / 2) / np.log(extreme)))


TAIL_MIN = 20
"""I/Os that lie beyond a percentile in each run, at least, where runs tell how well it is known.

A percentile of fewer is a large or a small one by chance, and by another chance where a run has more I/Os: over ten
sessions a ratio of two tails of one I/O each, with four times the I/Os on one side, is covered 89 % of the time, of ten
and more 94 to 95 %, and the interval of merged counts takes twenty (tests/python/analysis/test_tails.py).
"""


def tells_tail(percent: float, counts: Iterable[int]) -> bool:
    """Whether runs with so many I/Os tell how well this percentile is known."""
    p = min(percent, 100 - percent) / 100
    return all(count * p >= TAIL_MIN - 1e-9 for count in counts)


def _sum(pairs: np.ndarray, bin_error: float) -> LatencyBins:
    values, where = np.unique(pairs[:, 0], return_inverse=True)
    counts = np.zeros(len(values), dtype=np.int64)
    np.add.at(counts, where, pairs[:, 1])
    return LatencyBins(values, counts, bin_error)


def _binomial_quantile(share: float, n: int, p: float) -> int:
    """The smallest count of successes in `n` trials that is not exceeded with a chance of at least `share`."""
    # P(X ≤ k) is a regularised incomplete beta function.
    return bisect_left(range(n), share, key=lambda k: float(betainc(n - k, k + 1, 1 - p)))
