"""Models of simulated cells whose true means are known."""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student

from iotax.analysis.model import CellModel, Layout, Weights


def design(cells: int, blocks: int) -> Layout:
    return Layout(np.repeat(np.arange(cells), blocks).tolist(), np.tile(np.arange(1, blocks + 1), cells).tolist())


def draw(layout: Layout, blocks: int, means: np.ndarray, sds: np.ndarray, rng: np.random.Generator) -> CellModel:
    drift = rng.normal(0, 0.05, blocks)
    noise = rng.normal(size=len(layout.cell_of)) * sds[layout.cell_of]
    return CellModel(layout, means[layout.cell_of] + np.tile(drift, len(layout.cells)) + noise)


def intervals(layout: Layout, y: np.ndarray, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of a contrast for each row of observations: `CellModel.contrast`, vectorized."""
    load = layout.load_of(weights)
    share, cell_df, df_max = layout._variance_parts(weights, load)
    of_cell = np.eye(len(layout.cells))[layout.cell_of]
    estimate, residuals = y @ load, y - (y @ layout._inverse.T) @ layout.x.T
    squares = residuals**2
    parts = (squares * share) @ of_cell
    if layout._of_squares is not None:
        hc2 = (squares / layout.free) @ of_cell / of_cell.sum(axis=0)
        parts *= np.maximum(1.0, squares @ of_cell @ layout._of_squares.T / hc2)
    variance = parts.sum(axis=1)
    df = np.clip(variance**2 / np.sum(parts**2 / cell_df, axis=1), 1.0, df_max)
    reach = student.ppf(0.975, df) * np.sqrt(variance)
    return estimate - reach, estimate + reach


class OneModel:
    """A stub with the parts of a response's model that `_judge` uses."""

    def __init__(self, model: CellModel) -> None:
        self.model = model
        self.response = type("Response", (), {"more_is_better": True})
        self.confidence = 0.95
