"""Measures ours and theirs in turns, and computes their ratio."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.disturbance import disturbance
from bench.load import Load, Timing
from bench.process import FailedError
from bench.sample import Sample
from bench.subjects.base import Measurable

ATTEMPTS_A_PAIR = 2
FAILURES_IN_A_ROW = 3
"""After this many failures the rest is not tried, because each may have taken its whole time."""


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
class Failure:
    """A failed sample; it gives no pair."""

    side: Literal["ours", "theirs"]
    reason: str


@dataclass
class Taken:
    """The results of the turns."""

    pairs: list[Pair] = field(default_factory=list)
    alone: list[Sample] = field(default_factory=list)
    """Our samples, if there is nothing to compare with."""
    failures: list[Failure] = field(default_factory=list)

    def has_tried_enough(self, wanted: int) -> bool:
        """Enough undisturbed samples, or twice as many tried, or only failures recently."""
        counted = len(undisturbed(self.pairs)) + sum(disturbance(sample.usage) is None for sample in self.alone)
        tried = len(self.pairs) + len(self.alone) + len(self.failures)
        return counted >= wanted or tried >= ATTEMPTS_A_PAIR * wanted or self._failed_lately >= FAILURES_IN_A_ROW

    def note(self, came: Pair | Sample | Failure) -> None:
        self._failed_lately = self._failed_lately + 1 if isinstance(came, Failure) else 0
        if isinstance(came, Pair):
            self.pairs.append(came)
        elif isinstance(came, Sample):
            self.alone.append(came)
        else:
            self.failures.append(came)

    _failed_lately: int = 0


@dataclass(frozen=True)
class Ratio:
    """Over the undisturbed pairs. If there is none, over all pairs, and `trusted` is false."""

    mean: float
    """Geometric mean."""
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
    tell: Callable[[Pair | Sample | Failure], None],
) -> Taken:
    """A B A B, until `pairs` are undisturbed or twice as many were tried. A failure affects no other sample."""

    def turn() -> Pair | Failure:
        first = _sample("ours", ours, load, timing)
        if isinstance(first, Failure):
            return first
        second = _sample("theirs", theirs, load, timing)
        return second if isinstance(second, Failure) else Pair(first, second)

    return _take(turn, pairs, tell)


def take_alone(
    ours: Measurable, load: Load, timing: Timing, samples: int, tell: Callable[[Pair | Sample | Failure], None]
) -> Taken:
    """Measures our side alone."""
    return _take(lambda: _sample("ours", ours, load, timing), samples, tell)


def _take(
    turn: Callable[[], Pair | Sample | Failure], wanted: int, tell: Callable[[Pair | Sample | Failure], None]
) -> Taken:
    taken = Taken()
    while not taken.has_tried_enough(wanted):
        came = turn()
        taken.note(came)
        tell(came)
    return taken


def _sample(side: Literal["ours", "theirs"], of: Measurable, load: Load, timing: Timing) -> Sample | Failure:
    try:
        return of.measure(load, timing)
    except FailedError as reason:
        return Failure(side, str(reason))


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
    """The undisturbed samples, or all if there is none."""
    return [sample for sample in samples if disturbance(sample.usage) is None] or list(samples)
