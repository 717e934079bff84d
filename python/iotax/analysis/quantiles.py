"""Latency by quantile, with the run as the unit of observation, and shift functions.

A quantile is read from the counts of all runs added up; averages of percentiles are percentiles of nothing. How well it
is known follows from the runs, not from the I/Os, which share their run's luck: the delete-one-run jackknife of its
logarithm, with Student's t of one less than the runs (Miller 1974; Shao and Tu 1995, ch. 2). For treatments that share
blocks a whole block is left out at a time, so that a drift both share cancels; else the two sides' errors add up
(Welch). Bins are as wide as they are: their rounding is added to the error, so no interval is narrower than what it was
read from.

A shift function (Doksum 1974) gives the difference at each quantile: a mean that rose says nothing about whether all
I/Os became slower or a few.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from iotax.analysis.estimate import Contrast, Estimate, combined, jackknife
from iotax.analysis.histogram import LatencyBins, smallest_count, tells_tail
from iotax.analysis.multiplicity import at_five, holm
from iotax.analysis.responses import Run
from iotax.analysis.verdict import two_sided_p

QUANTILES_PERCENT = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
"""Quantiles of a treatment, as far into the tail as its counts allow."""
SHIFT_PERCENT = (10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.9)
"""Quantiles of a comparison: the deciles and the tail."""

_Contrasting: TypeAlias = Callable[[float, float, np.ndarray, np.ndarray, float], Contrast]


@dataclass(frozen=True)
class Quantile:
    """A quantile of a treatment's merged counts, in µs; the interval comes from its runs."""

    percent: float
    value_us: Estimate


@dataclass(frozen=True)
class ShiftPoint:
    """One quantile of one side against the same of the other."""

    percent: float
    base_us: float
    difference_us: Estimate
    ratio: Estimate
    p: float | None
    """The p-value of "no difference at this quantile", adjusted for the other quantiles (Holm); the intervals are not
    adjusted."""


@dataclass(frozen=True)
class Shift:
    """The difference at every quantile of which both sides tell how well it is known."""

    arm: str
    condition: str
    points: list[ShiftPoint]


def quantiles(
    runs: Sequence[Run], percents: Sequence[float] = QUANTILES_PERCENT, confidence: float = 0.95
) -> list[Quantile]:
    """The quantiles that the counts can resolve. They have no intervals if there is a single run, or if too few I/Os of
    a run lie beyond the quantile."""
    sample = _Sample([[run.latency] for run in runs], percents)
    found = []
    for i, percent in enumerate(sample.percents):
        without = np.log(sample.without[:, i]) if sample.tells(percent) else []
        contrast = jackknife(math.log(sample.whole[i]), without, sample.bin_error)
        found.append(Quantile(percent, _in_us(Estimate.ratio(contrast, confidence))))
    return found


def shift(arm: str, condition: str, runs: Sequence[Run], base: Sequence[Run], confidence: float = 0.95) -> Shift:
    """`runs` against `base`, pairing blocks that both ran in."""
    shared = sorted({run.trial.block for run in runs} & {run.trial.block for run in base})
    if len(shared) < 2:
        return unpaired_shift(arm, condition, runs, base, confidence)
    sides = [
        _Sample([[run.latency for run in side if run.trial.block == block] for block in shared], SHIFT_PERCENT)
        for side in (runs, base)
    ]

    def contrast(a: float, b: float, without_a: np.ndarray, without_b: np.ndarray, grain: float) -> Contrast:
        return jackknife(a - b, without_a - without_b, grain)

    return _shift(arm, condition, sides, contrast, confidence)


def unpaired_shift(
    arm: str, condition: str, runs: Sequence[Run], base: Sequence[Run], confidence: float = 0.95
) -> Shift:
    """`runs` against `base`, measured apart."""
    sides = [_Sample([[run.latency] for run in side], SHIFT_PERCENT) for side in (runs, base)]

    def contrast(a: float, b: float, without_a: np.ndarray, without_b: np.ndarray, grain: float) -> Contrast:
        return _rounded(combined([(1.0, jackknife(a, without_a)), (-1.0, jackknife(b, without_b))]), grain)

    return _shift(arm, condition, sides, contrast, confidence)


class _Sample:
    """Quantiles of all groups of histograms merged, and without each group. Groups are independent: a run, or a block's
    runs."""

    def __init__(self, groups: Sequence[Sequence[LatencyBins]], percents: Sequence[float]) -> None:
        histograms = [each for group in groups for each in group]
        values = np.unique(np.concatenate([each.values_ns for each in histograms])) if histograms else np.empty(0)
        cumulative = np.zeros((len(groups), len(values)))
        for row, group in enumerate(groups):
            for each in group:
                cumulative[row] += np.bincount(np.searchsorted(values, each.values_ns), each.counts, len(values))
        cumulative = np.cumsum(cumulative, axis=1)
        everything = cumulative.sum(axis=0)
        rest = [everything - row for row in cumulative] if len(groups) > 1 else []
        fewest = min((row[-1] for row in [everything, *rest] if len(row)), default=0)
        self.percents = [percent for percent in percents if fewest >= smallest_count(percent)]
        self._counts = [int(row[-1]) for row in cumulative if len(row)]
        self.bin_error = max((each.bin_error for each in histograms), default=0.0)
        self.whole = self._read(values, everything)
        self.without = np.array([self._read(values, row) for row in rest]).reshape(len(rest), len(self.percents))

    def tells(self, percent: float) -> bool:
        """Whether each group has so many I/Os that the groups tell how well the quantile is known."""
        return tells_tail(percent, self._counts)

    def _read(self, values: np.ndarray, cumulative: np.ndarray) -> np.ndarray:
        wanted = [math.ceil(percent / 100 * cumulative[-1] - 1e-9) for percent in self.percents]
        return np.maximum(values[np.searchsorted(cumulative, wanted)], 1.0) if wanted else np.empty(0)


def _rounded(contrast: Contrast, grain: float) -> Contrast:
    """The variance including that of rounding."""
    if contrast.standard_error is None:
        return contrast
    return replace(contrast, standard_error=math.sqrt(contrast.standard_error**2 + grain**2 / 12))


def _shift(arm: str, condition: str, sides: Sequence[_Sample], contrast: _Contrasting, confidence: float) -> Shift:
    a, b = sides
    points, tests = [], []
    for percent in (p for p in a.percents if p in b.percents and a.tells(p) and b.tells(p)):
        i, j = a.percents.index(percent), b.percents.index(percent)
        raw = float(a.whole[i]), float(b.whole[j]), a.without[:, i], b.without[:, j]
        logs = math.log(raw[0]), math.log(raw[1]), np.log(raw[2]), np.log(raw[3])
        grain = math.sqrt(a.bin_error**2 + b.bin_error**2)
        ratio = contrast(*logs, grain)
        difference = contrast(*raw, math.hypot(a.bin_error * raw[0], b.bin_error * raw[1]))
        own = _in_us(Estimate.plain(difference, confidence))
        points.append((percent, raw[1] / 1e3, own, Estimate.ratio(ratio, confidence)))
        if ratio.standard_error is not None:
            tests.append(two_sided_p(ratio.estimate, ratio.standard_error, ratio.df or 1.0))
    adjusted: list[float | None] = (
        [*at_five(holm(tests), confidence)] if len(tests) == len(points) else [None] * len(points)
    )
    return Shift(arm, condition, [ShiftPoint(*point, p) for point, p in zip(points, adjusted, strict=True)])


def _in_us(of_ns: Estimate) -> Estimate:
    ends = (end / 1e3 if end is not None else None for end in (of_ns.low, of_ns.high))
    return Estimate(of_ns.value / 1e3, *ends)
