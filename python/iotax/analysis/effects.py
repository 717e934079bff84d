"""The effect of each factor on a response, and the blocked model's residuals."""

from collections.abc import Sequence
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
                pairs = [(_moved(model, cell, factor, level), cell) for cell in cells]
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


def _moved(model: Model, cell: Cell, factor: str, level: str) -> Cell:
    return tuple(level if name == factor else label for name, label in zip(model.grid.factors, cell, strict=True))


def _effect(model: Model, arm: str, factor: str, levels: tuple[str, str], pairs: Sequence[tuple[Cell, Cell]]) -> Effect:
    """`pairs` are cells at the level and at the first one."""
    first = [estimate.value for _, cell in pairs if (estimate := model.absolute(cell)) is not None]
    weights = {cell: sign / len(pairs) for pair in pairs for cell, sign in zip(pair, (1.0, -1.0), strict=True)}
    ratio = Estimate.ratio(model.model.contrast({**weights}))
    return Effect(arm, factor, *levels, ratio, float(np.exp(np.mean(np.log(first)))))
