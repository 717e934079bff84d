"""D-optimal designs by exchange (Fedorov 1972, modified: Cook and Nachtsheim 1980).

Of the candidate treatments so many are chosen that the determinant of XᵀX is as large as exchanges of one treatment for
another can make it, from several random starts. A design whose determinant is not positive cannot tell the effects
apart and is never given out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from iotax.design.random import shuffled

STARTS = 10
_RIDGE = 1e-6
"""Lets the exchange climb out of a singular start; no part of the determinant that is judged."""


class SingularDesignError(ValueError):
    """So few treatments, or these exclusions, leave effects that cannot be estimated separately."""


def model_matrix(treatments: Sequence[Sequence[int]], levels: Sequence[int], order: int) -> np.ndarray:
    """A row for each treatment (numbers of levels): the mean, effects of each factor (sum zero), their products."""
    columns = [np.ones((len(treatments), 1))]
    coded = []
    for factor, count in enumerate(levels):
        codes = np.vstack([np.eye(count - 1), -np.ones((1, count - 1))])
        coded.append(codes[[treatment[factor] for treatment in treatments]])
    for many in range(1, order + 1):
        for some in itertools.combinations(range(len(levels)), many):
            product = np.ones((len(treatments), 1))
            for factor in some:
                product = np.einsum("ij,ik->ijk", product, coded[factor]).reshape(len(treatments), -1)
            columns.append(product)
    return np.hstack(columns)


def log_determinant(rows: np.ndarray) -> float:
    """Logarithm of the determinant of XᵀX; −inf if it is not positive."""
    if np.linalg.matrix_rank(rows) < rows.shape[1]:
        return float("-inf")
    sign, logarithm = np.linalg.slogdet(rows.T @ rows)
    return float(logarithm) if sign > 0 else float("-inf")


def efficiency(rows: np.ndarray, whole: np.ndarray) -> float:
    """(|XᵀX| / n^p)^(1/p) over that of all candidates: how much a run tells, next to one of the whole factorial."""
    parameters = rows.shape[1]
    per_run = (log_determinant(rows) - log_determinant(whole)) / parameters
    return float(np.exp(per_run) * len(whole) / len(rows))


def d_optimal(candidates: np.ndarray, runs: int, seed: int) -> list[int]:
    """Rows of the candidates' model matrix to run, none twice, in the candidates' order. Raises SingularDesignError."""
    count, parameters = candidates.shape
    if runs < parameters:
        raise SingularDesignError(
            f"{runs} treatments cannot tell {parameters} effects apart; say `runs: {parameters}` or more"
        )
    if runs > count:
        raise SingularDesignError(f"there are only {count} treatments to choose {runs} from")
    best, best_value = [], float("-inf")
    for start in range(STARTS):
        chosen = _exchange(candidates, shuffled(range(count), seed, "d-optimal", start)[:runs])
        value = log_determinant(candidates[chosen])
        if value > best_value + 1e-9:
            best, best_value = sorted(chosen), value
    if best_value == float("-inf"):
        raise SingularDesignError(
            "no choice of treatments tells all effects apart; exclude less, or say `effects: main`"
        )
    return best


def _exchange(candidates: np.ndarray, chosen: list[int]) -> list[int]:
    """Swaps the pair that multiplies the determinant most, until none does."""
    parameters = candidates.shape[1]
    while True:
        rows = candidates[chosen]
        inverse = np.linalg.inv(rows.T @ rows + _RIDGE * np.eye(parameters))
        spread = np.einsum("ij,jk,ik->i", candidates, inverse, candidates)
        between = rows @ inverse @ candidates.T
        # |M − xxᵀ + yyᵀ| / |M| for every x of the design and every y of the candidates.
        gain = (1 - spread[chosen])[:, None] * (1 + spread)[None, :] + between**2
        gain[:, chosen] = 0.0
        out, into = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if gain[out, into] <= 1 + 1e-9:
            return chosen
        chosen[int(out)] = int(into)
