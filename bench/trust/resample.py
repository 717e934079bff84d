"""Coverage under the noise of real runs: studies composed of their sessions, whose true ratio is known to be 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iotax.analysis.model import CellModel, Layout
from iotax.analysis.rounds import polished

Session = Sequence[Sequence[float]]
"""For each arm, the logarithms of its slices in the order of rounds."""


def coverage(pool: Sequence[Session], *, sessions: int, draws: int, seed: int) -> float:
    """How often the interval of B over A contains 1, from 0 to 1.

    Each study draws whole sessions from the pool, which keeps what a session's slices have in common, and their order.
    Which arm is A is random too, so nothing differs.
    """
    rng = np.random.default_rng(seed)
    values = np.array([_values(session) for session in pool])
    layout = Layout([0, 1] * sessions, np.repeat(np.arange(sessions), 2).tolist())
    hits = 0
    for _ in range(draws):
        drawn = values[rng.integers(len(values), size=sessions)]
        swapped = rng.random(sessions) < 0.5
        drawn[swapped] = drawn[swapped][:, ::-1]
        interval = CellModel(layout, drawn.ravel()).contrast({1: 1.0, 0: -1.0}).interval()
        hits += interval is not None and interval[0] <= 0 <= interval[1]
    return hits / draws


def _values(session: Session) -> list[float]:
    found = polished({str(arm): dict(enumerate(logs)) for arm, logs in enumerate(session)})
    return [found["0"], found["1"]]
