"""CPU costs out of a study's runs: the models of `cpu_model`, and what sizing needs of them."""

from dataclasses import dataclass

from iotax.analysis.compare import Model
from iotax.analysis.cpu_model import CpuModel, Load
from iotax.analysis.data import LOAD_FACTORS, RATE, Grid, StudyData
from iotax.analysis.estimate import Estimate
from iotax.analysis.responses import CPU, CPU_INITIATOR, CPU_MACHINE, CPU_TARGET, CpuPart, Response, cpu_ns
from iotax.records import CpuUse

PARTS = (CPU, CPU_INITIATOR, CPU_TARGET, CPU_MACHINE)


@dataclass(frozen=True)
class CpuCosts:
    """One model for each part of the CPU time that was measured in every run."""

    models: dict[str, CpuModel]
    """Response key → model."""
    response: Response
    """The part that answers the question: both ends where both were measured."""
    idle_runs: bool
    """The background comes from runs without load, not from measurements before each block."""

    @property
    def model(self) -> CpuModel:
        return self.models[self.response.key]


@dataclass(frozen=True)
class ServiceCost:
    """CPU time an I/O of one arm, for a queue."""

    arm: str
    cost_us: Estimate
    source: str
    """Where it comes from, in words."""


def cpu_costs(data: StudyData, grid: Grid) -> CpuCosts | None:
    """None where the study does not hold rates, or the runs cannot carry a model: a closed loop gives no dose."""
    if RATE not in grid.factors:
        return None
    models: dict[str, CpuModel] = {}
    levels = {name: [level.label for level in found] for name, found in grid.factors.items()}
    for response in PARTS:
        loads = _loads(data, grid, _PART[response.key])
        if loads is None:
            continue
        try:
            models[response.key] = CpuModel(loads, grid.arms, levels)
        except ValueError:
            continue
    headline = next((r for r in (CPU, CPU_INITIATOR, CPU_MACHINE) if r.key in models), None)
    if headline is None:
        return None
    return CpuCosts(models, headline, any(not run.result.ios for run in data.runs))


def service_costs(costs: CpuCosts | None, models: dict[str, Model], grid: Grid) -> list[ServiceCost]:
    """From the CPU model where there is one; else each arm's geometric mean over its conditions."""
    if costs is not None:
        source = f"CPU model ({costs.response.title.partition(', ')[2]})"
        return [ServiceCost(arm, costs.model.cost_us(arm), source) for arm in costs.model.arms]
    response = next((r for r in (CPU, CPU_INITIATOR) if models[r.key].observed), None)
    if response is None:
        return []
    model, found = models[response.key], []
    for arm in grid.arms:
        cells = [cell for cell in grid.cells() if grid.arm(cell) == arm and cell in model]
        if cells and not grid.is_local(cells[0]):
            source = f"geometric mean of closed-loop runs ({response.title.partition(', ')[2]})"
            found.append(ServiceCost(arm, Estimate.ratio(model.model.level(cells)), source))
    return found


_PART: dict[str, CpuPart] = {
    CPU.key: "both",
    CPU_INITIATOR.key: "initiator",
    CPU_TARGET.key: "target",
    CPU_MACHINE.key: "machine",
}


def _loads(data: StudyData, grid: Grid, part: CpuPart) -> list[Load] | None:
    """None where a run lacks this part. Local has no target: it is left out where the target counts."""
    names = [name for name in grid.others if name not in LOAD_FACTORS]
    loads: list[Load] = []
    for order, run in enumerate(data.runs, start=1):
        cell = grid.cell(run.trial)
        if run.local and part in ("both", "target"):
            continue
        busy = cpu_ns(run.result, part)
        if busy is None:
            return None
        cores = busy / run.result.window.duration_ns
        if not run.result.ios:
            loads.append(Load("", {}, 0.0, cores, None, run.trial.block, order))
            continue
        step = tuple(grid.level(cell, name) for name in grid.others if name in LOAD_FACTORS)
        levels = {name: grid.level(cell, name) for name in names}
        loads.append(Load(grid.arm(cell), levels, run.result.rate_iops, cores, step, run.trial.block, order))
    if all(load.arm for load in loads):
        for background in data.backgrounds:
            busy = _idle_ns(background.cpu, part)
            if busy is not None:
                loads.append(Load("", {}, 0.0, busy / background.duration_ns, None, background.block))
    return loads if any(load.arm for load in loads) else None


def _idle_ns(cpu: CpuUse, part: CpuPart) -> int | None:
    """What a part spends without load."""
    if part == "machine":
        return cpu.machine_ns
    parts = [cpu.part(role) for role in (("initiator", "target") if part == "both" else (part,))]
    known = [each.busy_ns for each in parts if each is not None]
    return sum(known) if len(known) == len(parts) else None
