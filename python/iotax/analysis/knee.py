"""The knee of each treatment: the highest rate of an open loop that meets the objective.

One bisection ends at one rate, and how far another would have ended from it is not known. So the bisection is the
replicate: it is repeated in each of `confirm` blocks, over rates of its own (`design.rates`), and ends with a fresh run
at the highest rate that held. A knee whose fresh runs miss is withdrawn. The interval is Student's t on the logarithms
of the knees, each the middle of its bracket.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from iotax.analysis.validity import kept_up
from iotax.design.plan import PROBE_TRIES, make_trial
from iotax.design.random import shuffled
from iotax.design.rates import Ladder, ladder
from iotax.design.treatments import Treatment, name_of, treatments
from iotax.study import Study
from iotax.study.model import Search
from iotax.trial import Attempt, Trial, TrialResult

Measured: TypeAlias = tuple[Trial, TrialResult]


@dataclass(frozen=True)
class Knee:
    """The results of one treatment's searches, by block."""

    treatment: Treatment
    found: dict[int, float] = field(default_factory=dict)
    """IOPS, where a fresh run met the objective: the middle of the bracket by ratio."""
    withdrawn: dict[int, float] = field(default_factory=dict)
    """Knees whose fresh runs missed the objective."""
    unconfirmed: dict[int, float] = field(default_factory=dict)
    """Knees without a fresh run: it failed, or has not run yet."""
    below: tuple[int, ...] = ()
    """Blocks in which no rate met the objective: the knee lies below the range."""
    beyond: tuple[int, ...] = ()
    """Blocks in which every rate met it: the knee lies above the range. They are among `found` too."""
    fresh: tuple[Measured, ...] = ()
    """All runs at rates that were found."""
    measured: tuple[TrialResult, ...] = ()
    """All runs."""

    @property
    def searches(self) -> int:
        """The searches that ended."""
        return len(self.found) + len(self.withdrawn) + len(self.unconfirmed) + len(self.below)

    @property
    def stands(self) -> bool:
        """Most of the searches found a knee within the range that a fresh run confirmed, and none left the range."""
        return not (self.below or self.beyond) and 2 * len(self.found) > self.searches


@dataclass
class _Searched:
    """The trials of one search, and the results of those that have one."""

    asked: list[Trial] = field(default_factory=list)
    fresh: list[Trial] = field(default_factory=list)
    probes: list[Measured] = field(default_factory=list)
    confirming: list[Measured] = field(default_factory=list)


def holds(search: Search, result: TrialResult) -> bool:
    """Whether a run met the objective at the rate that was set."""
    achieved = result.open is None or kept_up(result.open)
    return achieved and result.ios > 0 and result.latency_ns(search.percentile) <= search.latency_max


def knees(study: Study, search: Search, attempts: Sequence[Attempt]) -> list[Knee]:
    """One for each treatment, in the study's order."""
    trials = list({each.trial.id: each.trial for each in attempts}.values())
    searched = _by_search(study, trials, attempts)
    blocks = range(1, 1 + search.confirm)
    return [
        _knee(study, search, treatment, {at: searched.get((treatment, at), _Searched()) for at in blocks})
        for treatment in treatments(study)
    ]


def next_knee_trials(study: Study, search: Search, trials: Sequence[Trial], attempts: Sequence[Attempt]) -> list[Trial]:
    """What to run next: probes of the first block whose searches are not over, then its fresh runs; empty
    at the end."""
    searched = _by_search(study, trials, attempts)
    order = max(trial.order for trial in trials) + 1
    for block in range(1, search.confirm + 1):
        probes: list[tuple[Treatment, int]] = []
        fresh: list[tuple[Treatment, int]] = []
        for treatment in treatments(study):
            so_far = searched.get((treatment, block), _Searched())
            rate_iops = _next_rate(study, search, treatment, block, so_far)
            if rate_iops is not None:
                # A probe that failed for good stops its search.
                if _count(so_far.asked, rate_iops) == _count([trial for trial, _ in so_far.probes], rate_iops):
                    probes.append((treatment, rate_iops))
                continue
            passed = bracket(_probes(search, so_far)).passed
            if passed is not None and _wants_fresh(search, so_far):
                fresh.append((treatment, passed))
        again = any(some.fresh for (_, at), some in searched.items() if at == block)
        for role, number, some in (("probe", 0, probes), ("replicate", block + search.confirm * again, fresh)):
            if some:
                return [
                    make_trial(study, block, treatment, order + at, role, number or order + at, rate_iops)
                    for at, (treatment, rate_iops) in enumerate(shuffled(some, study.design.seed, f"{role}s", order))
                ]
    return []


def _knee(study: Study, search: Search, treatment: Treatment, searched: dict[int, _Searched]) -> Knee:
    found: dict[int, float] = {}
    withdrawn: dict[int, float] = {}
    unconfirmed: dict[int, float] = {}
    below, beyond = [], []
    for block, each in searched.items():
        if not each.probes or _next_rate(study, search, treatment, block, each) is not None:
            continue
        ends = bracket(_probes(search, each))
        held = [holds(search, result) for _, result in each.confirming]
        if ends.passed is None:
            below.append(block)
            continue
        enough = len(held) >= PROBE_TRIES or not _wants_fresh(search, each)
        kind = found if any(held) else withdrawn if held and enough else unconfirmed
        kind[block] = ends.knee_iops
        if ends.failed is None:
            beyond.append(block)
    return Knee(
        treatment,
        found,
        withdrawn,
        unconfirmed,
        tuple(below),
        tuple(beyond),
        tuple(itertools.chain.from_iterable(each.confirming for each in searched.values())),
        tuple(result for each in searched.values() for _, result in [*each.probes, *each.confirming]),
    )


def _wants_fresh(search: Search, searched: _Searched) -> bool:
    """A knee is run afresh once, and once more if that run missed: one disturbance withdraws no knee."""
    done = searched.confirming
    return len(searched.fresh) == len(done) < PROBE_TRIES and not any(holds(search, result) for _, result in done)


def _next_rate(study: Study, search: Search, treatment: Treatment, block: int, searched: _Searched) -> int | None:
    rungs = ladder(search, study.design.seed, name_of(treatment), block)
    return next_rate(search, rungs, _probes(search, searched))


def _probes(search: Search, searched: _Searched) -> list[Probe]:
    return [Probe(int(str(trial.treatment["rate_iops"])), holds(search, result)) for trial, result in searched.probes]


def _by_search(
    study: Study, trials: Sequence[Trial], attempts: Sequence[Attempt]
) -> dict[tuple[Treatment, int], _Searched]:
    """The trials of each treatment in each block."""
    known = {name_of(treatment): treatment for treatment in treatments(study)}
    results = {each.trial.id: each.result for each in attempts if each.status == "done" and each.result is not None}
    found: dict[tuple[Treatment, int], _Searched] = {}
    for trial in sorted(trials, key=lambda trial: trial.order):
        treatment = known.get(trial.levels)
        if treatment is None or trial.role not in ("probe", "replicate"):
            continue
        searched = found.setdefault((treatment, trial.block), _Searched())
        (searched.asked if trial.role == "probe" else searched.fresh).append(trial)
        result = results.get(trial.id)
        if result is not None and trial.role == "probe":
            searched.probes.append((trial, result))
        elif result is not None:
            searched.confirming.append((trial, result))
    return found


def _count(trials: Sequence[Trial], rate_iops: int) -> int:
    return sum(trial.treatment["rate_iops"] == rate_iops for trial in trials)


@dataclass(frozen=True)
class Probe:
    """One run at a rate."""

    rate_iops: int
    held: bool


@dataclass(frozen=True)
class Bracket:
    """The highest rate that held below the lowest that did not, and that lowest rate; None if there is none."""

    passed: int | None
    failed: int | None

    @property
    def knee_iops(self) -> float:
        """Its geometric middle; if everything held, the highest rate tried. `passed` is not None."""
        assert self.passed is not None
        return self.passed if self.failed is None else math.sqrt(self.passed * self.failed)


def bracket(probes: Sequence[Probe]) -> Bracket:
    """A rate is too high once it missed `PROBE_TRIES` times and never held."""
    held: dict[int, list[bool]] = {}
    for probe in probes:
        held.setdefault(probe.rate_iops, []).append(probe.held)
    failed = min((rate for rate, some in held.items() if not any(some) and len(some) >= PROBE_TRIES), default=None)
    passed = max((rate for rate, some in held.items() if any(some) and (failed is None or rate < failed)), default=None)
    return Bracket(passed, failed)


def next_rate(search: Search, rungs: Ladder, probes: Sequence[Probe]) -> int | None:
    """None if two neighbouring rungs bracket the knee, or it lies outside the range."""
    if not probes:
        return rungs.middle_iops
    assert search.rate_max is not None
    last = probes[-1].rate_iops
    again = [probe.held for probe in probes if probe.rate_iops == last]
    if not any(again) and len(again) < PROBE_TRIES:
        return last
    found = bracket(probes)
    inside = range(1, rungs.rungs)
    low = bisect_right(inside, found.passed, key=rungs.rate_iops) if found.passed is not None else 0
    high = 1 + bisect_left(inside, found.failed, key=rungs.rate_iops) if found.failed is not None else rungs.rungs
    if high - low > 1:
        return rungs.rate_iops((low + high) // 2)
    # The ends of the range are not rungs: they are tried only if nothing held, or everything did.
    if found.passed is None and found.failed is not None and found.failed > search.rate_min:
        return search.rate_min
    return (
        search.rate_max
        if found.failed is None and found.passed is not None and found.passed < search.rate_max
        else None
    )
