"""Models of simulated cells, whose true means are known."""

from __future__ import annotations

import numpy as np

from iotax.analysis.model import CellModel, Layout


def design(cells: int, blocks: int) -> Layout:
    return Layout(np.repeat(np.arange(cells), blocks).tolist(), np.tile(np.arange(1, blocks + 1), cells).tolist())


def draw(layout: Layout, blocks: int, means: np.ndarray, sds: np.ndarray, rng: np.random.Generator) -> CellModel:
    drift = rng.normal(0, 0.05, blocks)
    noise = rng.normal(size=len(layout.cell_of)) * sds[layout.cell_of]
    return CellModel(layout, means[layout.cell_of] + np.tile(drift, len(layout.cells)) + noise)


class OneModel:
    """What `_judge` needs of a response's model."""

    def __init__(self, model: CellModel) -> None:
        self.model = model
        self.response = type("Response", (), {"more_is_better": True})
        self.confidence = 0.95
