"""Is a series steady, and is a volume? A label, never a verdict that is forced.

Two questions of one series of intervals: does its level hold (SNIA's window), and did the warm-up end before it began
(MSER-5)? Neither makes seconds into observations: what a run is known to is said by other runs. The first one also says
what preconditioning is left to do on a volume.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from iotax.records import Conditioning
from iotax.study.precondition import Precondition

SNIA_ROUNDS = 5
SNIA_RANGE_MAX = 0.20
SNIA_EXCURSION_MAX = 0.10
MSER_SAMPLES_MIN = 50
WARMUP_BIAS_MAX = 0.01
"""Change of the mean below which a short warm-up does not matter."""


class Label(StrEnum):
    STEADY = "steady"
    UNSTEADY = "no steady state"
    UNKNOWN = "too short to say"


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


@dataclass(frozen=True)
class SteadyState:
    """The findings on a run's series."""

    label: Label
    window: SniaWindow | None = None
    warmup_more: int | None = None
    """Samples at the start that MSER-5 would still discard; None if it finds no end of the warm-up or has too few
    samples."""
    warmup_bias: float = 0.0
    """Change of the mean if they were discarded, as a share."""

    @property
    def warmup_too_short(self) -> bool:
        return self.warmup_bias > WARMUP_BIAS_MAX


def steady_state(values: Sequence[float]) -> SteadyState:
    """Samples of equal length, without the warm-up."""
    if len(values) < SNIA_ROUNDS:
        return SteadyState(Label.UNKNOWN)
    window = snia_window(rounds_of(values))
    label = Label.STEADY if window and window.steady else Label.UNSTEADY
    if len(values) < MSER_SAMPLES_MIN:
        return SteadyState(label, window)
    cut = mser5(values)
    # MSER-5 would cut more than half of pure noise one time in four: only the resulting change counts.
    kept = np.asarray(values[cut if cut is not None else len(values) // 2 :], dtype=float).mean()
    whole = float(np.mean(values))
    bias = abs(whole - kept) / kept if kept > 0 else float("inf")
    return SteadyState(label, window, cut, float(bias))


def snia_window(rounds: Sequence[float]) -> SniaWindow | None:
    """Judges the last five rounds; None if there are fewer."""
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
    """The number of observations at the start that still belong to the warm-up (MSER-5, White 1997).

    Batches of five; the truncation with the smallest standard error of the mean. None if it would cut more than half:
    then the series has no steady part.
    """
    batches = np.asarray(values[: len(values) // 5 * 5], dtype=float).reshape(-1, 5).mean(axis=1)
    if len(batches) < 4:
        return None
    rest = [batches[d:] for d in range(len(batches) - 2)]
    best = int(np.argmin([float(np.var(r)) / len(r) for r in rest]))
    return None if best > len(batches) / 2 else best * 5


@dataclass(frozen=True)
class Progress:
    """What was done to the volume of an endpoint, and what is left to do."""

    endpoint: str
    passes_left: int
    rounds: int
    """The state in the invocation that counts: a volume that rested may have changed."""
    rate_iops: float | None
    """The state after the latest round."""
    window: SniaWindow | None
    """None before there are enough rounds."""
    done: bool

    @property
    def steady(self) -> bool:
        return self.window is not None and self.window.steady


def progress_of(
    asked: Precondition, endpoint: str, steps: Sequence[Conditioning], invocation: int | None = None
) -> Progress:
    """`invocation` is the current one; an earlier one counts if it finished."""
    own = [each for each in steps if each.endpoint == endpoint]
    passes_left = max(0, asked.passes - sum(each.kind == "fill" for each in own))
    found: Progress | None = None
    for one in dict.fromkeys([each.invocation for each in own] + ([invocation] if invocation is not None else [])):
        rates = [each.rate_iops or 0.0 for each in own if each.invocation == one and each.kind == "round"]
        window = snia_window(rates)
        enough = len(rates) >= asked.rounds_max or (window is not None and window.steady)
        found = Progress(
            endpoint, passes_left, len(rates), rates[-1] if rates else None, window, passes_left == 0 and enough
        )
        if found.done:
            break
    return found or Progress(endpoint, passes_left, 0, None, None, passes_left == 0 and asked.rounds_max == 0)
