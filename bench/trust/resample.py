"""Coverage and power under the noise of real runs: studies composed of their sessions, whose true ratio is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iotax.analysis.model import CellModel, Layout
from iotax.analysis.rounds import polished

Session = Sequence[Sequence[float]]
"""For each arm, the logarithms of its slices in the order of rounds."""


EFFECT = 1.05
"""The ratio whose detection is counted."""


@dataclass(frozen=True)
class Resampled:
    """Shares of the studies, from 0 to 1."""

    covers: float
    """Whose interval of B over A contains the true ratio, 1."""
    detects: float
    """Whose interval lies above 1 if each figure of B is multiplied by EFFECT."""


def resampled(pool: Sequence[Session], *, sessions: int, draws: int, seed: int) -> Resampled:
    """Each study draws whole sessions from the pool, which keeps what a session's slices have in common, and their
    order. Which arm is A is random too, so nothing differs.
    """
    rng = np.random.default_rng(seed)
    values = np.array([_values(session) for session in pool])
    layout = Layout([0, 1] * sessions, np.repeat(np.arange(sessions), 2).tolist())
    hits, found = 0, 0
    for _ in range(draws):
        drawn = values[rng.integers(len(values), size=sessions)]
        swapped = rng.random(sessions) < 0.5
        drawn[swapped] = drawn[swapped][:, ::-1]
        interval = CellModel(layout, drawn.ravel()).contrast({1: 1.0, 0: -1.0}).interval()
        if interval is not None:
            hits += interval[0] <= 0 <= interval[1]
            # A factor on every slice of B shifts the logarithm of the ratio, and nothing else.
            found += interval[0] + math.log(EFFECT) > 0
    return Resampled(hits / draws, found / draws)


def _values(session: Session) -> list[float]:
    found = polished({str(arm): dict(enumerate(logs)) for arm, logs in enumerate(session)})
    return [found["0"], found["1"]]
