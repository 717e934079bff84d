"""Load search: what to run next, and what was found. A pure function of the results so far, so that a search can be
resumed.

The best load: every combination of `workers` and `outstanding` runs as designed. Of those whose runs all met the
objective, the one with the most IOPS (geometric mean) wins, for each level of the other factors. It is then run afresh,
since the best of many looks better by chance. Combinations whose IOPS are not significantly fewer are named, too.

The knee (`analysis.knee`) is searched for anew in each block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from iotax.analysis import student
from iotax.analysis.estimate import Estimate, mean_of
from iotax.analysis.knee import Knee, Measured, holds, knees, next_knee_trials
from iotax.analysis.responses import Run
from iotax.analysis.rounds import values_by_session
from iotax.analysis.validity import Doubt, check_run, doubt
from iotax.design.plan import LOADS, make_trial
from iotax.design.random import shuffled
from iotax.design.treatments import Treatment, treatments
from iotax.records import Carrier
from iotax.study import Study
from iotax.study.model import Search
from iotax.trial import Attempt, Trial


@dataclass(frozen=True)
class Winner:
    """The best load of one condition."""

    condition: str
    load: str
    treatment: Treatment | None
    """None if nothing met the objective."""
    rate_iops: float
    """Geometric mean. Knee: of those not withdrawn; 0 if all were. Best load: of the runs that chose it."""
    ties: tuple[str, ...] = ()
    """Other loads whose IOPS are not significantly fewer."""
    confirmed: Mapping[int, float] = field(default_factory=dict)
    """Best load: block → IOPS of its fresh run."""
    knee: Knee | None = None
    """None for a best load."""
    carrier: Carrier = field(default_factory=Carrier)
    """The carrier of its runs."""
    fresh: tuple[Measured, ...] = ()
    """All runs that measured it again."""

    @property
    def doubt(self) -> Doubt:
        """The I/O rates of the fresh runs."""
        return doubt([check_run(Run(trial, result)) for trial, result in self.fresh])

    @property
    def is_comparable(self) -> bool:
        """Whether it may be part of a ratio: withdrawn knees are not missing at random."""
        return self.knee is None or not (self.knee.withdrawn or self.knee.unconfirmed)

    @property
    def by_block(self) -> dict[int, float]:
        """IOPS by which it is known: the knees of the searches that stand, or the fresh runs of a best load."""
        if self.knee is not None:
            return self.knee.found if self.knee.stands else {}
        return dict(self.confirmed)

    def known(self) -> Estimate | None:
        """Geometric mean over blocks with its 95 % interval; None if there is none."""
        logs = [math.log(rate) for rate in self.by_block.values()]
        return Estimate.ratio(mean_of(logs)) if logs else None


def next_trials(study: Study, trials: Sequence[Trial], attempts: Sequence[Attempt]) -> list[Trial]:
    """What to run once everything planned has run; empty when the search is over."""
    search, measured = study.search, _measured(attempts)
    if search is None or not measured:
        return []
    if search.rate_max is not None:
        return next_knee_trials(study, search, trials, attempts)
    order, block = max(trial.order for trial in trials) + 1, max(trial.block for trial in trials) + 1
    if any(trial.role == "confirm" for trial in trials):
        return []
    chosen = [winner for winner in winners(study, attempts) if winner.treatment is not None]
    found: list[Trial] = []
    for again in range(search.confirm):
        for winner in shuffled(chosen, study.design.seed, "confirm", again):
            assert winner.treatment is not None
            found.append(make_trial(study, block + again, winner.treatment, order + len(found), "confirm", again + 1))
    return found


def winners(study: Study, attempts: Sequence[Attempt]) -> list[Winner]:
    """One for each condition, in the study's order."""
    search, measured = study.search, _measured(attempts)
    if search is None:
        return []
    if search.rate_max is None:
        return _best_loads(study, search, measured)
    return [_at_knee(knee) for knee in knees(study, search, attempts)]


def _at_knee(knee: Knee) -> Winner:
    condition = " · ".join(level.label for level in knee.treatment)
    carrier = knee.measured[0].facts.carrier if knee.measured else Carrier()
    rates = [*knee.found.values(), *knee.unconfirmed.values()]
    rate_iops = math.exp(float(np.mean(np.log(rates)))) if rates else 0.0
    treatment = knee.treatment if rates or knee.withdrawn else None
    return Winner(condition, "", treatment, rate_iops, knee=knee, carrier=carrier, fresh=knee.fresh)


def _best_loads(study: Study, search: Search, measured: list[Measured]) -> list[Winner]:
    names = list(study.levels())
    loads = [names.index(name) for name in LOADS if name in names]
    conditions: dict[str, list[Treatment]] = {}
    for treatment in treatments(study):
        others = " · ".join(level.label for at, level in enumerate(treatment) if at not in loads)
        conditions.setdefault(others, []).append(treatment)

    def named(treatment: Treatment) -> str:
        return " × ".join(f"{treatment[at].label} {names[at]}" for at in loads)

    rates = _rates(measured)
    found = []
    for condition, group in conditions.items():
        runs = {each: _of(study, measured, each, "replicate") for each in group}
        runs = {each: some for each, some in runs.items() if some and all(holds(search, result) for _, result in some)}
        if not runs:
            found.append(Winner(condition, "", None, 0.0))
            continue
        logs = {each: [math.log(rates[trial.id]) for trial, _ in some] for each, some in runs.items()}
        best = max(logs, key=lambda each: float(np.mean(logs[each])))
        ties = tuple(named(each) for each in logs if each is not best and _ties(logs, best, each))
        again = _of(study, measured, best, "confirm")
        carrier = runs[best][0][1].facts.carrier
        rate_iops = math.exp(float(np.mean(logs[best])))
        found.append(
            Winner(
                condition,
                named(best),
                best,
                rate_iops,
                ties,
                {trial.block: rates[trial.id] for trial, _ in again},
                carrier=carrier,
                fresh=tuple(again),
            )
        )
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
    """The baseline's winner, and the ratio to it of the fresh runs, or the knees, with a 95 % interval: block by block,
    so that drift between blocks cancels. None if there is none, or if a search of either was withdrawn."""
    names = list(study.levels())
    fixed = {name: study.baseline_level(name) for name in study.baseline if name not in LOADS}
    assert winner.treatment is not None
    wanted = {name: level for name, level in zip(names, winner.treatment, strict=True) if name not in LOADS} | fixed
    for other in found:
        ours, theirs = winner.by_block, other.by_block
        both = [block for block in ours if block in theirs]
        if other is winner or other.treatment is None or len(both) < 2:
            continue
        if not (winner.is_comparable and other.is_comparable):
            continue
        levels = dict(zip(names, other.treatment, strict=True))
        if any(levels[name] != level for name, level in wanted.items()):
            continue
        ratios = [ours[block] / theirs[block] for block in both]
        return other, Estimate.ratio(mean_of(np.log(ratios)))
    return None


def _measured(attempts: Sequence[Attempt]) -> list[Measured]:
    return [(each.trial, each.result) for each in attempts if each.status == "done" and each.result is not None]


def _rates(measured: Sequence[Measured]) -> dict[str, float]:
    """Trial id → IOPS; from slices if there are some, so that a disturbed slice does not decide a search."""
    compared = [(trial, result) for trial, result in measured if trial.role in ("replicate", "confirm")]
    by_slices = values_by_session(compared)
    return {trial.id: by_slices.get(trial.id, {}).get("iops", result.rate_iops) for trial, result in compared}


def _of(study: Study, measured: list[Measured], treatment: Treatment, role: str) -> list[Measured]:
    return [(trial, result) for trial, result in measured if _is(study, trial, treatment, role)]


def _is(study: Study, trial: Trial, treatment: Treatment, role: str) -> bool:
    values = zip(study.levels(), treatment, strict=True)
    return trial.role == role and all(trial.treatment.get(name) == level.value for name, level in values)
