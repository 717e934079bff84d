"""Least squares with the numbers that a critic asks for: robust errors, leverage, prediction error, lack of fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import fdtrc


@dataclass(frozen=True)
class Fit:
    columns: np.ndarray
    coefficients: np.ndarray
    hc2_covariance: np.ndarray
    """Variance of the coefficients (HC2: unbiased if the scatter is even after all; HC3 overstates it for
    many terms)."""
    residuals: np.ndarray
    leverage: np.ndarray
    residual_df: int
    sse: float

    @property
    def residual_sd(self) -> float:
        return float(np.sqrt(self.sse / self.residual_df))

    @property
    def press(self) -> float:
        """Sum of squared errors of each observation predicted from the others."""
        return float(np.sum((self.residuals / (1 - self.leverage)) ** 2))

    def contrast(self, weights: np.ndarray) -> tuple[float, float, float]:
        """(estimate, HC2 standard error, its degrees of freedom after Bell and McCaffrey) of a weighted sum."""
        estimate = float(weights @ self.coefficients)
        error = float(np.sqrt(max(0.0, weights @ self.hc2_covariance @ weights)))
        load = self._inverse.T @ weights
        share = load**2 / np.clip(1 - self.leverage, 1e-12, 1)
        df = moment_df(share, self.columns, self._inverse)
        return estimate, error, max(1.0, min(df, float(self.residual_df)))

    @cached_property
    def _inverse(self) -> np.ndarray:
        return np.linalg.pinv(self.columns)


@dataclass(frozen=True)
class FTest:
    f_value: float
    df_model: int
    df_error: float

    @property
    def p(self) -> float:
        return float(fdtrc(self.df_model, self.df_error, self.f_value))


def fit(columns: np.ndarray, y: Sequence[float] | np.ndarray) -> Fit:
    """Ordinary least squares of `y` on the columns given; no constant is added.

    HC2 weighs each squared residual by its leverage (MacKinnon and White 1985).
    """
    x, observed = np.asarray(columns, dtype=float), np.asarray(y, dtype=float)
    inverse, rank = np.linalg.pinv(x, rcond=1e-15), int(np.linalg.matrix_rank(x))
    coefficients = inverse @ observed
    residuals = observed - x @ coefficients
    leverage = np.einsum("ij,ji->i", x, inverse)
    free = np.clip(1 - leverage, 1e-12, 1)
    sse, residual_df = float(residuals @ residuals), len(observed) - rank
    return Fit(
        columns=x,
        coefficients=coefficients,
        hc2_covariance=(inverse * (residuals**2 / free)) @ inverse.T,
        residuals=residuals,
        leverage=leverage,
        residual_df=residual_df,
        sse=sse,
    )


def pseudo_inverse(columns: np.ndarray) -> tuple[np.ndarray, int]:
    """(pseudo-inverse, rank) of columns of zeros and ones, by their products: many more rows than columns are cheap.

    Squaring costs half of the digits, of which such columns need few.
    """
    values, vectors = np.linalg.eigh(columns.T @ columns)
    kept = values > max(float(values[-1]), 1.0) * len(values) * 1e-13 if len(values) else values > 0
    half = vectors[:, kept]
    return (half / values[kept]) @ half.T @ columns.T, int(kept.sum())


def moment_df(share: np.ndarray, columns: np.ndarray, inverse: np.ndarray) -> float:
    """Degrees of freedom of Σ share·residual² with equal variances, by its first two moments (Bell and McCaffrey 2002).

    `inverse` is that of the columns; residuals are of their fit.
    """
    used = np.flatnonzero(share)
    d, m = share[used], np.eye(len(used)) - columns[used] @ inverse[:, used]
    spread = float(d @ (m**2) @ d)
    return float(d @ np.diag(m)) ** 2 / spread if spread > 0 else float("inf")


def wald(fitted: Fit, which: Sequence[int]) -> FTest | None:
    """Tests whether all of these coefficients are zero, with HC2 covariance; None if it cannot be judged."""
    chosen = list(which)
    covariance = fitted.hc2_covariance[np.ix_(chosen, chosen)]
    if not chosen or fitted.residual_df < 1 or np.linalg.matrix_rank(covariance) < len(chosen):
        return None
    beta = fitted.coefficients[chosen]
    return FTest(float(beta @ np.linalg.solve(covariance, beta)) / len(chosen), len(chosen), fitted.residual_df)


def compare_nested(small: tuple[float, int], large: tuple[float, int]) -> FTest | None:
    """Tests whether the larger model explains more. Each argument is (sum of squared errors, residual df). None without
    degrees of freedom."""
    (sse_small, df_small), (sse_large, df_large) = small, large
    extra = df_small - df_large
    if extra <= 0 or df_large <= 0 or sse_large <= 0:
        return None
    return FTest(max(0.0, (sse_small - sse_large) / extra) / (sse_large / df_large), extra, df_large)


def lack_of_fit(x: Sequence[float], y: Sequence[float], line: Fit) -> FTest | None:
    """Pure-error test: do repeats at the same x scatter less than the points do about the line?"""
    at, observed = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    levels, group = np.unique(at, return_inverse=True)
    means = np.bincount(group, observed) / np.bincount(group)
    pure = float(np.sum((observed - means[group]) ** 2))
    return compare_nested((line.sse, line.residual_df), (pure, len(at) - len(levels)))
