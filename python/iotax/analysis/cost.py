"""CPU costs from a study's runs: the models of `cpu_model`, and the figures for sizing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iotax.analysis.compare import Model
from iotax.analysis.cpu_model import CpuModel, LoadPoint
from iotax.analysis.data import LOAD_FACTORS, RATE, Cell, Grid, StudyData
from iotax.analysis.estimate import Estimate
from iotax.analysis.responses import (
    ASKED,
    CPU,
    CPU_HYPERVISOR,
    CPU_INITIATOR,
    CPU_MACHINE,
    CPU_TARGET,
    IOPS,
    TRANSACTIONS,
    CpuPart,
    Response,
    cpu_ns,
    parts_of,
)
from iotax.analysis.validity import Doubt
from iotax.records import CpuTime, CpuUse
from iotax.trial import Background

PARTS = (CPU, CPU_INITIATOR, CPU_TARGET, CPU_HYPERVISOR, CPU_MACHINE)


@dataclass(frozen=True)
class CpuCosts:
    """One model for each part of the CPU time that was measured in every run."""

    models: dict[str, CpuModel]
    """Response key → model."""
    response: Response
    """The part that answers the question: the first that the study asks for, else both ends where both were
    measured."""
    idle_runs: bool
    """The background comes from runs without load, not from measurements before each block."""

    @property
    def model(self) -> CpuModel:
        return self.models[self.response.key]


@dataclass(frozen=True)
class ServiceCost:
    """CPU time per I/O of one arm, for a queue."""

    arm: str
    cost_us: Estimate
    source: str
    """The load under which it was measured, in words."""
    condition: str | None = None
    """The cell whose runs it uses; None for the CPU model, which uses all."""
    doubt: Doubt | None = None
    """The doubt about those runs."""
    part: str = ""
    """The part whose CPU time it is: "initiator", "initiator and target", …"""


@dataclass(frozen=True)
class NotSized:
    why: str
    arm: str = ""
    """Empty if it holds for all."""
    nearest: str = ""
    """The arm's measured load nearest to the rate, in words."""


@dataclass(frozen=True)
class Sizing:
    """The cost of an I/O near a rate."""

    costs: list[ServiceCost]
    reasons: tuple[NotSized, ...] = ()
    """Why there are none, or none of some arms."""


FLAT = 1.1
"""A cost that changes over the held rates by less than this factor is taken for one at rates that none of them is near:
cores come in whole numbers."""
NEAR = 2.0
"""The cost of an I/O depends on the load, in places by a factor of ten between 1 and 16 outstanding. A load may stand
for a rate within this factor of its own."""


def cpu_costs(data: StudyData, grid: Grid) -> CpuCosts | None:
    """None if the study does not hold rates, or has too few runs for a model: a closed loop does not vary the rate."""
    if RATE not in grid.factors:
        return None
    models: dict[str, CpuModel] = {}
    levels = {name: [level.label for level in found] for name, found in grid.factors.items()}
    for response in PARTS:
        loads = _loads(data, grid, _PART[response.key])
        if loads is None:
            continue
        try:
            models[response.key] = CpuModel(
                loads, grid.arms, levels, drawn=data.costs_drawn, confidence=data.confidence
            )
        except ValueError:
            continue
    headline = next((r for r in headlines(data.study.responses) if r.key in models), None)
    if headline is None:
        return None
    return CpuCosts(models, headline, any(not run.result.ios for run in data.runs))


def headlines(words: Sequence[str]) -> list[Response]:
    """The parts of CPU per I/O that may answer a study which asks for these responses, the best first."""
    asked = [ASKED[word] for word in words if ASKED.get(word) in PARTS]
    # If a target cannot be measured, the initiator's part stands for both.
    wanted = [each for one in asked for each in ((CPU, CPU_INITIATOR) if one is CPU else (one,))]
    return list(dict.fromkeys([*wanted, CPU, CPU_INITIATOR, CPU_HYPERVISOR, CPU_MACHINE]))


def service_costs(
    costs: CpuCosts | None, models: dict[str, Model], grid: Grid, rate_iops: float, words: Sequence[str] = ()
) -> Sizing:
    """About this rate: from the CPU model where the study held rates, else of the load whose throughput was nearest.
    Never a mean over loads. `words`: the responses that the study asks for."""
    if costs is not None:
        return _by_model(costs, rate_iops)
    response = next((r for r in headlines(words) if models[r.key].observed), None)
    if response is None and models[TRANSACTIONS.key].observed:
        return Sizing([], (NotSized("the load counts transactions"),))
    if response is None:
        return Sizing([], (NotSized("no run measured CPU time"),))
    return _by_load(models[response.key], models[IOPS.key], grid, rate_iops)


def _by_load(model: Model, throughput: Model, grid: Grid, rate_iops: float) -> Sizing:
    """Each arm under the load of its own whose throughput was nearest, all other factors being the same for all."""
    fixed = [name for name in grid.others if name not in LOAD_FACTORS]
    groups: dict[Cell, dict[str, list[tuple[float, Cell]]]] = {}
    for cell in grid.cells():
        rate = throughput.absolute(cell)
        if cell in model and rate is not None and not grid.is_local(cell):
            alike = groups.setdefault(tuple(grid.level(cell, name) for name in fixed), {})
            alike.setdefault(grid.arm(cell), []).append((rate.value, cell))
    if not groups:
        return Sizing([], (NotSized("no run over a protocol measured CPU time"),))
    chosen = [{arm: min(some, key=lambda each: _off(each[0], rate_iops)) for arm, some in group.items()}
              for group in groups.values()]  # fmt: skip
    best = min(chosen, key=lambda arms: sum(_off(rate, rate_iops) for rate, _ in arms.values()) / len(arms))
    costs, reasons = [], []
    part = model.response.title.partition(", ")[2]
    for arm, (rate, cell) in best.items():
        known = model.absolute(cell)
        if known is not None and _off(rate, rate_iops) <= math.log(NEAR):
            where = f"{grid.condition(cell)}, {rate:,.0f} IOPS" if grid.condition(cell) else f"{rate:,.0f} IOPS"
            source = f"the measured load nearest to {rate_iops:,.0f} IOPS ({where}; {part})"
            costs.append(ServiceCost(arm, known, source, grid.condition(cell), part=part))
        else:
            why = (
                f"CPU per I/O depends on the load, and none was measured within a factor of {NEAR:g} of "
                f"{rate_iops:,.0f} IOPS"
            )
            where = f" ({grid.condition(cell)})" if grid.condition(cell) else ""
            reasons.append(NotSized(why, arm, f"{rate:,.0f} IOPS{where}"))
    return Sizing(costs, tuple(reasons))


def _by_model(costs: CpuCosts, rate_iops: float) -> Sizing:
    """The model's cost, which holds for every rate if the model is a line; if it bends, the cost at the nearest held
    rate."""
    model, part = costs.model, costs.response.title.partition(", ")[2]
    busy = [load for load in model.loads if load.rate_iops > 0]
    rates = {
        step: float(np.mean([load.rate_iops for load in busy if load.step == step]))
        for step in dict.fromkeys(load.step for load in busy)
    }
    mean = f", mean over {', '.join(name.replace('_', ' ') for name in model.factors)}" if model.factors else ""
    if not model.bends:
        beyond = not min(rates.values()) / NEAR <= rate_iops <= max(rates.values()) * NEAR
        far = f", taken as a line to {rate_iops:,.0f}" if beyond else ""
        source = f"CPU model over held rates, {_reach(list(rates.values()))}{far}{mean} ({part})"
        return Sizing([ServiceCost(arm, model.cost_us(arm), source) for arm in model.arms])
    nearest = min(rates, key=lambda step: _off(rates[step], rate_iops))
    far = _off(rates[nearest], rate_iops) > math.log(NEAR)
    change = max((max(each.ratio, 1 / each.ratio) for each in model.curvatures), default=math.inf)
    if far and change > FLAT:
        reason = (
            f"CPU per I/O changes with the rate, and no rate within a factor of {NEAR:g} of {rate_iops:,.0f} IOPS was "
            f"held; nearest: {rates[nearest]:,.0f}"
        )
        return Sizing([], (NotSized(reason),))
    try:
        near = [load for load in model.loads if load.rate_iops <= 0 or load.step == nearest]
        own = CpuModel(near, model.arms, model.factors, drawn=model.drawn, confidence=model.confidence)
    except ValueError as error:
        return Sizing([], (NotSized(str(error)),))
    source = f"CPU model at the held rate nearest to {rate_iops:,.0f} IOPS, {rates[nearest]:,.0f}{mean} ({part})"
    if far:
        source += (
            f"; over the held rates the cost changed by {100 * (change - 1):.1f} % at most, and is taken to be "
            f"the same at {rate_iops:,.0f}"
        )
    return Sizing([ServiceCost(arm, own.cost_us(arm), source) for arm in own.arms])


def _off(rate: float, asked: float) -> float:
    """On the log scale."""
    return abs(math.log(rate / asked))


def _reach(rates: Sequence[float]) -> str:
    low, high = f"{min(rates):,.0f}", f"{max(rates):,.0f}"
    return f"{low} IOPS" if low == high else f"{low} to {high} IOPS"


_PART: dict[str, CpuPart] = {
    CPU.key: "both",
    CPU_INITIATOR.key: "initiator",
    CPU_TARGET.key: "target",
    CPU_HYPERVISOR.key: "hypervisor",
    CPU_MACHINE.key: "machine",
}


def _loads(data: StudyData, grid: Grid, part: CpuPart) -> list[LoadPoint] | None:
    """None if a run lacks this part. Local has no target and is left out if the target counts. A background measured in
    blocks is fitted as a treatment, not subtracted from the runs beforehand."""
    names = [name for name in grid.others if name not in LOAD_FACTORS]
    loads: list[LoadPoint] = []
    backgrounds: dict[int, list[Background]] = {}
    for each in data.backgrounds:
        backgrounds.setdefault(each.block, []).append(each)
    idle: dict[int, list[LoadPoint]] = {}
    for order, run in enumerate(data.runs, start=1):
        cell = grid.cell(run.trial)
        block = run.trial.replicate if data.costs_drawn else run.trial.block
        if run.local and part in ("both", "target"):
            continue
        spent_ns = cpu_ns(run.result, part)
        if spent_ns is None or run.result.database is not None:
            return None
        parts = parts_of(run.result, part)
        without = _without_load(backgrounds.get(run.trial.block, ()), parts)
        if without:
            spent_ns = sum(each.own_ns for each in parts)
            idle[run.trial.block] = without
        cores = spent_ns / run.result.window.duration_ns
        if not run.result.ios:
            loads.append(LoadPoint("", {}, 0.0, cores, None, block, order))
            continue
        step = tuple(grid.level(cell, name) for name in grid.others if name in LOAD_FACTORS)
        levels = {name: grid.level(cell, name) for name in names}
        loads.append(LoadPoint(grid.arm(cell), levels, run.result.rate_iops, cores, step, block, order))
    if all(load.arm for load in loads):
        loads += [each for block in sorted(idle) for each in idle[block]]
    return loads if any(load.arm for load in loads) else None


def _without_load(backgrounds: Sequence[Background], parts: Sequence[CpuTime]) -> list[LoadPoint]:
    """CPU time of these parts in each interval; none if one of them was not read in some interval."""
    spent = [(each, _idle_ns(each.cpu, parts)) for each in backgrounds]
    if any(idle_ns is None for _, idle_ns in spent):
        return []
    return [LoadPoint("", {}, 0.0, (idle_ns or 0) / each.duration_ns, None, each.block) for each, idle_ns in spent]


def _idle_ns(cpu: CpuUse, of: Sequence[CpuTime]) -> int | None:
    """CPU time of these parts without load; None if one of them was not read."""
    kinds = dict.fromkeys((each.role, each.layer) for each in of)
    found = [cpu.part(role, layer) for role, layer in kinds]
    known = [each.own_ns for each in found if each is not None]
    return sum(known) if found and len(known) == len(found) else None
