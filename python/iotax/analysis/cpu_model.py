"""What an I/O costs in CPU time: busy processors as a linear function of the rate of I/O.

    busy = background + rate × (cost of the protocol + its factors' effects) × (1 + block)

All effects are interactions with the rate, since what a block size or a mix changes is the cost per I/O. The background
is fitted as a treatment, from runs or measurements without load, not subtracted from every run by one shared estimate.
It is kept whether or not it is significantly different from zero: an idle machine is busy with something, and a model
that drops what its data cannot see has intervals that are too narrow. Scatter grows with the load, so each run weighs
by the square of one over its expectation (that of the lightest load at most). Standard errors are
heteroscedasticity-consistent on top of it: HC2 with Bell and McCaffrey's degrees of freedom, since where 15 terms rest
on 64 runs HC3 covers 97.5 % for a nominal 95 % and this 93 to 97 % (tests/python/analysis/test_cpu_model.py).

Blocks drift, which changes the cost of every I/O of a block by the same share. Ratios of costs do not drift: they are
judged by the runs within blocks. A cost in µs does, so for it the blocks are the sample, left out one at a time, with
Student's t of one less than the blocks. Few blocks make it wide, as they must: what two say of how far blocks drift is
next to nothing. A variance of blocks added to that of runs is narrower, and covered 86 % over two blocks of 2 % drift.

Where each replicate of a simulation drew its costs, runs of one replicate err alike: they share a protocol's draw. Then
replicates are the blocks, and all is judged by them: a ratio by its logarithm with one of them left out at a time, what
is to be zero by Hotelling's T². Lack of fit, which takes runs for independent, is not judged.

Factors are coded to add up to zero: a protocol's cost is its mean over the levels that the design crosses it with.
"""

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from iotax.analysis import student
from iotax.analysis.estimate import Contrast, Estimate, jackknife
from iotax.analysis.model import sum_coded
from iotax.analysis.multiplicity import at_five
from iotax.analysis.regression import Fit, FTest, compare_nested, fit, wald
from iotax.analysis.student import fieller

ALPHA = 0.05
_BEND_MIN = 1.001
_REWEIGHTINGS = 2
_INTERCEPT = 0
_ALL = slice(None)


@dataclass(frozen=True)
class LoadPoint:
    """One measurement under load, or without any (`rate_iops` 0, `arm` empty)."""

    arm: str
    levels: Mapping[str, str]
    """Level of each factor that may change the cost per I/O."""
    rate_iops: float
    busy_cores: float
    step: Hashable = None
    """The level of the load: the requested rate."""
    block: int = 1
    order: int = 0
    """Place in the run order."""


@dataclass(frozen=True)
class CostEffect:
    """The cost of an I/O at one level of a factor compared with the factor's first."""

    arm: str
    factor: str
    low: str
    high: str
    change_us: float
    ratio: Estimate
    """Price at `high` over that at `low`, with Fieller's interval."""
    p: float


@dataclass(frozen=True)
class Term:
    """A term of the equation of one protocol's cost per I/O."""

    arm: str
    at: tuple[tuple[str, str], ...]
    """The (factor, level) pairs of the term: +1 at that level; −1 at the factor's other level, or at its last if it has
    several others, and 0 between. A term with two pairs is their product. Empty for the cost itself."""
    us: float
    t: float
    """The term over its standard error."""


@dataclass(frozen=True)
class Curvature:
    """The cost per I/O over the rate: a line has one price, a curve has several."""

    arm: str
    lightest_iops: float
    lightest_us: float
    heaviest_iops: float
    heaviest_us: float

    @property
    def ratio(self) -> float:
        """Ratio of the cost at the heaviest load to that at the lightest; infinite if the lightest cost is
        indistinguishable from zero."""
        return self.heaviest_us / self.lightest_us if self.lightest_us > 0 < self.heaviest_us else math.inf


@dataclass(frozen=True)
class CostResidual:
    """A run's residual as a share of the model's value."""

    load: LoadPoint
    fitted_cores: float
    share: float
    normal: float
    """Its expected position among that many draws from a normal distribution."""


class CpuModel:
    """The fitted model. Raises ValueError if the measurements cannot carry one."""

    def __init__(
        self,
        loads: Sequence[LoadPoint],
        arms: Sequence[str] = (),
        levels: Mapping[str, Sequence[str]] | None = None,
        *,
        drawn: bool = False,
        confidence: float = 0.95,
    ) -> None:
        """`arms` and `levels` give an order; without them it is that of the loads. `drawn`: the blocks are replicates,
        each of which drew its costs. `confidence`: of the intervals, above 0.95 where a rule that looks at widths ended
        the study."""
        self.drawn = drawn
        self.confidence = confidence
        idle = [load for load in loads if load.rate_iops <= 0]
        self.loads = [load for load in loads if load.rate_iops > 0]
        # One measurement without load would have all leverage over the background.
        self.loads += idle if len(idle) > 1 else []
        self.idle = len(idle) if len(idle) > 1 else 0
        busy = self._busy
        if not busy:
            raise ValueError("no measurement under load")
        self.arms = [arm for arm in dict.fromkeys([*arms, *(load.arm for load in busy)]) if _has(busy, arm)]
        self.factors: dict[str, list[str]] = {}
        for name in busy[0].levels:
            found = {load.levels[name] for load in busy}
            order = [*(levels or {}).get(name, ()), *(load.levels[name] for load in busy)]
            self.factors[name] = [level for level in dict.fromkeys(order) if level in found]
        self._rate = np.array([load.rate_iops for load in self.loads]) * 1e-6
        self._y = np.array([load.busy_cores for load in self.loads])
        self._terms, self._columns = self._affordable()
        first = fit(self._columns, self._y)
        self._blocks = np.array([load.block for load in self.loads])
        self.blocks = sorted({load.block for load in busy})
        self._scale = self._expectation(self._y - first.residuals)
        self._background = 0.0
        for _ in range(_REWEIGHTINGS):
            fitted = self._fit()
            self._scale = self._expectation(self._y - fitted.residuals * self._scale)
            self._background = max(0.0, float(fitted.coefficients[_INTERCEPT]))
        self.fitted = self._fit()

    @property
    def _busy(self) -> list[LoadPoint]:
        return [load for load in self.loads if load.rate_iops > 0]

    @property
    def background_cores(self) -> Estimate:
        value, error, df = self.fitted.contrast(self._vector({_INTERCEPT: 1.0}))
        if self.drawn:
            return Estimate.plain(jackknife(value, [one[_INTERCEPT] for one in self._without_block]), self.confidence)
        return Estimate.plain(Contrast(value, error, df), self.confidence)

    @property
    def background_p(self) -> float | None:
        """The p-value of "nothing is busy without load"; None without degrees of freedom."""
        test = self._zero(self.fitted, [_INTERCEPT])
        return test.p if test else None

    def cost_us(self, arm: str) -> Estimate:
        """CPU time per I/O, the mean over the factors' levels."""
        return self._price(self._at(arm, {}))

    def cost_at_us(self, arm: str, levels: Mapping[str, str]) -> Estimate:
        """CPU time per I/O where these factors have these levels, the mean over the others."""
        return self._price(self._at(arm, levels))

    def ratio(self, arm: str, base: str) -> Estimate:
        """Ratio of costs with Fieller's interval; no interval if it is unbounded."""
        return self._ratio(self._at(arm, {}), self._at(base, {}))

    def _ratio(self, over: Mapping[int, float], under: Mapping[int, float]) -> Estimate:
        high, low = self._vector(over), self._vector(under)
        c, v = self.fitted.coefficients, self.fitted.hc2_covariance
        top, bottom = float(high @ c), float(low @ c)
        if self.drawn:
            return self._ratio_by_blocks(high, low)
        variances = float(high @ v @ high), float(low @ v @ low)
        _, _, df = self.fitted.contrast(high - top / bottom * low)
        bounds = fieller(top, bottom, variances, float(high @ v @ low), df, self.confidence)
        return Estimate(top / bottom, *(bounds or ()))

    def _ratio_by_blocks(self, high: np.ndarray, low: np.ndarray) -> Estimate:
        whole = self.fitted.coefficients
        sets = [whole, *(np.append(one, whole[len(one) :]) for one in self._without_block)]
        ratios = np.array([high @ one / (low @ one) for one in sets])
        if np.any(ratios <= 0):
            return Estimate(float(ratios[0]))
        return Estimate.ratio(jackknife(float(np.log(ratios[0])), np.log(ratios[1:])), self.confidence)

    @property
    def idle_cores(self) -> float | None:
        """CPU time measured without load; None if it was not measured."""
        idle = [load.busy_cores for load in self.loads if load.rate_iops <= 0]
        return float(np.mean(idle)) if idle else None

    @cached_property
    def effects(self) -> list[CostEffect]:
        """Each factor's first level against each other, by protocol."""
        found = []
        for factor, levels in self.factors.items():
            if not any(term == (factor,) for term in self._terms):
                continue
            for high, arm in itertools.product(levels[1:], self.arms):
                over, under = (self._at(arm, {factor: level}) for level in (high, levels[0]))
                change = self._vector(over) - self._vector(under)
                us = float(change @ self.fitted.coefficients)
                found.append(CostEffect(arm, factor, levels[0], high, us, self._ratio(over, under), self._p(change)))
        return found

    def equation(self, arm: str) -> list[Term]:
        """Busy processors = background + rate × the sum of these; the cost itself first."""
        found = []
        for column, (own, term) in enumerate(self._names):
            if not column or own != arm:
                continue
            sign, at = 1.0, []
            for name, level in zip(term, self._coded_at(column), strict=True):
                levels = self.factors[name]
                # The second of two levels is named, since an effect is the change to it.
                sign *= -1.0 if len(levels) == 2 else 1.0
                at.append((name, levels[1] if len(levels) == 2 else level))
            value, error, _ = self.fitted.contrast(sign * self._vector({column: 1.0}))
            found.append(Term(arm, tuple(at), value, value / error if error > 0 else math.inf))
        return found

    def apart(self, arm: str, base: str) -> float:
        """How far the costs of two protocols lie from each other, over the standard error of their difference."""
        value, error, _ = self.fitted.contrast(self._vector(self._at(arm, {})) - self._vector(self._at(base, {})))
        return value / error if error > 0 else math.inf

    def _coded_at(self, column: int) -> tuple[str, ...]:
        """For a column's term, the level of each factor that it is coded +1 at."""
        arm, term = self._names[column]
        first = self._names.index((arm, term))
        levels = [self.factors[name][:-1] for name in term]
        return list(itertools.product(*levels))[column - first]

    @cached_property
    def interactions(self) -> dict[tuple[str, ...], FTest]:
        """For each pair of factors: does one's effect on the price depend on the other's level, in any protocol?"""
        found = {}
        for term in (t for t in self._terms if len(t) == 2):
            test = self._zero(self.fitted, [i for i, each in enumerate(self._names) if each[1] == term])
            if test is not None:
                found[term] = test
        return found

    @cached_property
    def lack_of_fit(self) -> FTest | None:
        """Does a price of its own for every treatment and rate explain more than this model does? None if runs are
        not independent."""
        if self.drawn:
            return None
        keys = [(load.arm, tuple(load.levels.values()), load.step) for load in self.loads]
        names = list(dict.fromkeys(key for key, load in zip(keys, self.loads, strict=True) if load.rate_iops > 0))
        own = np.array([[1.0 if key == name else 0.0 for name in names] for key in keys]) * self._rate[:, None]
        columns = np.hstack((self._ones, own, self._block_columns())) / self._scale[:, None]
        larger = fit(columns, self._y / self._scale)
        df = len(self._y) - int(np.linalg.matrix_rank(columns))
        return compare_nested((self.fitted.sse, self.fitted.residual_df), (larger.sse, df))

    @cached_property
    def linearity(self) -> FTest | None:
        """Does the cost per I/O change with the rate? None if too few rates were measured to see it."""
        if self._curved is None:
            return None
        return self._zero(self._curved, self._bends, extra=self._bend_columns)

    @property
    def bends(self) -> bool:
        """Whether the cost per I/O depends on the rate: significantly, and by more than a thousandth. Where runs hardly
        scatter, as simulated ones, anything is significant."""
        if self.linearity is None or self.linearity.p >= ALPHA:
            return False
        return any(max(each.ratio, 1 / each.ratio) > _BEND_MIN for each in self.curvatures)

    @cached_property
    def curvatures(self) -> list[Curvature]:
        """The cost of an I/O at the lightest and heaviest rate of each protocol, if `linearity` can be judged: busy
        time minus background, over I/Os. It uses no model, since it is shown if the line does not hold."""
        if self._curved is None:
            return []
        without = self.idle_cores
        if without is None:
            without = self.background_cores.value
        found = []
        for arm in self.arms:
            steps: dict[Hashable, list[LoadPoint]] = {}
            for load in self._busy:
                if load.arm == arm:
                    steps.setdefault(load.step, []).append(load)
            means = sorted(
                (
                    float(np.mean([load.rate_iops for load in loads])),
                    float(np.mean([1e6 * (load.busy_cores - without) / load.rate_iops for load in loads])),
                )
                for loads in steps.values()
            )
            found.append(Curvature(arm, *means[0], *means[-1]))
        return found

    @cached_property
    def residuals(self) -> list[CostResidual]:
        spread = self.fitted.residual_sd or 1.0
        shares = self.fitted.residuals
        ranks = np.argsort(np.argsort(shares / (spread * np.sqrt(np.clip(1 - self.fitted.leverage, 1e-9, 1)))))
        normal = ndtri((ranks + 0.625) / (len(shares) + 0.25))
        fitted = self._y - shares * self._scale
        return [
            CostResidual(load, float(f), float(s), float(n))
            for load, f, s, n in zip(self.loads, fitted, shares, normal, strict=True)
        ]

    @property
    def residual_share(self) -> float:
        """Standard deviation of the residuals, as a share of the expectation."""
        return self.fitted.residual_sd

    @property
    def prediction_share(self) -> float:
        """Root mean square distance of a run from what all others predict (PRESS)."""
        return float(np.sqrt(self.fitted.press / len(self.loads)))

    def line_cores(self, arm: str, rate_iops: float) -> float:
        """The model's value at a rate, at the mean over the factors' levels."""
        return self.background_cores.value + rate_iops * 1e-6 * self.cost_us(arm).value

    @property
    def _ones(self) -> np.ndarray:
        return np.ones((len(self.loads), 1))

    def _block_columns(self, kept: slice | np.ndarray = _ALL) -> np.ndarray:
        """The model's columns for these measurements. A block changes the cost of every I/O by the same share but not
        the background. Block effects add up to zero, so that a cost is its mean over the blocks."""
        busy = self._rate[kept] > 0
        coded = sum_coded(self._blocks[kept][busy].tolist())
        columns = np.zeros((len(busy), coded.shape[1]))
        columns[busy] = coded * np.maximum(self._scale[kept][busy] - self._background, 0.0)[:, None]
        return columns

    @cached_property
    def _names(self) -> list[tuple[str, tuple[str, ...]]]:
        """(arm, term) of each column; the first stands for the intercept."""
        names: list[tuple[str, tuple[str, ...]]] = [("", ())]
        for arm, term in itertools.product(self.arms, self._terms):
            names += [(arm, term)] * self._width(term)
        return names

    def _width(self, term: tuple[str, ...]) -> int:
        return math.prod(len(self.factors[name]) - 1 for name in term)

    def _affordable(self) -> tuple[list[tuple[str, ...]], np.ndarray]:
        """The price itself, each factor, each pair, as far as the treatments that were run tell them apart; and the
        columns that makes."""
        mean: list[tuple[str, ...]] = [()]
        single: list[tuple[str, ...]] = [(name,) for name, levels in self.factors.items() if len(levels) > 1]
        pairs = list(itertools.combinations((name for (name,) in single), 2))
        for terms in ([*mean, *single, *pairs], [*mean, *single], mean):
            columns = self._make_columns(terms)
            if np.linalg.matrix_rank(columns) == columns.shape[1] and len(self._y) > columns.shape[1]:
                return terms, columns
        raise ValueError("too few measurements for a cost of each protocol and the background")

    def _make_columns(self, terms: Sequence[tuple[str, ...]]) -> np.ndarray:
        """The intercept, then each arm's terms times the rate."""
        width = sum(map(self._width, terms))
        columns = np.zeros((len(self.loads), 1 + len(self.arms) * width))
        columns[:, _INTERCEPT] = 1.0
        coded: dict[tuple[str, ...], list[float]] = {}
        for row, load, rate in zip(columns, self.loads, self._rate, strict=True):
            if rate > 0:
                key = tuple(load.levels.values())
                if key not in coded:
                    coded[key] = [code for term in terms for code in self._code(term, load.levels)]
                first = 1 + self.arms.index(load.arm) * width
                row[first : first + width] = rate * np.array(coded[key])
        return columns

    def _code(self, term: tuple[str, ...], levels: Mapping[str, str]) -> list[float]:
        """Sum-coded columns of a term; zero where a factor's level is not given: the mean over its levels."""
        parts = []
        for name in term:
            known = self.factors[name]
            if name not in levels:
                return [0.0] * self._width(term)
            at = levels[name]
            parts.append([-1.0] * (len(known) - 1) if at == known[-1] else [float(at == each) for each in known[:-1]])
        return [math.prod(combination) for combination in itertools.product(*parts)]

    def _at(self, arm: str, levels: Mapping[str, str]) -> dict[int, float]:
        """Column → weight of the cost per I/O."""
        weights: dict[int, float] = {}
        column = 1
        for each, term in itertools.product(self.arms, self._terms):
            for coded in self._code(term, levels):
                if each == arm and coded:
                    weights[column] = coded
                column += 1
        return weights

    def _vector(self, weights: Mapping[int, float]) -> np.ndarray:
        vector = np.zeros(len(self.fitted.coefficients))
        for column, weight in weights.items():
            vector[column] = weight
        return vector

    def _price(self, weights: Mapping[int, float]) -> Estimate:
        """A price in µs, by the blocks; by the runs where all of them are one block."""
        vector = self._vector(weights)
        value, error, df = self.fitted.contrast(vector)
        if len(self.blocks) < 2:
            return Estimate.plain(Contrast(value, error, df), self.confidence)
        weighed = vector[: len(self._names)]
        without = np.array([weighed @ prices for prices in self._without_block])
        # Drift multiplies, and no I/O costs less than nothing: by logarithms, as long as there are any.
        if value > 0 and np.all(without > 0):
            return Estimate.ratio(jackknife(math.log(value), np.log(without)), self.confidence)
        return Estimate.plain(jackknife(value, without), self.confidence)

    @cached_property
    def _without_block(self) -> list[np.ndarray]:
        return self._leaving_out()

    def _leaving_out(self, extra: np.ndarray | None = None) -> list[np.ndarray]:
        """The coefficients, but for those of blocks, without each block in turn; empty if one of the blocks alone
        carries the model."""
        columns = self._columns if extra is None else np.hstack((self._columns, extra))
        found = []
        for block in self.blocks:
            kept = self._blocks != block
            rows = np.hstack((columns[kept], self._block_columns(kept))) / self._scale[kept, None]
            solved, _, rank, _ = np.linalg.lstsq(rows, self._y[kept] / self._scale[kept], rcond=None)
            if rank < rows.shape[1]:
                return []
            found.append(solved[: columns.shape[1]])
        return found

    def _zero(self, fitted: Fit, which: Sequence[int], extra: np.ndarray | None = None) -> FTest | None:
        """Are these coefficients all zero?"""
        if not self.drawn:
            return wald(fitted, which)
        without = np.array(self._leaving_out(extra))
        count, several = len(without), len(which)
        if not several or count <= several:
            return None
        off = without[:, which] - without[:, which].mean(axis=0)
        covariance = (count - 1) / count * off.T @ off
        if np.linalg.matrix_rank(covariance) < several:
            return None
        beta = fitted.coefficients[which]
        t2 = float(beta @ np.linalg.solve(covariance, beta))
        return FTest((count - several) / (several * (count - 1)) * t2, several, count - several)

    def _p(self, weights: np.ndarray) -> float:
        if self.drawn:
            estimate = float(weights @ self.fitted.coefficients)
            without = [float(weights[: len(one)] @ one) for one in self._without_block]
            found = jackknife(estimate, without)
            if found.standard_error is None or found.df is None:
                return math.nan
            error, df = found.standard_error, found.df
        else:
            estimate, error, df = self.fitted.contrast(weights)
        return at_five([2 * student.beyond(abs(estimate) / error, df)], self.confidence)[0] if error > 0 else 0.0

    def _expectation(self, fitted: np.ndarray) -> np.ndarray:
        """Weights of the runs: none weighs more than a run at the lightest load."""
        busy = self._rate > 0
        floor = max(float(np.min(np.abs(fitted[busy]))), 1e-9)
        return np.maximum(np.abs(fitted), floor)

    def _fit(self, extra: np.ndarray | None = None) -> Fit:
        columns = self._columns if extra is None else np.hstack((self._columns, extra))
        blocks = self._block_columns()
        if len(self._y) > columns.shape[1] + blocks.shape[1] + 1:
            columns = np.hstack((columns, blocks))
        return fit(columns / self._scale[:, None], self._y / self._scale)

    @cached_property
    def _bend_columns(self) -> np.ndarray:
        return np.array(
            [
                [rate**2 if load.arm == arm else 0.0 for arm in self.arms]
                for load, rate in zip(self.loads, self._rate, strict=True)
            ]
        )

    @cached_property
    def _curved(self) -> Fit | None:
        bend = self._bend_columns
        columns = np.hstack((self._columns, bend))
        scaled = columns / np.linalg.norm(columns, axis=0)
        # Rates of a closed loop scatter a little, which is not a second rate: hence a wide tolerance.
        if np.linalg.matrix_rank(scaled, tol=1e-3) < columns.shape[1] or len(self._y) <= columns.shape[1] + 1:
            return None
        return self._fit(bend)

    @property
    def _bends(self) -> list[int]:
        first = len(self._names)
        return list(range(first, first + len(self.arms)))


def _has(loads: Sequence[LoadPoint], arm: str) -> bool:
    return any(load.arm == arm for load in loads)
