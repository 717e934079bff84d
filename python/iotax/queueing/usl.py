"""The universal scalability law through measured throughputs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as student


@dataclass(frozen=True)
class Parameter:
    """An estimate; without error and interval where it sits on its bound or no degree of freedom is left."""

    value: float
    standard_error: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class UslFit:
    """X(N) = γN / (1 + α(N-1) + βN(N-1)), with α (contention) and β (coherency) not negative."""

    alpha: Parameter
    beta: Parameter
    gamma: Parameter
    residual_df: int

    @property
    def descriptive_only(self) -> bool:
        """Four points leave one degree of freedom: a curve through data, no inference."""
        return self.residual_df < 2

    @property
    def peak_n(self) -> float:
        """The N of the highest throughput; infinite where nothing makes it fall."""
        if self.beta.value <= 0:
            return math.inf
        return math.sqrt(max(0.0, 1 - self.alpha.value) / self.beta.value)

    def throughput(self, n: float) -> float:
        return float(_usl(np.array([self.alpha.value, self.beta.value, self.gamma.value]), np.array([n]))[0])


def fit_usl(n: Sequence[float], throughput: Sequence[float], confidence: float = 0.95) -> UslFit:
    """Least squares with α, β ≥ 0. Intervals by the linearised model, t on n - 3."""
    x, y = np.asarray(n, dtype=float), np.asarray(throughput, dtype=float)
    if len(x) != len(y) or len(x) < 3:
        raise ValueError(
            "the scalability law has three parameters: give at least three points, each with its throughput"
        )
    if np.any(x <= 0) or np.any(y <= 0):
        raise ValueError("loads and throughputs must be above 0")
    gamma0 = float(np.max(y / x))
    scale = np.array([1e-2, 1e-4, gamma0])
    fit = least_squares(
        lambda p: _usl(p, x) - y,
        x0=np.array([1e-2, 1e-4, gamma0]),
        bounds=([0, 0, 0], [np.inf, np.inf, np.inf]),
        x_scale=scale,
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    free = np.array([fit.x[0] > 1e-9, fit.x[1] > 1e-12, True])
    values = np.where(free, fit.x, 0.0)
    df = len(x) - 3
    errors = np.full(3, np.nan)
    if df > 0:
        jacobian = fit.jac[:, free]
        covariance = np.linalg.pinv(jacobian.T @ jacobian) * float(2 * fit.cost) / df
        errors[free] = np.sqrt(np.diag(covariance))
    reach = float(student.ppf(0.5 + confidence / 2, df)) if df > 0 else math.nan
    alpha, beta, gamma = (_parameter(float(v), float(e), reach) for v, e in zip(values, errors, strict=True))
    return UslFit(alpha, beta, gamma, df)


def _usl(p: np.ndarray, n: np.ndarray) -> np.ndarray:
    alpha, beta, gamma = p
    return gamma * n / (1 + alpha * (n - 1) + beta * n * (n - 1))


def _parameter(value: float, error: float, reach: float) -> Parameter:
    if math.isnan(error):
        return Parameter(value, None, None, None)
    return Parameter(value, error, max(0.0, value - reach * error), value + reach * error)
