"""Treatments that ran once each, under many conditions: how two arms differ over the conditions.

Without a second run of any treatment nothing is known of the scatter of runs, and a ratio has no interval. Under n
conditions there are n ratios of two arms, though, and their mean has one: Student's t over the conditions, each of
which counts once (Cochran, "Sampling Techniques", §2.5). It holds what differs between conditions and the scatter of
single runs together, so it says how the arms differ over conditions such as these. It is not a verdict: it tells no
condition from chance, and the conditions were chosen, not drawn.
"""

import math
from dataclasses import dataclass

import numpy as np

from iotax.analysis.compare import Model
from iotax.analysis.estimate import Contrast, Estimate
from iotax.analysis.responses import Response

CONDITIONS_MIN = 5
"""With fewer conditions the interval is too wide to be useful."""


@dataclass(frozen=True)
class Paired:
    """An arm against the baseline over conditions that were each measured once."""

    response: Response
    arm: str
    ratio: Estimate
    """Geometric mean of the conditions' ratios, with the 95 % interval of their scatter."""
    conditions: int
    least: tuple[float, str]
    """The smallest ratio of a condition, and the condition."""
    most: tuple[float, str]


def paired(model: Model) -> list[Paired]:
    """For each arm that is compared, where no treatment ran twice; empty if some did: then runs give intervals."""
    grid = model.grid
    found = []
    if len(set(model.cells)) < len(model.cells):
        return []
    values = {cell: math.log(value) for cell, (_, value) in zip(model.cells, model.observed, strict=True)}
    for arm in grid.arms:
        pairs = [
            (values[cell] - values[base], grid.condition(cell))
            for cell in grid.cells()
            if grid.arm(cell) == arm and cell in values and (base := grid.baseline_of(cell)) in values and base != cell
        ]
        if len(pairs) < CONDITIONS_MIN or arm in model.withheld or arm == grid.local:
            continue
        logs = np.array([log for log, _ in pairs])
        error = float(logs.std(ddof=1) / math.sqrt(len(logs)))
        contrast = Contrast(float(logs.mean()), error, len(logs) - 1)
        least, most = min(pairs), max(pairs)
        ends = [(math.exp(log), condition) for log, condition in (least, most)]
        found.append(Paired(model.response, arm, Estimate.ratio(contrast), len(pairs), ends[0], ends[1]))
    return found
