"""Tests whether a slice is affected by the slice before it. Compared treatments follow each other equally often
(`design.rounds`), so that such an effect favours none. The test ranks slices, after removing the medians of treatment
and round, and groups them by what ran before (Kruskal and Wallis 1952). It uses ranks so that a burst on the machine
does not decide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from iotax.analysis.data import Cell, Grid
from iotax.analysis.responses import Response, Run
from iotax.analysis.rounds import SLICED

_EACH_MIN = 5
"""Slices behind each treatment, for the chi-square distribution to hold."""


@dataclass(frozen=True)
class CarryOver:
    """The test of one response."""

    response: Response
    p: float
    """The p-value of "the preceding slice does not matter"."""
    after: str
    """The treatment whose successors lie farthest from the others'."""
    percent: float
    """The median effect."""


def carry_over(runs: Sequence[Run], grid: Grid, response: Response) -> CarryOver | None:
    """None without rounds, for a response that slices do not have, and where too few slices follow each treatment."""
    value = SLICED.get(response.key)
    if value is None:
        return None
    sessions: dict[tuple[int, Cell], dict[int, tuple[str, int, float]]] = {}
    for run in runs:
        cell = grid.cell(run.trial)
        name, session = " · ".join(cell), (run.trial.block, grid.hard_levels(cell))
        for part in run.result.slices:
            if (found := value(run.result, part)) is not None and found > 0:
                sessions.setdefault(session, {})[part.place] = name, part.round, math.log(found)
    behind: dict[str, list[float]] = {}
    for places in sessions.values():
        left = _residuals(places)
        for place, (name, _, _) in places.items():
            if place + 1 in left:
                behind.setdefault(name, []).append(left[place + 1])
    if len(behind) < 2 or min(len(each) for each in behind.values()) < _EACH_MIN:
        return None
    medians = {name: float(np.median(each)) for name, each in behind.items()}
    after = max(medians, key=lambda name: abs(medians[name]))
    return CarryOver(response, kruskal_p(list(behind.values())), after, 100 * math.expm1(medians[after]))


def _residuals(places: Mapping[int, tuple[str, int, float]]) -> dict[int, float]:
    """Place → its logarithm, less the medians of its treatment and of its round."""
    own: dict[str, list[float]] = {}
    for name, _, log in places.values():
        own.setdefault(name, []).append(log)
    treatments = {name: float(np.median(logs)) for name, logs in own.items()}
    rounds: dict[int, list[float]] = {}
    for name, number, log in places.values():
        rounds.setdefault(number, []).append(log - treatments[name])
    common = {number: float(np.median(each)) for number, each in rounds.items()}
    return {place: log - treatments[name] - common[number] for place, (name, number, log) in places.items()}


def kruskal_p(groups: Sequence[Sequence[float]]) -> float:
    """P-value of "all groups are alike", ties at their mean rank."""
    values = np.concatenate([np.asarray(each) for each in groups])
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    n, start, sums = len(values), 0, 0.0
    for each in groups:
        sums += float(ranks[start : start + len(each)].sum()) ** 2 / len(each)
        start += len(each)
    ties = 1 - float((counts**3 - counts).sum()) / (n**3 - n)
    if ties <= 0:
        return 1.0
    return float(chdtrc(len(groups) - 1, (12 / (n * (n + 1)) * sums - 3 * (n + 1)) / ties))
