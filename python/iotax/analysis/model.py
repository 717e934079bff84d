"""The blocked model of a response: a mean for each cell of the design, and blocks as fixed effects.

Responses are analysed as logarithms, so that a contrast of two cells is the logarithm of a ratio of geometric means.
Runs of one cell scatter more than runs of another (a queue near saturation does), so no common variance is assumed:
standard errors are heteroscedasticity-consistent (HC2), their degrees of freedom Satterthwaite's, from the residuals of
the cells in the contrast and never more than Bell and McCaffrey's (2002). A block takes a part of what a noisy cell
scatters, and HC2 gives back too little of it: in a few cells it covers 91 to 93 %, however many blocks there are. So
each cell's variance is the larger of HC2's and the unbiased one (Rao's MINQUE of a variance for each cell; Cattaneo,
Jansson and Newey 2018). Over two to twenty replicates this covers 94 to 97.5 %, more where cells outside the contrast
scatter most; HC3 with the model's own degrees of freedom covers 86 to 99 % (tests/python/analysis/test_coverage.py).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from iotax.analysis.estimate import Contrast, jackknife
from iotax.analysis.multiplicity import at_five, dunnett, each_confidence
from iotax.analysis.regression import FTest, moment_df, pseudo_inverse

Cell: TypeAlias = Hashable
Weights: TypeAlias = Mapping[Cell, float]


_UNBIASED_CELLS_MAX = 64
"""With more cells, each gives so little of its scatter to blocks that HC2 is as good."""
_UNBIASED_TERMS_MAX = 4_000_000
_CONDITION_MAX = 1e8
DUST = 1e-12
"""Logarithms that differ by less are equal: the difference is a rounding error."""


class Layout:
    """The cell and block of each run. Shared by all responses of the same runs."""

    def __init__(self, cells: Sequence[Cell], blocks: Sequence[int]) -> None:
        self.cells = list(dict.fromkeys(cells))
        self._column = {cell: i for i, cell in enumerate(self.cells)}
        self.cell_of = np.array([self._column[cell] for cell in cells], dtype=int)
        self._counts = np.bincount(self.cell_of, minlength=len(self.cells))
        self.block_columns = sum_coded(blocks)
        self.block_of = np.unique(np.asarray(blocks), return_inverse=True)[1]
        x = np.zeros((len(cells), len(self.cells)))
        x[np.arange(len(cells)), self.cell_of] = 1.0
        self.x = np.hstack((x, self.block_columns))
        self._inverse, rank = pseudo_inverse(self.x)
        # The share of its own scatter that each run's residual keeps: one minus its leverage. The hat matrix, with a
        # row and a column for each run, is never built.
        self.free = np.clip(1 - np.einsum("ij,ji->i", self.x, self._inverse), 0, 1)
        self.residual_df = len(cells) - rank
        self._satterthwaite: dict[tuple[tuple[int, float], ...], tuple[np.ndarray, np.ndarray, float]] = {}

    def column(self, cell: Cell) -> int:
        """-1 where no run stands in the cell."""
        return self._column.get(cell, -1)

    def count(self, cell: Cell) -> int:
        column = self.column(cell)
        return int(self._counts[column]) if column >= 0 else 0

    def residuals(self, y: np.ndarray) -> np.ndarray:
        return y - self.x @ (self._inverse @ y)

    def block_levels(self, y: np.ndarray) -> np.ndarray:
        """Each block's distance from the blocks' mean; empty with one block."""
        effects = self._inverse[len(self.cells) :] @ y
        return np.append(effects, -effects.sum()) if len(effects) else effects

    def load_of(self, weights: Weights) -> np.ndarray:
        """The weight of each run in the contrast."""
        c = np.zeros(self.x.shape[1])
        for cell, weight in weights.items():
            c[self._column[cell]] = weight
        return self._inverse.T @ c

    @cached_property
    def _of_squares(self) -> np.ndarray | None:
        """Sums of squared residuals of each cell → unbiased variances of cells; None if the runs cannot separate them,
        as for two cells in blocks."""
        cells, columns = len(self.cells), self.x.shape[1]
        if cells > _UNBIASED_CELLS_MAX or cells * columns**2 > _UNBIASED_TERMS_MAX:
            return None
        # The part of run j's scatter in residual i, squared and summed over the cells of both.
        within = [self.cell_of == cell for cell in range(cells)]
        ours = np.array([(self.x[own].T @ self.x[own]).ravel() for own in within])
        theirs = np.array([(self._inverse[:, own] @ self._inverse[:, own].T).ravel() for own in within])
        taken = ours @ theirs.T + np.diag([float(np.sum(2 * self.free[own] - 1)) for own in within])
        return np.linalg.inv(taken) if np.linalg.cond(taken) < _CONDITION_MAX else None

    def _cell_factors(self, residuals: np.ndarray) -> np.ndarray:
        """For each cell, the factor that makes HC2's variance the larger of itself and the unbiased one."""
        if self._of_squares is None:
            return np.ones(len(self.cells))
        squares = np.bincount(self.cell_of, residuals**2, minlength=len(self.cells))
        hc2 = np.bincount(self.cell_of, residuals**2 / np.maximum(self.free, DUST), minlength=len(self.cells))
        unbiased = self._of_squares @ squares * self._counts
        return np.maximum(1.0, np.divide(unbiased, hc2, out=np.ones_like(hc2), where=hc2 > DUST**2))

    def contrast(self, y: np.ndarray, weights: Weights, residuals: np.ndarray) -> Contrast:
        load = self.load_of(weights)
        estimate = float(load @ y)
        estimate = 0.0 if abs(estimate) < DUST else estimate
        used = np.abs(load) > 1e-12
        if self.residual_df < 1 or any(self.count(cell) < 2 for cell in weights) or np.any(self.free[used] < 1e-9):
            return Contrast(estimate, None, None)
        share, cell_df, df_max = self._variance_parts(weights, load)
        by_cell = np.bincount(self.cell_of, residuals**2 * share, minlength=len(self.cells))
        by_cell *= self._cell_factors(residuals)
        variance = float(by_cell.sum())
        if variance < DUST**2:
            return Contrast(estimate, 0.0, df_max)
        df = variance**2 / float(np.sum(by_cell**2 / cell_df))
        return Contrast(estimate, float(np.sqrt(variance)), max(1.0, min(df, df_max)))

    def all_zero(self, y: np.ndarray, contrasts: Sequence[Weights], residuals: np.ndarray) -> FTest | None:
        """Tests whether all of these contrasts are zero.

        Hotelling's T² with HC2 covariance, without a common variance. The degrees of freedom of the covariance are
        matched to its total variance, cell by cell (Zhang 2012, "An approximate Hotelling T²-test for heteroscedastic
        one-way MANOVA"). None if there are too few runs.
        """
        if not contrasts or self.residual_df < 1:
            return None
        used = {cell for weights in contrasts for cell in weights}
        if any(self.count(cell) < 2 for cell in used):
            return None
        load = np.array([self.load_of(weights) for weights in contrasts])
        share = np.where(np.abs(load).max(axis=0) > DUST, 1 / np.maximum(self.free, DUST), 0.0)
        if np.any(self.free[share > 0] < 1e-9):
            return None
        squares, estimate = residuals**2 * share * self._cell_factors(residuals)[self.cell_of], load @ y
        covariance = (load * squares) @ load.T
        if np.linalg.matrix_rank(covariance, hermitian=True) < len(contrasts):
            return None
        inverse, spread = np.linalg.inv(covariance), 0.0
        for column in np.unique(self.cell_of[share > 0]):
            own = self.cell_of == column
            part = inverse @ ((load[:, own] * squares[own]) @ load[:, own].T)
            df = moment_df(np.where(own, np.sum(load**2, axis=0) * share, 0.0), self.x, self._inverse)
            spread += (np.trace(part) ** 2 + np.trace(part @ part)) / df
        count = len(contrasts)
        df_max = moment_df(np.sum(load**2, axis=0) * share, self.x, self._inverse)
        df = min(count * (count + 1) / float(spread), df_max)
        if df <= count:
            return None
        left = df - count + 1
        return FTest(float(estimate @ inverse @ estimate) * left / (df * count), count, left)

    def _variance_parts(self, weights: Weights, load: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """(each run's share in the variance, df of each cell's part, df of all under equal variances)."""
        key = tuple(sorted((self._column[cell], round(weight, 12)) for cell, weight in weights.items()))
        if key not in self._satterthwaite:
            share = np.where(np.abs(load) > 1e-12, load**2 / np.maximum(self.free, 1e-12), 0.0)
            df = np.ones(len(self.cells))
            for column in np.unique(self.cell_of[share > 0]):
                df[column] = moment_df(np.where(self.cell_of == column, share, 0.0), self.x, self._inverse)
            self._satterthwaite[key] = share, df, moment_df(share, self.x, self._inverse)
        return self._satterthwaite[key]


@dataclass(frozen=True)
class CellModel:
    """A layout with the observations of one response on the log scale."""

    layout: Layout
    y: np.ndarray

    @cached_property
    def residuals(self) -> np.ndarray:
        return self.layout.residuals(self.y)

    @cached_property
    def fitted(self) -> np.ndarray:
        return self.y - self.residuals

    @cached_property
    def sse(self) -> float:
        return float(self.residuals @ self.residuals)

    def of(self, cell: Cell) -> np.ndarray:
        """The observations of one cell."""
        return self.y[self.layout.cell_of == self.layout.column(cell)]

    def scatter(self, kept: Sequence[int]) -> tuple[float, float]:
        """(variance of these runs about their cell and block, its degrees of freedom)."""
        df = float(self.layout.free[kept].sum())
        return (float(self.residuals[kept] @ self.residuals[kept]) / df if df > 0 else 0.0), df

    def mean(self, cell: Cell) -> float:
        return self.contrast({cell: 1.0}).estimate

    def contrast(self, weights: Weights) -> Contrast:
        return self.layout.contrast(self.y, weights, self.residuals)

    def together(
        self, contrasts: Sequence[Weights], alone: Sequence[float], confidence: float = 0.95
    ) -> tuple[float, list[float]]:
        """For several contrasts with their p-values: the confidence at which each one's interval holds simultaneously
        with the others, and adjusted p-values, of which those below 5 % exclude "no difference"."""
        correlation, df = correlations(self.layout, contrasts), float(self.layout.residual_df)
        return each_confidence(correlation, df, confidence), at_five(dunnett(alone, correlation, df), confidence)

    def difference_of_means(self, cell: Cell, reference: Cell) -> Contrast:
        """exp(cell) - exp(reference): a difference of geometric means, in the response's unit."""

        def difference(means: np.ndarray) -> float:
            return float(np.exp(means[0]) - np.exp(means[1]))

        if self.layout.block_columns.shape[1]:
            return self._over_blocks([cell, reference], difference)
        means = np.array([self.mean(cell), self.mean(reference)])
        high, low = np.exp(means)
        slope = self.contrast({cell: float(high), reference: -float(low)})
        return Contrast(difference(means), slope.standard_error, slope.df)

    def level(self, cells: Sequence[Cell]) -> Contrast:
        """Mean over cells, each weighing the same."""
        if self.layout.block_columns.shape[1]:
            return self._over_blocks(cells, lambda means: float(means.mean()))
        return self.contrast({cell: 1 / len(cells) for cell in cells})

    def log_of_mean(self, cells: Sequence[Cell]) -> Contrast:
        """Logarithm of the arithmetic mean of the cells' values, each weighing the same."""

        def log(means: np.ndarray) -> float:
            return float(np.log(np.mean(np.exp(means))))

        if self.layout.block_columns.shape[1]:
            return self._over_blocks(cells, log)
        means = np.array([self.mean(cell) for cell in cells])
        shares = np.exp(means) / np.exp(means).sum()
        slope = self.contrast({cell: float(share) for cell, share in zip(cells, shares, strict=True)})
        return Contrast(log(means), slope.standard_error, slope.df)

    def _over_blocks(self, cells: Sequence[Cell], of: Callable[[np.ndarray], float]) -> Contrast:
        """A function of cells' means that drifts with the blocks, unlike a ratio: a level in the response's unit.

        The independent parts are the blocks, however many runs they hold, so one block is left out at a time. Adding a
        variance of blocks to that of runs would give narrower intervals, but two or three blocks do not show how large
        it is: at 3 % drift such intervals covered down to 86 %.
        """
        levels = self.layout.block_levels(self.y)
        block_of, cell_of = self.layout.block_of, self.layout.cell_of
        # Without the other cells' blocks, a cell that lacks a run would owe its mean to which block it lacks.
        own = self.y - levels[block_of]
        within = [cell_of == self.layout.column(cell) for cell in cells]
        whole = of(np.array([own[each].mean() for each in within]))
        without = []
        for block, level in enumerate(levels):
            kept = [each & (block_of != block) for each in within]
            if not all(each.any() for each in kept):
                return Contrast(whole, None, None)
            # Levels add up to zero: those of the other blocks lie by this on the average.
            drift = -level / (len(levels) - 1)
            without.append(of(np.array([own[each].mean() + drift for each in kept])))
        return jackknife(whole, without)

    def interaction(self, arm_of: Mapping[Cell, Cell], condition_of: Mapping[Cell, Cell]) -> FTest | None:
        """Do two arms' ratios depend on the condition? None if no cells of both, or too few runs, tell.

        Each condition's log ratio less the first one's: all of them are zero without an interaction.
        """
        at = {(condition_of[cell], arm_of[cell]): cell for cell in self.layout.cells}
        arms = list(dict.fromkeys(arm_of[cell] for cell in self.layout.cells))
        conditions = list(dict.fromkeys(condition_of[cell] for cell in self.layout.cells))
        whole = [each for each in conditions if all((each, arm) in at for arm in arms)]
        differences = [
            {at[later, arm]: 1.0, at[later, arms[0]]: -1.0, at[whole[0], arm]: -1.0, at[whole[0], arms[0]]: 1.0}
            for later in whole[1:]
            for arm in arms[1:]
        ]
        return self.layout.all_zero(self.y, differences, self.residuals)


def correlations(layout: Layout, contrasts: Sequence[Weights]) -> np.ndarray:
    """The correlation of the contrasts' estimates by design: comparisons with one baseline share its runs."""
    loads = np.array([layout.load_of(weights) for weights in contrasts])
    loads /= np.linalg.norm(loads, axis=1, keepdims=True)
    return loads @ loads.T


def sum_coded(blocks: Sequence[int]) -> np.ndarray:
    """Block columns that add up to zero, so that a cell's mean is its mean over all blocks."""
    names = sorted(set(blocks))
    columns = np.zeros((len(blocks), max(0, len(names) - 1)))
    for i, block in enumerate(blocks):
        columns[i] = -1.0 if block == names[-1] else [float(block == name) for name in names[:-1]]
    return columns
