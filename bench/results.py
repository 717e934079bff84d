"""The results of a run of the bench, as data."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.disturbance import disturbance
from bench.sample import Sample
from bench.turns import Failure, Pair, Ratio, counted, ratio


@dataclass(frozen=True)
class Side:
    """Medians over one side's samples that count."""

    name: str
    rate_iops: float
    latency_p50_us: float | None
    latency_p99_us: float | None
    initiator_cpu_us: float
    target_cpu_us: float | None
    initiator_sleeps_an_io: float | None
    target_sleeps_an_io: float | None

    @classmethod
    def of(cls, name: str, samples: Sequence[Sample]) -> Side:
        used = counted(samples)
        return cls(
            name=name,
            rate_iops=statistics.median(sample.figures.rate_iops for sample in used),
            latency_p50_us=_median([sample.figures.latency_p50_us for sample in used]),
            latency_p99_us=_median([sample.figures.latency_p99_us for sample in used]),
            initiator_cpu_us=statistics.median(sample.initiator_cpu_us for sample in used),
            target_cpu_us=_median([sample.target_cpu_us for sample in used]),
            initiator_sleeps_an_io=_median([sample.initiator_sleeps_an_io for sample in used]),
            target_sleeps_an_io=_median([sample.target_sleeps_an_io for sample in used]),
        )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


@dataclass(frozen=True)
class Result:
    """One row: our side and, if it was measured, theirs."""

    group: str
    load: str
    """Prefixed with the path to the volume."""
    ours_name: str
    theirs_name: str | None
    goal: float | None
    pairs: list[Pair]
    alone: list[Sample]
    """Our samples, if there is nothing to compare with."""
    skipped: str | None = None
    """Why their side, or both, were not measured."""
    failures: list[Failure] = field(default_factory=list)
    """Samples that failed."""
    cpu_goal: bool = False
    """Whether neither of our sides may take more CPU time per I/O than theirs."""

    @property
    def ours(self) -> Side | None:
        samples = [pair.ours for pair in self.pairs] or self.alone
        return Side.of(self.ours_name, samples) if samples else None

    @property
    def theirs(self) -> Side | None:
        if not self.pairs or self.theirs_name is None:
            return None
        return Side.of(self.theirs_name, [pair.theirs for pair in self.pairs])

    @property
    def ratio(self) -> Ratio | None:
        return ratio(self.pairs) if self.pairs else None

    @property
    def rate_met(self) -> bool | None:
        """None without a goal, or if all samples were disturbed, which prove nothing."""
        if self.goal is None or self.ratio is None or not self.ratio.trusted:
            return None
        return self.ratio.mean >= self.goal

    @property
    def cpu_met(self) -> bool | None:
        """Like `rate_met`, for CPU time."""
        ours, theirs = self.ours, self.theirs
        if not self.cpu_goal or ours is None or theirs is None or self.ratio is None or not self.ratio.trusted:
            return None
        if ours.target_cpu_us is None or theirs.target_cpu_us is None:
            return None
        return ours.initiator_cpu_us <= theirs.initiator_cpu_us and ours.target_cpu_us <= theirs.target_cpu_us

    def to_json(self) -> dict[str, Any]:
        def sample(one: Sample) -> dict[str, Any]:
            return {**one.to_json(), "disturbance": disturbance(one.usage)}

        return {
            "group": self.group,
            "load": self.load,
            "ours_name": self.ours_name,
            "theirs_name": self.theirs_name,
            "goal": self.goal,
            "cpu_goal": self.cpu_goal,
            "skipped": self.skipped,
            "ratio": vars(self.ratio) if self.ratio else None,
            "ours": vars(self.ours) if self.ours else None,
            "theirs": vars(self.theirs) if self.theirs else None,
            "pairs": [{"ours": sample(pair.ours), "theirs": sample(pair.theirs)} for pair in self.pairs],
            "alone": [sample(one) for one in self.alone],
            "failures": [vars(failure) for failure in self.failures],
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Result:
        """Reads the output of `to_json`; derived values are computed again."""
        return cls(
            group=told["group"],
            load=told["load"],
            ours_name=told["ours_name"],
            theirs_name=told["theirs_name"],
            goal=told["goal"],
            pairs=[Pair(Sample.from_json(pair["ours"]), Sample.from_json(pair["theirs"])) for pair in told["pairs"]],
            alone=[Sample.from_json(one) for one in told["alone"]],
            skipped=told["skipped"],
            failures=[Failure(**failure) for failure in told.get("failures", [])],
            cpu_goal=told["cpu_goal"],
        )
