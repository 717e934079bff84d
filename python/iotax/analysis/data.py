"""The input of an analysis: the study, every attempt, and the machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

from iotax.analysis.multiplicity import stopped_confidence
from iotax.analysis.responses import Run
from iotax.analysis.rounds import values_by_session
from iotax.analysis.validity import Check, against_rules, check_run
from iotax.records import Conditioning
from iotax.study import Level, Omissions, Study
from iotax.study.endpoint import Endpoint
from iotax.trial import Attempt, Background, Look, Trial

Cell: TypeAlias = tuple[str, ...]
"""The labels of a treatment's levels, in the order of the study's factors."""

PROTOCOL = "protocol"
RATE = "rate_iops"
LOAD_FACTORS = ("outstanding", "workers", RATE)
"""Factors with which a load asks more of the same path."""


@dataclass(frozen=True)
class Excluded:
    """A run that a rule of the study leaves out, and why."""

    run: Run
    findings: list[Check]


@dataclass(frozen=True)
class StudyData:
    """One run of a study, as the notebook holds it. Pure data: no file, no lab."""

    study: Study
    attempts: Sequence[Attempt]
    planned: Sequence[Trial] = ()
    backgrounds: Sequence[Background] = ()
    preconditionings: Sequence[Conditioning] = ()
    """Steps that brought volumes into a steady state."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    wall_ns: int = 0
    """Total time of all invocations, each from its start to the end of its last attempt; 0 if unknown."""
    looks: Sequence[Look] = ()
    """Each time replicates were added after results were there."""
    earlier_runs: int = 0
    """Runs of the same study in the notebook with results: each had its own chance of a false alarm."""

    @cached_property
    def measured(self) -> list[Run]:
        """The attempt that counts of each trial, in the order in which they ran."""
        return [run for run in self._done("replicate") if not run.result.left_out]

    @cached_property
    def apart(self) -> list[Run]:
        """Trials of several hosts that ran without some of them: other treatments than the study's, compared with
        nothing."""
        return [run for run in self._done("replicate") if run.result.left_out]

    @cached_property
    def checks(self) -> dict[str, list[Check]]:
        """Trial id → findings, of every trial that was measured."""
        return {run.trial.id: check_run(run) for run in self.measured}

    @cached_property
    def excluded(self) -> list[Excluded]:
        """Runs that the study's own rules leave out; a report lists and counts them."""
        found = [Excluded(run, against_rules(self.checks[run.trial.id], self.study.exclude)) for run in self.measured]
        return [each for each in found if each.findings]

    @cached_property
    def runs(self) -> list[Run]:
        """Runs that are compared: all measured runs except those that the study's rules leave out."""
        out = {each.run.trial.id for each in self.excluded}
        return [run for run in self.measured if run.trial.id not in out]

    @property
    def simulated(self) -> bool:
        """Whether the runs are simulated."""
        return any(run.result.facts.simulated for run in self.measured)

    @property
    def costs_drawn(self) -> bool:
        """Whether each replicate of a simulation drew its costs from the intervals of their table."""
        return bool(self.environment.get("costs", {}).get("drawn"))

    @property
    def confidence(self) -> float:
        """The confidence that makes intervals of ratios hold with 95 %: higher if the study may stop by their width,
        and if replicates were added after looks (Bonferroni's share of each)."""
        design = self.study.design
        early = design.stop is not None and design.stop.at_least < design.replicates
        alone = stopped_confidence(design.stop.at_least) if early and design.stop else 0.95
        return 1 - (1 - alone) / (1 + len(self.looks))

    @property
    def measuring_share(self) -> float | None:
        """The measured windows' share of the wall time. None if unknown, e.g. if windows were timed by a guest's clock
        that may count instructions."""
        done = [a.result for a in self.attempts if a.status == "done" and a.result]
        windows_ns = sum(result.window.duration_ns for result in done)
        if not 0 < windows_ns <= self.wall_ns or any(result.facts.clock != "time" for result in done):
            return None
        return windows_ns / self.wall_ns

    @cached_property
    def sentinels(self) -> list[Run]:
        """Runs of the baseline that only look for drift, in the order in which they ran; no part of any comparison."""
        return [run for run in self._done("sentinel") if not run.result.left_out]

    def _done(self, role: str) -> list[Run]:
        kept = {
            a.trial.id: (a.trial, a.result)
            for a in self.attempts
            if a.status == "done" and a.result is not None and a.trial.role == role
        }
        values = values_by_session(kept.values(), self.study.design.hard_to_change)
        done = {name: Run(trial, result, values.get(name, {})) for name, (trial, result) in kept.items()}
        return sorted(done.values(), key=lambda run: run.result.window.start_unix_ns)

    @property
    def planned_count(self) -> int:
        """Trials that the comparison was to have; 0 where the plan is not known."""
        return sum(trial.compared for trial in self.planned)

    @cached_property
    def untried(self) -> list[Trial]:
        """Planned trials that the comparison lacks because they have not run, or were interrupted."""
        tried = {each.trial.id for each in self.attempts if each.status in ("done", "failed")}
        return [trial for trial in self.planned if trial.compared and trial.id not in tried]

    @cached_property
    def not_done(self) -> list[Attempt]:
        """Failed and interrupted attempts; a report shows each of them."""
        return [a for a in self.attempts if a.status not in ("done", "running")]

    @property
    def background_cores(self) -> float | None:
        """Busy processors without load, over all measurements of it."""
        spans = [(ns, b.duration_ns) for b in self.backgrounds if (ns := b.cpu.machine_ns) is not None]
        return sum(busy for busy, _ in spans) / sum(length for _, length in spans) if spans else None


class Grid:
    """The study's treatments as arms to compare under conditions that all share.

    An arm is a combination of levels of the factors that the baseline names; a condition is one of the others'.
    """

    def __init__(self, study: Study) -> None:
        self.factors: dict[str, tuple[Level, ...]] = study.levels()
        self._arm_of: dict[Cell, str] = {}
        self._labels = {(name, level.value): level.label for name, levels in self.factors.items() for level in levels}
        self.compared = study.compared
        self.others = [name for name in self.factors if name not in self.compared]
        # A name that all treatments have in common tells no two of them apart.
        common = {f for f in self.others if _is_one_name(self.factors[f])}
        self._told = [name for name in self.others if name not in common]
        self.hard = study.design.hard_to_change
        omitted = Omissions(study)
        self.arms = [
            " · ".join(level.label for level in levels)
            for levels in product(*(self.factors[f] for f in self.compared))
            if dict(zip(self.compared, levels, strict=True)) not in omitted
        ]
        self.conditions = [
            " · ".join(f"{name.replace('_', ' ')} {label}" for name, label in zip(self._told, labels, strict=True))
            for labels in product(*([x.label for x in self.factors[f]] for f in self._told))
        ]
        self.baseline_arm = " · ".join(
            (study.baseline_level(name) or self.factors[name][0]).label for name in self.compared
        )
        endpoints = study.endpoints() if PROTOCOL in self.factors else {}
        self.local = _floor(study, endpoints)

    def cell(self, trial: Trial) -> Cell:
        return tuple(
            self._labels.get((name, trial.treatment.get(name)), str(trial.treatment.get(name))) for name in self.factors
        )

    def cells(self) -> list[Cell]:
        """Every cell of the full factorial, in the study's order."""
        return list(product(*([level.label for level in levels] for levels in self.factors.values())))

    def arm(self, cell: Cell) -> str:
        # Asked of every run for every comparison.
        if cell not in self._arm_of:
            compared = (label for name, label in zip(self.factors, cell, strict=True) if name in self.compared)
            self._arm_of[cell] = " · ".join(compared)
        return self._arm_of[cell]

    def condition(self, cell: Cell, unnamed: int = 0) -> str:
        """ "block size 4KiB · read 50%"; of the first `unnamed` factors the levels alone."""
        told = [(name, label) for name, label in zip(self.factors, cell, strict=True) if name in self._told]
        return " · ".join(
            label if at < unnamed else f"{name.replace('_', ' ')} {label}" for at, (name, label) in enumerate(told)
        )

    def hard_levels(self, cell: Cell) -> Cell:
        """The levels of hard-to-change factors: the treatment of a whole plot."""
        return tuple(label for name, label in zip(self.factors, cell, strict=True) if name in self.hard)

    def is_local(self, cell: Cell) -> bool:
        return self.local is not None and self.local == self.level(cell, PROTOCOL)

    def local_of(self, cell: Cell) -> Cell | None:
        """The same treatment without a protocol; None if the study has none or the cell is it."""
        if self.local is None or self.is_local(cell):
            return None
        return self.with_levels(cell, {PROTOCOL: self.local})

    def baseline_of(self, cell: Cell) -> Cell:
        """The same condition in the baseline arm."""
        return self.with_levels(cell, dict(zip(self.compared, self.baseline_arm.split(" · "), strict=True)))

    def with_levels(self, cell: Cell, levels: Mapping[str, str]) -> Cell:
        """The cell with other levels of some factors, by label."""
        return tuple(levels.get(name, label) for name, label in zip(self.factors, cell, strict=True))

    def level(self, cell: Cell, factor: str) -> str:
        return cell[list(self.factors).index(factor)] if factor in self.factors else ""

    def value(self, cell: Cell, factor: str) -> Any:
        """The level as computed with, not as shown."""
        label = self.level(cell, factor)
        return next(level.value for level in self.factors[factor] if level.label == label)

    @cached_property
    def x_factor(self) -> str | None:
        """The numeric factor with the most levels, beside those compared: the x axis of a chart."""
        numeric = [
            name
            for name in self.others
            if len(self.factors[name]) > 1
            and all(isinstance(x.value, int | float) and not isinstance(x.value, bool) for x in self.factors[name])
        ]
        return max(numeric, key=lambda name: len(self.factors[name]), default=None)

    @cached_property
    def facet_factors(self) -> list[str]:
        return [name for name in self.others if name != self.x_factor and len(self.factors[name]) > 1]

    def facet(self, cell: Cell) -> str:
        """The levels that distinguish this cell's panel; empty if one panel shows all."""
        return " · ".join(f"{name.replace('_', ' ')} {self.level(cell, name)}" for name in self.facet_factors)


def _is_one_name(levels: Sequence[Level]) -> bool:
    return len(levels) == 1 and isinstance(levels[0].value, str)


def _floor(study: Study, endpoints: Mapping[str, Endpoint]) -> str | None:
    """The level that reaches the same volume without a protocol: the lab's own, or the one named by the study. Other
    paths may hold anything, including another protocol."""
    served = [label for label, endpoint in endpoints.items() if endpoint.embedded and endpoint.protocol == "local"]
    return study.floor or (served[0] if len(served) == 1 else None)
