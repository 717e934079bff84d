"""Is a series steady? A label, never a verdict that is forced."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SNIA_ROUNDS = 5
SNIA_RANGE_MAX = 0.20
SNIA_EXCURSION_MAX = 0.10


@dataclass(frozen=True)
class SniaWindow:
    """SNIA Solid State Storage Performance Test Specification: five rounds, relative to their mean."""

    range_ratio: float
    """Highest minus lowest round."""
    excursion_ratio: float
    """Rise or fall of the fitted line over the window."""

    @property
    def steady(self) -> bool:
        return self.range_ratio <= SNIA_RANGE_MAX and self.excursion_ratio <= SNIA_EXCURSION_MAX


def snia_window(rounds: Sequence[float]) -> SniaWindow | None:
    """Judges the last five rounds; None where there are fewer."""
    if len(rounds) < SNIA_ROUNDS:
        return None
    last = np.asarray(rounds[-SNIA_ROUNDS:], dtype=float)
    mean = float(last.mean())
    if mean <= 0:
        return SniaWindow(float("inf"), float("inf"))
    slope = float(np.polyfit(np.arange(SNIA_ROUNDS), last, 1)[0])
    return SniaWindow(float(np.ptp(last)) / mean, abs(slope) * (SNIA_ROUNDS - 1) / mean)


def rounds_of(values: Sequence[float]) -> list[float]:
    """The whole series as five rounds of equal length (means; a remainder at the start is left out)."""
    length = len(values) // SNIA_ROUNDS
    if length == 0:
        return []
    kept = np.asarray(values[len(values) - length * SNIA_ROUNDS :], dtype=float)
    return [float(x) for x in kept.reshape(SNIA_ROUNDS, length).mean(axis=1)]


def mser5(values: Sequence[float]) -> int | None:
    """How many observations at the start still belong to the warm-up (MSER-5, White 1997).

    Batches of five; the truncation that leaves the smallest standard error of the mean. None where it would cut more
    than half: then the series has no steady part to speak of.
    """
    batches = np.asarray(values[: len(values) // 5 * 5], dtype=float).reshape(-1, 5).mean(axis=1)
    if len(batches) < 4:
        return None
    rest = [batches[d:] for d in range(len(batches) - 2)]
    best = int(np.argmin([float(np.var(r)) / len(r) for r in rest]))
    return None if best > len(batches) / 2 else best * 5
