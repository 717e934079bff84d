"""Ours and theirs in turns, and the ratio of the two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.disturbance import disturbance
from bench.load import Load, Timing
from bench.sample import Sample
from bench.subjects.base import Measurable

ATTEMPTS_A_PAIR = 2


@dataclass(frozen=True)
class Pair:
    """Two samples, one right after the other."""

    ours: Sample
    theirs: Sample

    @property
    def disturbance(self) -> str | None:
        return disturbance(self.ours.usage) or disturbance(self.theirs.usage)

    @property
    def ratio(self) -> float:
        return self.ours.figures.rate_iops / self.theirs.figures.rate_iops


@dataclass(frozen=True)
class Ratio:
    """Of the undisturbed pairs; of all where there is none, and then `trusted` is false."""

    mean: float
    """Geometric."""
    least: float
    greatest: float
    pairs: int
    disturbed: int
    trusted: bool


def take_turns(
    ours: Measurable,
    theirs: Measurable,
    load: Load,
    timing: Timing,
    pairs: int,
    tell: Callable[[Pair], None],
) -> list[Pair]:
    """A B A B, until `pairs` are undisturbed or twice as many were tried."""
    taken: list[Pair] = []
    while len(undisturbed(taken)) < pairs and len(taken) < ATTEMPTS_A_PAIR * pairs:
        pair = Pair(ours.measure(load, timing), theirs.measure(load, timing))
        taken.append(pair)
        tell(pair)
    return taken


def take_alone(
    ours: Measurable, load: Load, timing: Timing, samples: int, tell: Callable[[Sample], None]
) -> list[Sample]:
    """Where there is nobody to compare with."""
    taken: list[Sample] = []
    while sum(disturbance(sample.usage) is None for sample in taken) < samples:
        if len(taken) == ATTEMPTS_A_PAIR * samples:
            break
        taken.append(ours.measure(load, timing))
        tell(taken[-1])
    return taken


def undisturbed(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.disturbance is None]


def ratio(pairs: Sequence[Pair]) -> Ratio:
    counted = undisturbed(pairs)
    used = [pair.ratio for pair in counted or pairs]
    return Ratio(
        mean=math.exp(sum(map(math.log, used)) / len(used)),
        least=min(used),
        greatest=max(used),
        pairs=len(used),
        disturbed=len(pairs) - len(counted),
        trusted=bool(counted),
    )


def counted(samples: Sequence[Sample]) -> list[Sample]:
    """The undisturbed, or all where there is none."""
    return [sample for sample in samples if disturbance(sample.usage) is None] or list(samples)
