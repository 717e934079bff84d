"""The effect of each factor on a response, how much of the variation it explains, and the blocked model's residuals."""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from iotax.analysis.compare import Model
from iotax.analysis.data import Cell
from iotax.analysis.estimate import Estimate
from iotax.analysis.responses import Run


@dataclass(frozen=True)
class Effect:
    """One arm's geometric mean at a level of a factor over that at the factor's first, other factors averaged."""

    arm: str
    factor: str
    first: str
    level: str
    ratio: Estimate
    first_value: float
    """The value at the first level, in the response's unit."""


@dataclass(frozen=True)
class Residual:
    run: Run
    arm: str
    condition: str
    fitted: float
    """In the response's unit."""
    share: float
    """Measured over fitted, less 1."""
    normal: float
    """The normal quantile that this residual's rank has."""


def effects(model: Model) -> list[Effect]:
    """For every arm and every factor beside those compared. Only cells that both levels have enter."""
    grid = model.grid
    found = []
    for factor in grid.others:
        first, *rest = (level.label for level in grid.factors[factor])
        for arm in grid.arms:
            cells = [c for c in grid.cells() if c in model and grid.arm(c) == arm and grid.level(c, factor) == first]
            for level in rest:
                pairs = [(model.grid.with_levels(cell, {factor: level}), cell) for cell in cells]
                pairs = [pair for pair in pairs if pair[0] in model]
                if pairs:
                    found.append(_effect(model, arm, factor, (first, level), pairs))
    return found


def residuals(model: Model) -> list[Residual]:
    """Every run, in the order in which they ran."""
    left = model.model.residuals
    places = (np.argsort(np.argsort(left)) + 0.625) / (len(left) + 0.25)  # Blom
    return [
        Residual(
            run,
            model.grid.arm(cell),
            model.grid.condition(cell),
            float(np.exp(model.model.fitted[i])),
            float(np.expm1(left[i])),
            float(ndtri(places[i])),
        )
        for i, ((run, _), cell) in enumerate(zip(model.observed, model.cells, strict=True))
    ]


def _effect(model: Model, arm: str, factor: str, levels: tuple[str, str], pairs: Sequence[tuple[Cell, Cell]]) -> Effect:
    """`pairs` are cells at the level and at the first one."""
    first = [estimate.value for _, cell in pairs if (estimate := model.absolute(cell)) is not None]
    weights = {cell: sign / len(pairs) for pair in pairs for cell, sign in zip(pair, (1.0, -1.0), strict=True)}
    ratio = Estimate.ratio(model.model.contrast({**weights}))
    return Effect(arm, factor, *levels, ratio, float(np.exp(np.mean(np.log(first)))))


@dataclass(frozen=True)
class Share:
    """A line of the allocation of variation."""

    factors: tuple[str, ...]
    """Empty for the unexplained part: blocks and runs differ."""
    share: float


def explained_variation(treatments: Sequence[Mapping[str, Hashable]], y: Sequence[float] | np.ndarray) -> list[Share]:
    """The variation of `y` split over factors, their interactions, and the rest; largest first, the rest last.

    Each combination of factors gets the between-means sum of squares that its own subsets leave. Exact if all cells
    have equally many runs; an approximation otherwise.
    """
    names = [name for name in treatments[0] if len({t[name] for t in treatments}) > 1] if treatments else []
    observed = np.asarray(y, dtype=float)
    total = float(np.sum((observed - observed.mean()) ** 2)) if len(observed) else 0.0
    if total <= 0:
        return []
    own: dict[tuple[str, ...], float] = {(): 0.0}
    for size in range(1, len(names) + 1):
        for combination in itertools.combinations(names, size):
            between = _between_squares([tuple(t[name] for name in combination) for t in treatments], observed)
            below = sum(ss for other, ss in own.items() if set(other) < set(combination))
            own[combination] = max(0.0, between - below)
    del own[()]
    shares = [Share(factors, ss / total) for factors, ss in own.items()]
    rest = max(0.0, 1 - sum(s.share for s in shares))
    return [*sorted(shares, key=lambda s: -s.share), Share((), rest)]


def _between_squares(groups: Sequence[Hashable], y: np.ndarray) -> float:
    index: dict[Hashable, int] = {}
    where = np.array([index.setdefault(group, len(index)) for group in groups])
    counts = np.bincount(where)
    means = np.bincount(where, y) / counts
    return float(np.sum(counts * (means - y.mean()) ** 2))
