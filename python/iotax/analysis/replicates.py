"""The model of a response where whole replicates alone are independent: a simulation that drew its costs.

A replicate draws once what the work of each protocol costs, so all loads of a protocol err alike. What a contrast comes
to within each replicate knows all of that: a draw that both sides share cancels, one that many loads share does not
become better known by them. Such values, one of each replicate, are independent and alike, so their mean has Student's
t, whatever the cells' covariance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import fdtrc

from iotax.analysis.estimate import Contrast, mean_of
from iotax.analysis.model import DUST, CellModel, Weights
from iotax.analysis.multiplicity import at_five, dunnett, each_confidence


@dataclass(frozen=True)
class ReplicateModel(CellModel):
    """`layout` has the replicates for blocks."""

    @cached_property
    def _table(self) -> np.ndarray:
        """Replicate × cell → mean of the observations; not a number where there is none."""
        shape = (int(self.layout.block_of.max()) + 1, len(self.layout.cells))
        at = np.ravel_multi_index((self.layout.block_of, self.layout.cell_of), shape)
        with np.errstate(invalid="ignore"):
            means = np.bincount(at, self.y, minlength=shape[0] * shape[1]) / np.bincount(
                at, minlength=shape[0] * shape[1]
            )
        return means.reshape(shape)

    def _values(self, contrasts: Sequence[Weights]) -> np.ndarray:
        """Replicate × contrast, of the replicates that have every cell of all of them."""
        loads = np.zeros((len(self.layout.cells), len(contrasts)))
        for at, weights in enumerate(contrasts):
            for cell, weight in weights.items():
                loads[self.layout.column(cell), at] = weight
        used = np.any(loads != 0, axis=1)
        table = self._table[:, used]
        return table[~np.isnan(table).any(axis=1)] @ loads[used]

    def contrast(self, weights: Weights) -> Contrast:
        values = self._values([weights])[:, 0]
        if len(values) < 2:
            return Contrast(super().contrast(weights).estimate, None, None)
        found = mean_of(values)
        estimate = 0.0 if abs(found.estimate) < DUST else found.estimate
        error = found.standard_error or 0.0
        return Contrast(estimate, error if error > DUST else 0.0, found.df)

    def together(
        self, contrasts: Sequence[Weights], alone: Sequence[float], confidence: float = 0.95
    ) -> tuple[float, list[float]]:
        values = self._values(contrasts)
        count = len(values)
        correlation = _surely(values) if count > 3 else np.eye(len(contrasts))
        df = max(1.0, count - 1.0)
        adjusted = dunnett(alone, correlation, df, own_scatter=True)
        return each_confidence(correlation, df, confidence, own_scatter=True), at_five(adjusted, confidence)

    def differ(self, contrasts: Sequence[Weights]) -> float | None:
        """P-value of "all of these are equal": an analysis of variance of repeated measures with Greenhouse and
        Geisser's degrees of freedom, since contrasts within a replicate may correlate in any way. None without degrees
        of freedom."""
        values = self._values(contrasts)
        count, several = values.shape
        if count < 2 or several < 2:
            return None
        off = values - values.mean(axis=1, keepdims=True)
        left = off - off.mean(axis=0)
        scatter = float(np.sum(left**2)) / ((count - 1) * (several - 1))
        if scatter < DUST**2:
            return None
        f_value = count * float(np.sum(off.mean(axis=0) ** 2)) / (several - 1) / scatter
        covariance = left.T @ left
        share = float(np.trace(covariance)) ** 2 / ((several - 1) * float(np.sum(covariance**2)))
        df = share * (several - 1)
        return float(fdtrc(df, df * (count - 1), f_value))


def _surely(values: np.ndarray) -> np.ndarray:
    """How columns correlate, each pair by one standard error of Fisher's z less: a few replicates make correlations
    that are not there, and these make intervals that hold at once too narrow."""
    off = values - values.mean(axis=0)
    length = np.linalg.norm(off, axis=0)
    unit = np.where(length > DUST, off / np.where(length > DUST, length, 1.0), 0.0)
    found = np.clip(unit.T @ unit, -1 + 1e-9, 1 - 1e-9)
    sure = np.maximum(0.0, np.abs(np.arctanh(found)) - 1 / np.sqrt(len(values) - 3))
    known = np.sign(found) * np.tanh(sure)
    np.fill_diagonal(known, 1.0)
    # The reduced values may not form a correlation matrix.
    levels, vectors = np.linalg.eigh(known)
    whole = (vectors * np.clip(levels, 0, None)) @ vectors.T
    scale = np.sqrt(np.diag(whole))
    return whole / np.outer(scale, scale)
