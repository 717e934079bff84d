"""Many comparisons at once: p-values, and intervals that agree with them, which keep the chance of any false alarm."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import gammaincinv, ndtri, stdtrit

from iotax.analysis import student

# 2^15 quasi-random points give p-values of Dunnett's test within 0.001.
_POINTS = 1 << 15
_COMPARISONS_MAX = 200
# With 2^13 samples, the 95 % quantile is accurate to 0.3 % of its probability.
_SAMPLES = 1 << 13
_SAMPLES_AT_ONCE = 1 << 8


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment; valid under any dependence."""
    order = np.argsort(p_values, kind="stable")
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def dunnett(p_values: Sequence[float], correlation: np.ndarray, df: float, *, own_scatter: bool = False) -> list[float]:
    """Single-step adjustment of two-sided p-values of comparisons whose estimates correlate.

    For several arms against one baseline in a one-way layout it is Dunnett's test; for contrasts of any linear model it
    is the max-t test of Hothorn, Bretz and Westfall (2008). The integral is taken over fixed quasi-random points, so
    the same data give the same p-values. Beyond 200 comparisons Bonferroni's adjustment stands in. `own_scatter`: each
    comparison is judged by the scatter of its own `df` + 1 values, not by one that all share.
    """
    k = len(p_values)
    if k == 1:
        return [float(p_values[0])]
    if k > _COMPARISONS_MAX:
        return [min(1.0, k * float(p)) for p in p_values]
    largest = _largest(correlation, df, own_scatter)
    observed = -stdtrit(df, np.clip(p_values, 1e-300, 1) / 2)
    beyond = 1 - np.searchsorted(largest, observed) / len(largest)
    # The points resolve no p below about 1/2^15: there Bonferroni's bound is as good.
    return [float(min(1.0, max(p, min(b if b > 0 else 1.0, k * p)))) for p, b in zip(p_values, beyond, strict=True)]


def each_confidence(correlation: np.ndarray, df: float, together: float = 0.95, *, own_scatter: bool = False) -> float:
    """The confidence of each comparison's own interval by which all of them hold at once with that of `together`.

    The counterpart of `dunnett`: an interval leaves out "no difference" exactly where the adjusted p-value is below
    1 - `together`.
    """
    k = len(correlation)
    alpha = 1 - together
    if k == 1:
        return together
    if k > _COMPARISONS_MAX:
        return 1 - alpha / k
    largest = _largest(correlation, df, own_scatter)
    critical = largest[min(len(largest) - 1, math.floor(len(largest) * together + 1e-9))]
    local = 2 * student.beyond(float(critical), df)
    return 1 - min(alpha, max(local, alpha / k))


def at_five(p_values: Sequence[float], confidence: float) -> list[float]:
    """P-values to be held against 5 %, where intervals of more than 95 % confidence judge."""
    return [min(1.0, p * 0.05 / (1 - confidence)) for p in p_values]


_STOPPED = {2: 0.985, 3: 0.98, 4: 0.976, 5: 0.973, 6: 0.97, 8: 0.966, 10: 0.964, 15: 0.96, 20: 0.957, 30: 0.955}
"""Replicates that run in any case → see `stopped_confidence`."""


def stopped_confidence(at_least: int) -> float:
    """The confidence of intervals that hold with 95 % when replicates are added until they are narrow enough.

    Such a rule ends where the scatter looks small, so the last interval is too narrow: asked of 95 % intervals from the
    third replicate on, it covers 90 %. The rule is asked of wider intervals instead, and these are printed. The figures
    are those by which one ratio holds with 95 % whatever the scatter (Monte Carlo, tests/python/analysis/
    test_stopping.py); of several ratios the widest decides, and they hold more often.
    """
    return _STOPPED[max(count for count in _STOPPED if count <= max(2, at_least))]


def sidak(p_values: Sequence[float]) -> list[float]:
    """Single-step adjustment of comparisons that are independent, or correlate positively (Sidak 1967)."""
    k = len(p_values)
    return [-math.expm1(k * math.log1p(-min(p, 1 - 1e-16))) for p in p_values]


def sidak_confidence(k: int, together: float = 0.95) -> float:
    """The confidence of each of `k` intervals that hold simultaneously at `together`; the counterpart of `sidak`."""
    return together ** (1 / max(1, k))


def _largest(correlation: np.ndarray, df: float, own_scatter: bool) -> np.ndarray:
    """The largest |t| of all comparisons at each of the points, sorted."""
    of = _largest_of_samples if own_scatter else _largest_of
    return of(np.asarray(correlation, dtype=float).tobytes(), len(correlation), df)


# A p-value and its interval ask for the same, and so does each response of a study.
@lru_cache(maxsize=16)
def _largest_of(correlation: bytes, k: int, df: float) -> np.ndarray:
    root = _root(correlation, k)
    normals, _ = _points(k)
    return np.sort(np.max(np.abs(normals @ root.T), axis=1) / _scales(k, df))


@lru_cache(maxsize=16)
def _largest_of_samples(correlation: bytes, k: int, df: float) -> np.ndarray:
    root = _root(correlation, k)
    count, stream = round(df) + 1, np.random.default_rng(20_260_101)
    found = []
    for _ in range(_SAMPLES // _SAMPLES_AT_ONCE):
        values = stream.standard_normal((_SAMPLES_AT_ONCE, count, k)) @ root.T
        error = values.std(axis=1, ddof=1) / np.sqrt(count)
        found.append(np.max(np.abs(values.mean(axis=1)) / error, axis=1))
    return np.sort(np.concatenate(found))


def _root(correlation: bytes, k: int) -> np.ndarray:
    values, vectors = np.linalg.eigh(np.frombuffer(correlation).reshape(k, k))
    return vectors * np.sqrt(np.clip(values, 0, None))


@lru_cache(maxsize=8)
def _scales(k: int, df: float) -> np.ndarray:
    """Estimated over true standard deviation, at each of the points."""
    return np.sqrt(2 * gammaincinv(df / 2, _points(k)[1]) / df)


@lru_cache(maxsize=4)
def _points(k: int) -> tuple[np.ndarray, np.ndarray]:
    """(points of a k-dimensional standard normal, of a uniform beside it), the same at every call."""
    # Steps by powers of the root of x^(d+1) = x + 1 fill d dimensions evenly (Kronecker's sequence; Roberts 2018).
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (k + 2))
    step = root ** -np.arange(1.0, k + 2)
    start = np.random.default_rng(20_260_101).random(k + 1)
    points = np.clip((np.arange(1, _POINTS + 1)[:, None] * step + start) % 1, 1e-12, 1 - 1e-12)
    return ndtri(points[:, :-1]), points[:, -1]
