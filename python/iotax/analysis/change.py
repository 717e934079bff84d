"""Two runs of a study against each other: before and after a change of something that no run can vary.

The two were measured at different times, so no block holds both: cells are compared as independent samples of runs
(Welch, on logarithms). What drifted between the two runs is part of the change; only repeating both in turns can part
them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from iotax.analysis.compare import Estimate
from iotax.analysis.data import Cell, Grid, StudyData
from iotax.analysis.model import Contrast
from iotax.analysis.multiplicity import holm
from iotax.analysis.responses import ASKED, CPU, CPU_INITIATOR, Response, Run
from iotax.analysis.verdict import Verdict, equivalence_p, judge, log_margin, two_sided_p


@dataclass(frozen=True)
class Change:
    """One response of one treatment, after over before; `cell` is empty for all treatments together."""

    response: Response
    cell: Cell
    before: float
    after: float
    """Geometric means."""
    ratio: Estimate
    runs: tuple[int, int]
    p_difference: float | None = None
    """Adjusted for all treatments of the response (Holm)."""
    verdict: Verdict | None = None
    """None where an interval cannot be had."""

    def regressed(self, margin_percent: float) -> bool:
        """Surely worse, and by more than the margin."""
        beyond = abs(math.log(self.ratio.value)) > log_margin(margin_percent)
        return self.verdict is Verdict.WORSE and beyond


def changes(before: StudyData, after: StudyData, margin_percent: float) -> list[Change]:
    """For each response of the study: all treatments together, then each that both runs measured.

    Empty where they share none.
    """
    grid, other = Grid(before.study), Grid(after.study)
    olds, news = _by_cell(before, grid), _by_cell(after, other)
    shared = [cell for cell in grid.cells() if cell in olds and cell in news]
    if list(grid.factors) != list(other.factors) or not shared:
        return []
    found: list[Change] = []
    for response in _responses(before, after):
        samples = {cell: (_logs(response, olds[cell]), _logs(response, news[cell])) for cell in shared}
        samples = {cell: pair for cell, pair in samples.items() if len(pair[0]) and len(pair[1])}
        contrasts = {cell: welch(*pair) for cell, pair in samples.items()}
        if len(samples) > 1:
            everything = tuple(np.concatenate([pair[i] for pair in samples.values()]) for i in (0, 1))
            found += _judge(response, {(): _mean(list(contrasts.values()))}, {(): everything}, margin_percent)
        found += _judge(response, contrasts, samples, margin_percent)
    return found


def welch(old: np.ndarray, new: np.ndarray) -> Contrast:
    """Mean of `new` minus mean of `old`; without error where either has a single run."""
    difference = float(new.mean() - old.mean())
    if len(old) < 2 or len(new) < 2:
        return Contrast(difference, None, None)
    parts = [float(x.var(ddof=1)) / len(x) for x in (old, new)]
    variance = sum(parts)
    if variance <= 0:
        return Contrast(difference, 0.0, float(len(old) + len(new) - 2))
    df = variance**2 / sum(v**2 / (len(x) - 1) for v, x in zip(parts, (old, new), strict=True))
    return Contrast(difference, math.sqrt(variance), df)


def _mean(contrasts: Sequence[Contrast]) -> Contrast:
    """Of independent contrasts, each weighing the same."""
    n = len(contrasts)
    estimate = sum(c.estimate for c in contrasts) / n
    if any(c.standard_error is None or c.df is None for c in contrasts):
        return Contrast(estimate, None, None)
    variances = [((c.standard_error or 0.0) / n) ** 2 for c in contrasts]
    total = sum(variances)
    spread = sum(v**2 / (c.df or 1.0) for v, c in zip(variances, contrasts, strict=True))
    return Contrast(estimate, math.sqrt(total), total**2 / spread if spread > 0 else float(n))


def _judge(
    response: Response,
    contrasts: Mapping[Cell, Contrast],
    samples: Mapping[Cell, tuple[np.ndarray, ...]],
    margin_percent: float,
) -> list[Change]:
    found = [
        Change(
            response,
            cell,
            *(math.exp(float(logs.mean())) for logs in samples[cell]),
            ratio=Estimate.ratio(contrast),
            runs=(len(samples[cell][0]), len(samples[cell][1])),
        )
        for cell, contrast in contrasts.items()
    ]
    margin = log_margin(margin_percent)
    sure = [(i, c) for i, c in enumerate(contrasts.values()) if c.standard_error is not None]
    tests = [(c.estimate, c.standard_error or 0.0, c.df or 1.0) for _, c in sure]
    differ = holm([two_sided_p(*test) for test in tests])
    same = holm([equivalence_p(*test, -margin, margin) for test in tests])
    for (i, contrast), p_difference, p_equivalence in zip(sure, differ, same, strict=True):
        verdict = judge(contrast.estimate, p_difference, p_equivalence, response.more_is_better)
        found[i] = replace(found[i], p_difference=p_difference, verdict=verdict)
    return found


def _by_cell(data: StudyData, grid: Grid) -> dict[Cell, list[Run]]:
    found: dict[Cell, list[Run]] = {}
    for run in data.runs:
        found.setdefault(grid.cell(run.trial), []).append(run)
    return found


def _logs(response: Response, runs: Sequence[Run]) -> np.ndarray:
    values = [value for value in map(response.of, runs) if value is not None and value > 0]
    return np.log(values)


def _responses(before: StudyData, after: StudyData) -> list[Response]:
    """The first study's own; the initiator's CPU time where a target's is missing on either side."""
    both = all(CPU.of(run) is not None for data in (before, after) for run in data.runs)
    asked = [ASKED[word] for word in before.study.responses]
    return [CPU_INITIATOR if response is CPU and not both else response for response in asked]
