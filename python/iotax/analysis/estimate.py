"""Estimates with their errors, and the ways to one that need no model: means of runs, sums, the jackknife."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iotax.analysis import student

_ALIKE = 1e-9
"""Far below what three figures show, and far above rounding errors."""


_EXPONENT_MAX = 500.0
"""An end of an interval further out knows nothing, and a larger one would be no number."""


def _exp(bound: float) -> float:
    return math.exp(max(-_EXPONENT_MAX, min(bound, _EXPONENT_MAX)))


@dataclass(frozen=True)
class Contrast:
    """An estimate, mostly a weighted sum of means. Without error where the runs leave none to estimate."""

    estimate: float
    standard_error: float | None
    df: float | None

    def interval(self, confidence: float = 0.95) -> tuple[float, float] | None:
        if self.standard_error is None or self.df is None:
            return None
        reach = student.reach(self.df, confidence) * self.standard_error
        return self.estimate - reach, self.estimate + reach


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; without one where the runs give none."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def ratio(cls, contrast: Contrast, confidence: float = 0.95) -> "Estimate":
        """The estimate of a contrast of logarithms. `confidence` is above 0.95 if it is one of several that hold
        simultaneously at 95 %."""
        bounds = contrast.interval(confidence)
        return cls(math.exp(contrast.estimate), *(map(_exp, bounds) if bounds else ()))

    @classmethod
    def plain(cls, contrast: Contrast, confidence: float = 0.95) -> "Estimate":
        return cls(contrast.estimate, *(contrast.interval(confidence) or ()))

    @property
    def alike(self) -> bool:
        """Whether the runs came out alike, as those of a simulation in which nothing is random: the interval has no
        width, and says nothing of how well the value is known."""
        if self.low is None or self.high is None:
            return False
        return self.high - self.low <= _ALIKE * abs(self.value)

    @property
    def percent(self) -> "Estimate":
        """A ratio × 100."""
        return Estimate(100 * self.value, *(None if end is None else 100 * end for end in (self.low, self.high)))


def mean_of(values: Sequence[float] | np.ndarray) -> Contrast:
    """Mean of independent observations, by Student's t."""
    n = len(values)
    mean = float(np.mean(values))
    if n < 2:
        return Contrast(mean, None, None)
    return Contrast(mean, float(np.std(values, ddof=1)) / math.sqrt(n), n - 1.0)


def combined(parts: Sequence[tuple[float, Contrast]]) -> Contrast:
    """A weighted sum of independent estimates; degrees of freedom after Welch and Satterthwaite."""
    estimate = sum(weight * part.estimate for weight, part in parts)
    variances, freedoms = [], []
    for weight, part in parts:
        if part.standard_error is None or part.df is None:
            return Contrast(estimate, None, None)
        variances.append((weight * part.standard_error) ** 2)
        freedoms.append(part.df)
    spread = sum(variance**2 / df for variance, df in zip(variances, freedoms, strict=True))
    df = sum(variances) ** 2 / spread if spread > 0 else sum(freedoms)
    return Contrast(estimate, math.sqrt(sum(variances)), df)


def jackknife(whole: float, without: Sequence[float] | np.ndarray, grain: float = 0.0) -> Contrast:
    """A jackknife estimate from the values without each independent part (Miller 1974), with t of one degree less than
    the parts. `grain` is the width to which values were rounded: it adds the variance of the rounding error."""
    n = len(without)
    if n < 2:
        return Contrast(whole, None, None)
    off = np.asarray(without, dtype=float) - np.mean(without)
    return Contrast(whole, math.sqrt((n - 1) / n * float(off @ off) + grain**2 / 12), n - 1.0)
