"""Split plots: rarely changed factors are judged by the scatter between changes, not by runs within one.

Trials of a block with the same levels of the hard-to-change factors are a whole plot: one mount, one connection, one
boot. Its peculiarities affect all its runs, so many runs within few plots say little about the plots. Hence effects of
hard-to-change factors are estimated from means of whole plots, and effects within plots with the plots as blocks (Yates
1935; Montgomery, ch. 14). `iotax plan` randomises accordingly.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from iotax.analysis.model import CellModel, Layout


@dataclass(frozen=True)
class WholePlots:
    """Means of whole plots, each under its levels of the hard-to-change factors, in its block."""

    treatments: list[Hashable]
    blocks: list[int]
    means: np.ndarray


@dataclass(frozen=True)
class Variation:
    """Variances of logarithms by level; a negative estimate counts as none."""

    block: float | None
    """None with a single block or without scatter."""
    plot: float | None
    """None if no factor is hard to change."""
    run: float


def whole_plots(model: CellModel, treatment_of: Sequence[Hashable], plot_of: Sequence[tuple[int, int]]) -> WholePlots:
    """`plot_of` gives each run's (block, plot). A plot without some of its runs has no advantage: only the differences
    of its runs from their cells count."""
    cell_means = np.bincount(model.layout.cell_of, model.y) / np.bincount(model.layout.cell_of)
    of_treatment: dict[Hashable, set[int]] = {}
    members: dict[tuple[tuple[int, int], Hashable], list[int]] = {}
    for i, (treatment, plot) in enumerate(zip(treatment_of, plot_of, strict=True)):
        of_treatment.setdefault(treatment, set()).add(int(model.layout.cell_of[i]))
        members.setdefault((plot, treatment), []).append(i)
    off = model.y - cell_means[model.layout.cell_of]
    level = {treatment: float(np.mean(cell_means[sorted(cells)])) for treatment, cells in of_treatment.items()}
    return WholePlots(
        [treatment for _, treatment in members],
        [block for (block, _), _ in members],
        np.array([level[treatment] + float(off[at].mean()) for (_, treatment), at in members.items()]),
    )


def variation(model: CellModel, blocks: Sequence[int], plots: WholePlots | None = None) -> Variation | None:
    """Variances of a balanced design, from its mean squares; None if it is not balanced or has no degrees
    of freedom."""
    counts = set(np.bincount(model.layout.cell_of))
    runs = len(model.y)
    in_block = set(np.bincount(np.unique(blocks, return_inverse=True)[1]))
    if len(counts) != 1 or len(in_block) != 1 or model.layout.residual_df < 1:
        return None
    per_block = in_block.pop()
    block_means = _means(blocks, model.y)
    between_blocks = per_block * float(np.var(block_means, ddof=1)) if len(block_means) > 1 else None
    if plots is None:
        run = model.sse / model.layout.residual_df
        return Variation(_part(between_blocks, run, per_block), None, run)
    per_plot = runs / len(plots.means)
    between = CellModel(Layout(plots.treatments, plots.blocks), plots.means)
    residual_df = model.layout.residual_df - between.layout.residual_df
    if between.layout.residual_df < 1 or residual_df < 1:
        return None
    plot = per_plot * between.sse / between.layout.residual_df
    run = (model.sse - per_plot * between.sse) / residual_df
    return Variation(_part(between_blocks, plot, per_block), _part(plot, run, per_plot), run)


def _part(mean_square: float | None, below: float, n: float) -> float | None:
    return None if mean_square is None else max(0.0, (mean_square - below) / n)


def _means(groups: Sequence[int], y: np.ndarray) -> np.ndarray:
    where = np.unique(groups, return_inverse=True)[1]
    return np.bincount(where, y) / np.bincount(where)
