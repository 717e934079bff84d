"""What an I/O costs in CPU time: busy processors as a linear function of the rate of I/O.

    busy = background + rate × (cost of the protocol + its factors' effects) × (1 + block)

All effects are interactions with the rate, since what a block size or a mix changes is the price of an I/O. The
background is fitted as a treatment, from runs or measurements without load, not subtracted from every run by one shared
estimate. A line through the origin is used only where the background is not told from zero. Scatter grows with the
load, so each run weighs by the square of one over its expectation (that of the lightest load at most). Standard errors
are heteroscedasticity-consistent on top of it: HC2 with Bell and McCaffrey's degrees of freedom, since where 15 terms
rest on 64 runs HC3 covers 97.5 % for a nominal 95 % and this 93 to 97 % (tests/python/analysis/test_cpu_model.py).
A price in µs also carries what blocks drift: left out, 2 % of drift over two blocks made 95 % of confidence 57 %.

Factors are coded to add up to zero: a protocol's cost is its mean over the levels that the design crosses it with.
"""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import norm

from iotax.analysis import student
from iotax.analysis.compare import Estimate
from iotax.analysis.fieller import fieller
from iotax.analysis.regression import Fit, FTest, compare_nested, fit, wald

ALPHA = 0.05
_REWEIGHTINGS = 2
_INTERCEPT = 0


@dataclass(frozen=True)
class Load:
    """One measurement under load, or without any (`rate_iops` 0, `arm` empty)."""

    arm: str
    levels: Mapping[str, str]
    """Level of each factor that may change the price of an I/O."""
    rate_iops: float
    busy_cores: float
    step: Hashable = None
    """The level of the load: which rate was asked for."""
    block: int = 1
    order: int = 0
    """Place in the run order."""


@dataclass(frozen=True)
class Effect:
    """How much more an I/O costs at one level of a factor than at another."""

    arm: str
    factor: str
    low: str
    high: str
    change_us: Estimate
    p: float


@dataclass(frozen=True)
class Curvature:
    """The price of an I/O over the rate: a line has one price, a curve has several."""

    arm: str
    lightest_iops: float
    lightest_us: float
    heaviest_iops: float
    heaviest_us: float


@dataclass(frozen=True)
class Residual:
    """How one run misses the line, as a share of what the line says."""

    load: Load
    fitted_cores: float
    share: float
    normal: float
    """Where it would stand among as many draws of a normal distribution."""


class CpuModel:
    """The fitted model. Raises ValueError where the measurements cannot carry one."""

    def __init__(
        self, loads: Sequence[Load], arms: Sequence[str] = (), levels: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """`arms` and `levels` give an order; without them it is that of the loads."""
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
        self._terms = self._affordable_terms()
        first = fit(self._columns(self._terms), self._y)
        self._block = _sum_coded([load.block for load in self.loads])
        self._scale = self._expectation(self._y - first.residuals)
        self._background = 0.0
        for _ in range(_REWEIGHTINGS):
            with_intercept = self._fit(intercept=True)
            self._scale = self._expectation(self._y - with_intercept.residuals * self._scale)
            self._background = max(0.0, float(with_intercept.coefficients[_INTERCEPT]))
        self.with_intercept = self._fit(intercept=True)
        self.through_origin = self._fit(intercept=False)
        self.has_background = self.background_p is None or self.background_p < ALPHA

    @property
    def _busy(self) -> list[Load]:
        return [load for load in self.loads if load.rate_iops > 0]

    @property
    def chosen(self) -> Fit:
        """With the background where it is told from zero, else through the origin."""
        return self.with_intercept if self.has_background else self.through_origin

    @property
    def background_cores(self) -> Estimate:
        return self._estimate(self.with_intercept, {_INTERCEPT: 1.0}, drifts=False)

    @property
    def background_p(self) -> float | None:
        """Of "the line passes through the origin"; None where nothing is left to judge by."""
        test = wald(self.with_intercept, [_INTERCEPT])
        return test.p if test else None

    def cost_us(self, arm: str) -> Estimate:
        """CPU time an I/O, the mean over the factors' levels."""
        return self._estimate(self.chosen, self._at(arm, {}))

    def cost_at_us(self, arm: str, levels: Mapping[str, str]) -> Estimate:
        """CPU time an I/O where these factors have these levels, the mean over the others."""
        return self._estimate(self.chosen, self._at(arm, levels))

    def ratio(self, arm: str, base: str) -> Estimate:
        """Cost over cost, with Fieller's interval; without one where it is unbounded."""
        high, low = (self._vector(self._at(each, {})) for each in (arm, base))
        c, v = self.chosen.coefficients, self.chosen.hc2_covariance
        top, bottom = float(high @ c), float(low @ c)
        variances = float(high @ v @ high), float(low @ v @ low)
        _, _, df = self.chosen.contrast(high - top / bottom * low)
        bounds = fieller(top, bottom, variances, float(high @ v @ low), df)
        return Estimate(top / bottom, *(bounds or ()))

    @property
    def idle_cores(self) -> float | None:
        """What was measured without load; None where nothing was."""
        idle = [load.busy_cores for load in self.loads if load.rate_iops <= 0]
        return float(np.mean(idle)) if idle else None

    @cached_property
    def effects(self) -> list[Effect]:
        """Each factor's first level against each other, by protocol."""
        found = []
        for factor, levels in self.factors.items():
            if not any(term == (factor,) for term in self._terms):
                continue
            for high, arm in itertools.product(levels[1:], self.arms):
                weights = self._at(arm, {factor: high})
                for column, weight in self._at(arm, {factor: levels[0]}).items():
                    weights[column] = weights.get(column, 0.0) - weight
                change = self._estimate(self.chosen, weights)
                found.append(Effect(arm, factor, levels[0], high, change, self._p(weights)))
        return found

    @cached_property
    def interactions(self) -> dict[tuple[str, ...], FTest]:
        """For each pair of factors: does one's effect on the price depend on the other's level, in any protocol?"""
        found = {}
        for term in (t for t in self._terms if len(t) == 2):
            test = wald(self.chosen, [i - self._shift for i, t in enumerate(self._names) if t[1] == term])
            if test is not None:
                found[term] = test
        return found

    @cached_property
    def lack_of_fit(self) -> FTest | None:
        """Does a price of its own for every treatment and rate explain more than this model does?"""
        keys = [(load.arm, tuple(load.levels.values()), load.step) for load in self.loads]
        names = list(dict.fromkeys(key for key, load in zip(keys, self.loads, strict=True) if load.rate_iops > 0))
        own = np.array([[1.0 if key == name else 0.0 for name in names] for key in keys]) * self._rate[:, None]
        columns = np.hstack((self._ones, own, self._block_columns)) / self._scale[:, None]
        larger = fit(columns, self._y / self._scale)
        df = len(self._y) - int(np.linalg.matrix_rank(columns))
        small = self.with_intercept
        return compare_nested((small.sse, small.residual_df), (larger.sse, df))

    @cached_property
    def linearity(self) -> FTest | None:
        """Does the price of an I/O change with the rate? None where too few rates were measured to see it."""
        return wald(self._curved, self._bends) if self._curved is not None else None

    @cached_property
    def curvatures(self) -> list[Curvature]:
        """The price at the lightest and the heaviest rate of each protocol, where `linearity` can be judged."""
        if self._curved is None:
            return []
        found = []
        for arm, bend in zip(self.arms, self._bends, strict=True):
            price = sum(weight * self._curved.coefficients[i] for i, weight in self._at(arm, {}).items())
            low, high = self._ends(arm)
            at = [float(price + self._curved.coefficients[bend] * rate * 1e-6) for rate in (low, high)]
            found.append(Curvature(arm, low, at[0], high, at[1]))
        return found

    def _ends(self, arm: str) -> tuple[float, float]:
        """Mean rates of the lightest and the heaviest step."""
        steps: dict[Hashable, list[float]] = {}
        for load in self._busy:
            if load.arm == arm:
                steps.setdefault(load.step, []).append(load.rate_iops)
        means = [float(np.mean(rates)) for rates in steps.values()]
        return min(means), max(means)

    @cached_property
    def residuals(self) -> list[Residual]:
        chosen = self.chosen
        spread = chosen.residual_sd or 1.0
        shares = chosen.residuals
        ranks = np.argsort(np.argsort(shares / (spread * np.sqrt(np.clip(1 - chosen.leverage, 1e-9, 1)))))
        normal = norm.ppf((ranks + 0.625) / (len(shares) + 0.25))
        fitted = self._y - shares * self._scale
        return [
            Residual(load, float(f), float(s), float(n))
            for load, f, s, n in zip(self.loads, fitted, shares, normal, strict=True)
        ]

    @property
    def residual_share(self) -> float:
        """Standard deviation of the residuals, as a share of the expectation."""
        return self.chosen.residual_sd

    @property
    def prediction_share(self) -> float:
        """How far a run lies from what all others predict of it (root mean square, PRESS)."""
        return float(np.sqrt(self.chosen.press / len(self.loads)))

    def line_cores(self, arm: str, rate_iops: float) -> float:
        """What the model says of a rate, at the mean over the factors' levels."""
        background = self.background_cores.value if self.has_background else 0.0
        return background + rate_iops * 1e-6 * self.cost_us(arm).value

    @property
    def _shift(self) -> int:
        """Columns are numbered with the intercept; a fit through the origin lacks it."""
        return 0 if self.has_background else 1

    @property
    def _ones(self) -> np.ndarray:
        return np.ones((len(self.loads), 1))

    @property
    def _block_columns(self) -> np.ndarray:
        """A block makes every I/O dearer or cheaper by a share; the background is not an I/O's."""
        return self._block * np.where(self._rate > 0, np.maximum(self._scale - self._background, 0.0), 0.0)[:, None]

    @cached_property
    def _names(self) -> list[tuple[str, tuple[str, ...]]]:
        """(arm, term) of each column; the first stands for the intercept."""
        names: list[tuple[str, tuple[str, ...]]] = [("", ())]
        for arm, term in itertools.product(self.arms, self._terms):
            names += [(arm, term)] * self._width(term)
        return names

    def _width(self, term: tuple[str, ...]) -> int:
        return int(np.prod([len(self.factors[name]) - 1 for name in term], dtype=int))

    def _affordable_terms(self) -> list[tuple[str, ...]]:
        """The price itself, each factor, each pair: as far as the treatments that were run tell them apart."""
        mean: list[tuple[str, ...]] = [()]
        single: list[tuple[str, ...]] = [(name,) for name, levels in self.factors.items() if len(levels) > 1]
        pairs = list(itertools.combinations((name for (name,) in single), 2))
        for terms in ([*mean, *single, *pairs], [*mean, *single], mean):
            columns = self._columns(terms)
            if np.linalg.matrix_rank(columns) == columns.shape[1] and len(self._y) > columns.shape[1]:
                return terms
        raise ValueError("too few measurements for a cost of each protocol and the background")

    def _columns(self, terms: Sequence[tuple[str, ...]]) -> np.ndarray:
        rows = []
        for load, rate in zip(self.loads, self._rate, strict=True):
            row = [1.0]
            for arm, term in itertools.product(self.arms, terms):
                coded = self._code(term, load.levels) if load.arm == arm and rate > 0 else None
                row += [rate * c for c in coded] if coded is not None else [0.0] * self._width(term)
            rows.append(row)
        return np.array(rows)

    def _code(self, term: tuple[str, ...], levels: Mapping[str, str]) -> list[float]:
        """Sum-coded columns of a term; zero where a factor's level is not given: the mean over its levels."""
        parts = []
        for name in term:
            known = self.factors[name]
            if name not in levels:
                return [0.0] * self._width(term)
            at = levels[name]
            parts.append([-1.0] * (len(known) - 1) if at == known[-1] else [float(at == each) for each in known[:-1]])
        return [float(np.prod(combination)) for combination in itertools.product(*parts)]

    def _at(self, arm: str, levels: Mapping[str, str]) -> dict[int, float]:
        """Column → weight of the price of an I/O."""
        weights: dict[int, float] = {}
        column = 1
        for each, term in itertools.product(self.arms, self._terms):
            for coded in self._code(term, levels):
                if each == arm and coded:
                    weights[column] = coded
                column += 1
        return weights

    def _vector(self, weights: Mapping[int, float]) -> np.ndarray:
        vector = np.zeros(len(self.chosen.coefficients))
        for column, weight in weights.items():
            vector[column - self._shift] = weight
        return vector

    def _estimate(self, of: Fit, weights: Mapping[int, float], *, drifts: bool = True) -> Estimate:
        """A weighted sum of prices. A price in µs drifts with its block, which adds to the error what the blocks'
        levels scatter; the background and a ratio of prices do not."""
        vector = np.zeros(len(of.coefficients))
        shift = 0 if of is self.with_intercept else 1
        for column, weight in weights.items():
            vector[column - shift] = weight
        value, error, df = of.contrast(vector)
        share, blocks = self._drift(of) if drifts else (0.0, 1)
        drift = value**2 * share
        if drift > 0:
            within = error**2
            df = (within + drift) ** 2 / (within**2 / df + drift**2 / (blocks - 1))
            error = float(np.sqrt(within + drift))
        reach = student.reach(df) * error
        return Estimate(value, value - reach, value + reach)

    def _drift(self, of: Fit) -> tuple[float, int]:
        """(relative variance of the mean over blocks, how many there are), beyond what scatters within them."""
        columns = self._block.shape[1]
        prices = len(self._names) - (0 if of is self.with_intercept else 1)
        if columns == 0 or of.columns.shape[1] == prices:
            return 0.0, 1
        effects = of.coefficients[-columns:]
        levels = np.append(effects, -effects.sum())
        noise = of.residual_sd**2 * len(levels) / len(self._busy)
        return max(0.0, float(levels.var(ddof=1)) - noise) / len(levels), len(levels)

    def _p(self, weights: Mapping[int, float]) -> float:
        estimate, error, df = self.chosen.contrast(self._vector(weights))
        return 2 * student.beyond(abs(estimate) / error, df) if error > 0 else 0.0

    def _expectation(self, fitted: np.ndarray) -> np.ndarray:
        """What each run weighs by: nothing counts for more than a run at the lightest load."""
        busy = self._rate > 0
        floor = max(float(np.min(np.abs(fitted[busy]))), 1e-9)
        return np.maximum(np.abs(fitted), floor)

    def _fit(self, *, intercept: bool, extra: np.ndarray | None = None) -> Fit:
        columns = self._columns(self._terms)[:, 0 if intercept else 1 :]
        blocks = (
            self._block_columns if len(self._y) > columns.shape[1] + self._block.shape[1] + 1 else self._block[:, :0]
        )
        more = extra if extra is not None else self._block[:, :0]
        return fit(np.hstack((columns, more, blocks)) / self._scale[:, None], self._y / self._scale)

    @cached_property
    def _curved(self) -> Fit | None:
        bend = np.array(
            [
                [rate**2 if load.arm == arm else 0.0 for arm in self.arms]
                for load, rate in zip(self.loads, self._rate, strict=True)
            ]
        )
        columns = np.hstack((self._columns(self._terms), bend))
        scaled = columns / np.linalg.norm(columns, axis=0)
        # Rates of a closed loop scatter a little, which is no second rate: hence a wide tolerance.
        if np.linalg.matrix_rank(scaled, tol=1e-3) < columns.shape[1] or len(self._y) <= columns.shape[1] + 1:
            return None
        return self._fit(intercept=True, extra=bend)

    @property
    def _bends(self) -> list[int]:
        first = len(self._names)
        return list(range(first, first + len(self.arms)))


def _has(loads: Sequence[Load], arm: str) -> bool:
    return any(load.arm == arm for load in loads)


def _sum_coded(blocks: Sequence[int]) -> np.ndarray:
    names = sorted(set(blocks))
    columns = np.zeros((len(blocks), max(0, len(names) - 1)))
    for i, block in enumerate(blocks):
        columns[i] = -1.0 if block == names[-1] else [float(block == name) for name in names[:-1]]
    return columns
