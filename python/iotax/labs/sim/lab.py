"""Trials in virtual time: sends one document to the engine's simulator for each, and receives the result of a load. The
same study and seed give the same figures on any machine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from iotax.design.plan import trial_seed
from iotax.labs.base import CheckItem, Lab, Outcome, Progress, TrialFailed
from iotax.labs.events import blamed
from iotax.labs.load import run_document
from iotax.labs.media import media_document
from iotax.labs.outcomes import Processors, Timeouts, outcomes_of
from iotax.labs.server import serve_document
from iotax.labs.sim.costs import hypervisor_ns, initiators, trial_costs
from iotax.labs.sim.side_by_side import Begun, SideBySide, at_once
from iotax.records import CpuTime, CpuUse
from iotax.records.interruptions import Happened
from iotax.study import Settings, Study
from iotax.study.events import Action, Happening, happenings
from iotax.study.facts import planned_facts
from iotax.study.sim import Sim, read_costs
from iotax.study.topology import FIBRE_CHANNEL_FRAMES, have_own_connections
from iotax.trial import Background, CpuSecond, Trial, TrialResult

_SILENCE_S = 300.0
"""A simulation says how far it is from its first event on; before that it makes its machines and fills its volume."""
_HOSTS = {
    "initiator": "simulated initiators",
    "hypervisor": "simulated initiators",
    "target": "simulated target",
    "other": "all simulated machines",
}


CostsOf: TypeAlias = Callable[[Study, str, Trial], Mapping[str, Mapping[str, int]]]
"""Study, protocol, trial → side → costs of its threads."""


class SimLab(Lab):
    """Needs nothing but the engine."""

    def __init__(self, study: Study, program: Path, costs_of: CostsOf = trial_costs) -> None:
        assert study.lab.sim is not None, "a study of this lab"
        self._study, self._spec, self._program = study, study.lab.sim, program
        self._costs_of = costs_of
        self._beside: SideBySide | None = None

    def check(self) -> list[CheckItem]:
        about = "; ".join(read_costs(name).about for name in self._study.cost_tables())
        return [CheckItem("ok", "simulation", f"nothing is measured; CPU costs are those of: {about}")]

    def prepare(self, progress: Progress) -> None:
        del progress

    def environment(self) -> dict[str, Any]:
        tables = [_about(name) for name in self._study.cost_tables()]
        return {"simulated": True, "costs": tables[0] if len(tables) == 1 else {"tables": tables}}

    def background(self, block: int) -> Background:
        """Simulated machines do nothing besides."""
        return Background(block=block, started_unix_ns=0, duration_ns=1, cpu=CpuUse([]))

    def expect(self, trials: Sequence[Trial]) -> None:
        if self._beside is None:
            settings = [self._study.settings(trial.treatment) for trial in trials]
            largest = max((each.volume.size for each in settings), default=0)
            self._beside = SideBySide(self._simulated, at_once(largest * self._spec.controllers))
        self._beside.expect(trials)

    def run(self, trial: Trial, progress: Progress) -> Outcome:
        if self._beside is None:
            return self._simulated(trial, progress)
        return self._beside.outcome(trial, progress)

    def close(self) -> None:
        if self._beside is not None:
            self._beside.close()

    def _simulated(self, trial: Trial, progress: Progress, begun: Begun = lambda _: None) -> Outcome:
        settings = self._study.settings(trial.treatment)
        costs = self._costs_of(self._study, settings.endpoint.protocol, trial)
        to_happen = happenings(self._study.events, self._study.design.seed, trial.block, trial.replicate)
        document = simulate_document(self._study, settings, trial_seed(self._study, trial), costs, to_happen)
        try:
            outcome = simulate(self._program, document, progress, begun)
        except TrialFailed as failed:
            raise blamed(failed, begun=bool(to_happen)) from failed
        if outcome.result.verify is not None and outcome.result.verify.wrong_blocks:
            raise TrialFailed("the simulated stacks read wrong data: a bug of iotax", outcome.log)
        result = self._recorded(outcome.result, settings, costs)
        return replace(outcome, result=result.model_copy(update={"events": tuple(map(_happened, to_happen))}))

    def _recorded(self, result: TrialResult, settings: Settings, costs: Mapping[str, Mapping[str, int]]) -> TrialResult:
        """With its facts, and processors that are simulated: guests and hypervisors apart where the costs are."""
        machines = settings.load.clients or 1
        controllers = (settings.sim or self._spec).controllers_there
        processors = Processors(load=machines * self._spec.cores, target=controllers * self._spec.target_cores)
        parts = []
        for part in _apart(result, costs):
            known: dict[str, object] = {"host": _HOSTS[part.role], "window_ns": result.window.duration_ns, "pid": None}
            if part.layer == "machine":
                together = processors.load + (processors.target or 0)
                known |= {"background_ns": 0, "processors": together, "resolution_ns": 0}
            else:
                known["processors"] = processors.target if part.role == "target" else processors.load
            parts.append(CpuTime.model_copy(part, update=known))
        return result.model_copy(
            update={
                "facts": planned_facts(self._study, settings),
                "cpu": CpuUse(parts),
                "cpu_series": [_second_apart(each, costs) for each in result.cpu_series],
            }
        )


def _happened(each: Happening) -> Happened:
    """Virtual time keeps every appointment."""
    undone_ns = each.at_ns + each.lasts_ns
    return Happened(what=each.do.words, asked_ns=each.at_ns, began_ns=each.at_ns, undone_ns=undone_ns)


def _second_apart(second: CpuSecond, costs: Mapping[str, Mapping[str, int]]) -> CpuSecond:
    """With the hypervisor's part of the initiators' where the costs have one."""
    busy_ns, below = dict(second.busy_ns), hypervisor_ns(costs, second.initiators, second.ios or 0)
    if below is not None:
        whole = busy_ns["initiator"]
        below = min(below, whole)
        busy_ns |= {"initiator": whole - below, "hypervisor": below}
    return CpuSecond(at_ns=second.at_ns, duration_ns=second.duration_ns, busy_ns=busy_ns)


def _apart(result: TrialResult, costs: Mapping[str, Mapping[str, int]]) -> list[CpuTime]:
    """The parts of the engine's record, of which the initiators' is divided where their costs are."""
    work = result.simulated.initiators if result.simulated is not None else None
    hypervisor = hypervisor_ns(costs, work, result.ios)
    if hypervisor is None:
        return list(result.cpu)
    parts: list[CpuTime] = []
    for part in result.cpu:
        if part.role != "initiator":
            parts.append(part)
            continue
        below = min(hypervisor, part.busy_ns)
        for role, busy_ns in (("initiator", part.busy_ns - below), ("hypervisor", below)):
            own = {"role": role, "busy_ns": busy_ns, "user_ns": busy_ns, "system_ns": 0}
            parts.append(part.model_copy(update=own))
    return parts


def _about(name: str) -> dict[str, Any]:
    """A table of costs, all of it."""
    table = read_costs(name)
    about = {"name": name, "digest": table.digest(), "drawn": table.has_intervals}
    return about | table.model_dump(mode="json", exclude_none=True)


def simulate(program: Path, document: dict[str, Any], progress: Progress, begun: Begun = lambda _: None) -> Outcome:
    """Runs one to its end. Raises TrialFailed."""
    timeouts = Timeouts(None, connect_s=_SILENCE_S, silence_s=_SILENCE_S)
    return outcomes_of(program, "simulate", document, progress, timeouts=timeouts, begun=begun)[""]


def simulate_document(
    study: Study, settings: Settings, seed: int, costs: Mapping[str, Any], to_happen: Sequence[Happening] = ()
) -> dict[str, Any]:
    """The engine's `simulate` document of one trial. `costs`: side → costs of its threads."""
    lab, topology = settings.sim, settings.topology
    assert lab is not None, "a study of this lab"
    link: dict[str, Any] = {"rate_bits_per_s": topology.link_rate, "delay_ns": topology.link_delay}
    if lab.coalesce:
        link["coalesce_ns"] = lab.coalesce
    if settings.endpoint.protocol not in FIBRE_CHANNEL_FRAMES:
        link["mtu_bytes"] = topology.mtu
        if lab.loss is not None:
            link["lost_per_million"] = round(lab.loss * 10_000)
        if lab.port_buffer is not None:
            link["buffer_bytes"] = lab.port_buffer
    elif lab.credits is not None:
        link["credits"] = lab.credits
    cores = (lab.cores, lab.target_cores)
    document = world(settings, seed, link, costs, cores=cores, threads=lab.threads, events=bool(to_happen))
    document |= {"loads": lab.vms, "seed": study.design.seed ^ seed}
    paths: dict[str, Any] = {
        "controllers": lab.controllers,
        "target_ports": lab.target_ports,
        "ports": topology.paths,
        "policy": topology.path_policy or ("round-robin" if lab.paths_to == "both" else "fixed"),
    }
    if have_own_connections(settings.endpoint.protocol, topology, lab.paths_to):
        paths |= {"portals": True} if topology.paths > 1 or to_happen else {}
    else:
        document["load"]["options"].pop("path_policy", None)
    if to_happen:
        document["happenings"] = [each for happening in to_happen for each in _happenings(happening)]
    if lab.path_failures is not None:
        failures = [{"path": each.path, "at_ns": each.at, "back_ns": each.back} for each in lab.path_failures]
        paths |= {"failures": failures, "noticed_ns": lab.path_noticed}
    document["paths"] = paths | _fabrics(lab, settings.endpoint.protocol) | _partners(study, lab)
    queues = {"luns": lab.luns, "lun_depth": topology.queue_depth, "adapter_depth": lab.adapter_depth}
    if topology.queue_depth is not None or lab.adapter_depth is not None:
        used = {"luns": 1, "lun_depth": paths_used(settings), "adapter_depth": topology.paths_used}
        document["queues"] = {name: value and value * used[name] for name, value in queues.items()}
    if lab.media is not None:
        document["media"] = media_document(lab.media, vms=(settings.load.clients or 1) * lab.vms / lab.controllers)
    return document


def _happenings(of: Happening) -> list[dict[str, Any]]:
    """One for each path."""
    all_of = [_what(of.do, path) for path in of.do.path] or [{"kind": "freeze" if of.do.kill is None else "kill"}]
    return [{"at_ns": of.at_ns, "lasts_ns": of.lasts_ns, "what": what} for what in all_of]


def _what(do: Action, path: int) -> dict[str, Any]:
    if do.access is not None:
        return {"kind": "access", "path": path, "access": do.access}
    if do.every is not None:
        return {"kind": "flap", "path": path, "every_ns": do.every}
    return {"kind": "fail", "path": path}


def paths_used(settings: Settings) -> int:
    """Paths that a client uses at a time; one per port to either controller, if there are both."""
    lab = settings.sim
    assert lab is not None, "a study of this lab"
    return settings.topology.paths_used * (2 if lab.paths_to == "both" and lab.takeover == "none" else 1)


def _partners(study: Study, lab: Sim) -> dict[str, Any]:
    """Document fields about the owners of paths and lost controllers; empty if no treatment of the study has either, so
    that controllers are reported only where they can be compared."""
    asked = {"paths_to", "takeover"}
    labels = study.setups().values()
    if lab.paths_to == "owner" and lab.takeover == "none" and not asked & {*study.levels(), *itertools.chain(*labels)}:
        return {}
    found: dict[str, Any] = {"to": lab.paths_to}
    if lab.takeover != "none":
        found["takeover"] = lab.takeover
    if lab.paths_to != "owner":
        found["interconnect"] = {
            "rate_bits_per_s": lab.interconnect_rate,
            "delay_ns": lab.interconnect_delay,
            "message_ns": lab.interconnect_cpu,
        }
    return found


def _fabrics(lab: Sim, protocol: str) -> dict[str, Any]:
    """Document fields about the devices between ports; empty if there are none."""
    if not lab.switches:
        return {}
    fabrics: dict[str, Any] = {"switches": lab.switches}
    if lab.switches > 1 and lab.trunk_rate is not None:
        fabrics["trunk_rate_bits_per_s"] = lab.trunk_rate
    if lab.switches > 1 and lab.trunk_credits is not None and protocol in FIBRE_CHANNEL_FRAMES:
        fabrics["trunk_credits"] = lab.trunk_credits
    if lab.zones is not None:
        fabrics["zones"] = [{"machines": zone.clients, "ports": zone.ports} for zone in lab.zones.values()]
    return fabrics


def world(
    settings: Settings,
    seed: int,
    link: Mapping[str, Any],
    costs: Mapping[str, Any],
    *,
    cores: tuple[int, int],
    threads: int,
    events: bool = False,
) -> dict[str, Any]:
    """A `simulate` document: clients with `cores[0]` processors each, one load on each, and a server with `cores[1]`
    and `threads`, on memory."""
    protocol = settings.endpoint.protocol
    load = run_document(settings, f"sim:{protocol}", seed=seed, driver="auto", cpus=[], watch_pids={}, events=events)
    served = serve_document(settings.volume, driver="auto", threads=threads, cpus=[])
    return {
        "protocol": protocol,
        "load": load,
        "volume": served["volumes"][0],
        "link": dict(link),
        "initiators": {"cores": cores[0], "costs": initiators(costs)},
        "target": {"cores": cores[1], "costs": costs["target"]},
        "machines": settings.load.clients or 1,
        "threads": threads,
        "seed": seed,
    }
