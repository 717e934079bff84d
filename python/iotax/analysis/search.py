"""Load search: what to run next, and what was found. A pure function of what has run, so that a search can be resumed.

The best load: every combination of `workers` and `outstanding` runs as the design says. Of those whose runs all hold
the objective, the one of most IOPS (geometric mean) wins, for each level of the other factors; it is then run afresh,
since the best of many is flattered by chance. Combinations whose IOPS are not significantly fewer are named too.

The knee: the rate of an open loop is bisected by ratio between the highest that held and the lowest that did not. It
holds when the objective is met and at least 99 % of what was offered was done. The knee is then run afresh.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from iotax.analysis import student
from iotax.analysis.estimate import Estimate, mean_of
from iotax.analysis.validity import ACHIEVED_MIN
from iotax.design.plan import LOADS, PROBE_TRIES, first_rate, make_trial
from iotax.design.random import shuffled
from iotax.design.treatments import Treatment, treatments
from iotax.study import Study
from iotax.study.model import Search
from iotax.trial import Attempt, Trial, TrialResult

Measured: TypeAlias = tuple[Trial, TrialResult]


@dataclass(frozen=True)
class Winner:
    """The best load of one condition."""

    condition: str
    load: str
    treatment: Treatment | None
    """None where nothing held the objective."""
    rate_iops: float
    """Knee: the rate found. Best load: the geometric mean of the runs that chose it."""
    ties: tuple[str, ...] = ()
    """Other loads whose IOPS are not significantly fewer."""
    confirmed: Mapping[int, TrialResult] = field(default_factory=dict)
    """Block → fresh run."""

    def fresh(self) -> Estimate:
        """IOPS of the fresh runs, of which there are some: geometric mean with its 95 % interval."""
        return Estimate.ratio(mean_of([math.log(result.rate_iops) for result in self.confirmed.values()]))


def next_trials(study: Study, trials: Sequence[Trial], attempts: Sequence[Attempt]) -> list[Trial]:
    """What to run once everything planned has run; empty when the search is over."""
    search, measured = study.search, _measured(attempts)
    if search is None or not measured:
        return []
    order, block = max(trial.order for trial in trials) + 1, max(trial.block for trial in trials) + 1
    if search.rate_max is not None:
        probes = []
        for treatment in treatments(study):
            known = _of(study, measured, treatment, "probe")
            rate_iops = _next_rate(search, known)
            # A probe that failed for good leaves its treatment where it is.
            asked = [trial for trial in trials if _is(study, trial, treatment, "probe")]
            if rate_iops is not None and _probes_at(rate_iops, asked) == len(_at(rate_iops, known)):
                probes.append((treatment, rate_iops))
        if probes:
            return [
                make_trial(study, block, treatment, order + at, "probe", order + at, rate_iops)
                for at, (treatment, rate_iops) in enumerate(shuffled(probes, study.design.seed, "probes", order))
            ]
    role = _confirming(search)
    if any(trial.role == role for trial in trials):
        return []
    chosen = [winner for winner in winners(study, attempts) if winner.treatment is not None]
    found: list[Trial] = []
    for again in range(search.confirm):
        for winner in shuffled(chosen, study.design.seed, "confirm", again):
            assert winner.treatment is not None
            at = order + len(found)
            rate_iops = round(winner.rate_iops) if search.rate_max is not None else None
            found.append(make_trial(study, block + again, winner.treatment, at, role, again + 1, rate_iops))
    return found


def _confirming(search: Search) -> str:
    """Runs at the knee are what the study compares; those of a best load stand beside the runs that chose it."""
    return "confirm" if search.rate_max is None else "replicate"


def holds(search: Search, result: TrialResult) -> bool:
    """Whether a run met the objective, at the rate that it was asked for."""
    achieved = result.open is None or result.open.achieved >= ACHIEVED_MIN
    return achieved and result.ios > 0 and result.latency_ns(search.percentile) <= search.latency_max


def winners(study: Study, attempts: Sequence[Attempt]) -> list[Winner]:
    """One for each condition, in the study's order."""
    search, measured = study.search, _measured(attempts)
    if search is None:
        return []
    if search.rate_max is None:
        return _best_loads(study, search, measured)
    found = []
    for treatment in treatments(study):
        low, _ = _bracket(search, _of(study, measured, treatment, "probe"))
        condition = " · ".join(level.label for level in treatment)
        confirmed = _by_block(_of(study, measured, treatment, _confirming(search)))
        found.append(Winner(condition, "", treatment if low else None, low or 0.0, (), confirmed))
    return found


def _best_loads(study: Study, search: Search, measured: list[Measured]) -> list[Winner]:
    names = list(study.levels())
    loads = [names.index(name) for name in LOADS if name in names]
    conditions: dict[str, list[Treatment]] = {}
    for treatment in treatments(study):
        others = " · ".join(level.label for at, level in enumerate(treatment) if at not in loads)
        conditions.setdefault(others, []).append(treatment)

    def named(treatment: Treatment) -> str:
        return " × ".join(f"{treatment[at].label} {names[at]}" for at in loads)

    found = []
    for condition, group in conditions.items():
        runs = {each: [result for _, result in _of(study, measured, each, "replicate")] for each in group}
        runs = {each: some for each, some in runs.items() if some and all(holds(search, result) for result in some)}
        if not runs:
            found.append(Winner(condition, "", None, 0.0))
            continue
        logs = {each: [math.log(result.rate_iops) for result in some] for each, some in runs.items()}
        best = max(logs, key=lambda each: float(np.mean(logs[each])))
        ties = tuple(named(each) for each in logs if each is not best and _ties(logs, best, each))
        confirmed = _by_block(_of(study, measured, best, "confirm"))
        found.append(Winner(condition, named(best), best, math.exp(float(np.mean(logs[best]))), ties, confirmed))
    return found


def _ties(logs: dict[Treatment, list[float]], best: Treatment, other: Treatment) -> bool:
    """Whether `other` is not significantly below `best`: one-sided 5 %, scatter pooled over all that held."""
    freedom = sum(len(some) - 1 for some in logs.values())
    if freedom < 1:
        return True
    scatter = sum(float(np.var(some)) * len(some) for some in logs.values()) / freedom
    error = math.sqrt(scatter * (1 / len(logs[best]) + 1 / len(logs[other])))
    below = float(np.mean(logs[best]) - np.mean(logs[other]))
    return below <= student.reach(freedom, confidence=0.9) * error


def against_baseline(study: Study, winner: Winner, found: Sequence[Winner]) -> tuple[Winner, Estimate] | None:
    """The baseline's own winner, and the fresh runs over its with a 95 % interval: block by block, so that what
    drifts between blocks cancels."""
    names = list(study.levels())
    fixed = {name: study.baseline_level(name) for name in study.baseline if name not in LOADS}
    assert winner.treatment is not None
    wanted = {name: level for name, level in zip(names, winner.treatment, strict=True) if name not in LOADS} | fixed
    for other in found:
        both = [block for block in winner.confirmed if block in other.confirmed]
        if other is winner or other.treatment is None or len(both) < 2:
            continue
        levels = dict(zip(names, other.treatment, strict=True))
        if any(levels[name] != level for name, level in wanted.items()):
            continue
        ratios = [winner.confirmed[block].rate_iops / other.confirmed[block].rate_iops for block in both]
        return other, Estimate.ratio(mean_of(np.log(ratios)))
    return None


def _bracket(search: Search, known: list[Measured]) -> tuple[float | None, float | None]:
    """The highest rate that held below the lowest that did not, and that one; None where there is none."""
    held: dict[float, list[bool]] = {}
    for trial, result in known:
        held.setdefault(float(trial.treatment["rate_iops"]), []).append(holds(search, result))
    failed = min((rate for rate, some in held.items() if not any(some) and len(some) >= PROBE_TRIES), default=None)
    passed = max((rate for rate, some in held.items() if any(some) and (failed is None or rate < failed)), default=None)
    return passed, failed


def _next_rate(search: Search, known: list[Measured]) -> int | None:
    """Where to look next; None where the knee is bracketed closely enough, or lies outside the range."""
    if not known:
        return first_rate(search)
    assert search.rate_max is not None
    last = int(known[-1][0].treatment["rate_iops"])
    again = [holds(search, result) for result in _at(last, known)]
    if not any(again) and len(again) < PROBE_TRIES:
        return last
    passed, failed = _bracket(search, known)
    low, high = passed or search.rate_min, failed or search.rate_max
    if high / low <= 1 + search.precision / 100:
        # The ends themselves have not run yet where nothing held or everything did.
        if passed is None and failed is not None and failed > search.rate_min:
            return search.rate_min
        return search.rate_max if failed is None and passed is not None and passed < search.rate_max else None
    return round(math.sqrt(low * high))


def _at(rate_iops: int, known: list[Measured]) -> list[TrialResult]:
    return [result for trial, result in known if trial.treatment["rate_iops"] == rate_iops]


def _probes_at(rate_iops: int, probes: list[Trial]) -> int:
    return sum(trial.treatment["rate_iops"] == rate_iops for trial in probes)


def _measured(attempts: Sequence[Attempt]) -> list[Measured]:
    return [(each.trial, each.result) for each in attempts if each.status == "done" and each.result is not None]


def _by_block(runs: Sequence[Measured]) -> dict[int, TrialResult]:
    return {trial.block: result for trial, result in runs}


def _of(study: Study, measured: list[Measured], treatment: Treatment, role: str) -> list[Measured]:
    return [(trial, result) for trial, result in measured if _is(study, trial, treatment, role)]


def _is(study: Study, trial: Trial, treatment: Treatment, role: str) -> bool:
    values = zip(study.levels(), treatment, strict=True)
    return trial.role == role and all(trial.treatment.get(name) == level.value for name, level in values)
