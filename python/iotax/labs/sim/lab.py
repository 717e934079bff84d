"""Trials in virtual time: one document to the engine's simulator for each, and the result of a load as the answer.

The same study and seed give the same figures on any machine.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from iotax.design.plan import trial_seed
from iotax.labs.base import Finding, Lab, Outcome, Progress, TrialFailed
from iotax.labs.facts import Processors
from iotax.labs.load import run_document, run_load
from iotax.labs.server import serve_document
from iotax.records import CpuTime, CpuUse
from iotax.study import Settings, Study
from iotax.study.facts import planned_facts
from iotax.study.sim import Sim, read_costs
from iotax.trial import Background, Trial, TrialResult

SILENCE_S = 3600.0
"""A simulation says nothing until it is done, and takes as long as there is to simulate."""
_HOSTS = {"initiator": "simulated initiators", "target": "simulated target", "other": "all simulated machines"}


class SimLab(Lab):
    """Needs nothing but the engine."""

    def __init__(self, study: Study, program: Path) -> None:
        assert study.lab.sim is not None, "a study of this lab"
        self._study, self._spec, self._program = study, study.lab.sim, program

    def check(self) -> list[Finding]:
        about = read_costs(self._spec.costs).about
        return [Finding("ok", "simulation", f"nothing is measured; CPU costs are those of: {about}")]

    def prepare(self, progress: Progress) -> None:
        del progress

    def environment(self) -> dict[str, Any]:
        table = read_costs(self._spec.costs).model_dump(mode="json")
        digest = hashlib.sha256(repr(table).encode()).hexdigest()
        return {"simulated": True, "costs": {"name": self._spec.costs, "digest": digest, **table}}

    def background(self, block: int) -> Background:
        """Simulated machines do nothing besides."""
        return Background(block=block, started_unix_ns=0, duration_ns=1, cpu=CpuUse([]))

    def run(self, trial: Trial, progress: Progress) -> Outcome:
        settings = self._study.settings(trial.treatment)
        document = simulate_document(self._study, self._spec, settings, trial_seed(self._study, trial))
        outcome = run_load(self._program, document, progress, task="simulate", silence_s=SILENCE_S)
        if outcome.result.verify is not None and outcome.result.verify.wrong_blocks:
            raise TrialFailed("the simulated stacks read wrong data: a bug of iotax", outcome.log)
        return replace(outcome, result=self._recorded(outcome.result, settings))

    def close(self) -> None:
        pass

    def _recorded(self, result: TrialResult, settings: Settings) -> TrialResult:
        """With its facts, and processors that are simulated."""
        machines = settings.load.clients or 1
        processors = Processors(load=machines * self._spec.cores, target=self._spec.target_cores)
        parts = []
        for part in result.cpu:
            known: dict[str, object] = {"host": _HOSTS[part.role], "window_ns": result.window.duration_ns, "pid": None}
            if part.layer == "machine":
                together = processors.load + (processors.target or 0)
                known |= {"background_ns": 0, "processors": together, "resolution_ns": 0}
            else:
                known["processors"] = processors.load if part.role == "initiator" else processors.target
            parts.append(CpuTime.model_copy(part, update=known))
        return result.model_copy(update={"facts": planned_facts(self._study, settings), "cpu": CpuUse(parts)})


def simulate_document(study: Study, lab: Sim, settings: Settings, seed: int) -> dict[str, Any]:
    """The engine's `simulate` document of one trial."""
    protocol, topology = settings.endpoint.protocol, settings.topology
    sides = read_costs(lab.costs).protocols[protocol]
    load = run_document(settings, f"sim:{protocol}", seed=seed, driver="auto", cpus=[], watch_pids={})
    served = serve_document(settings.volume, driver="auto", threads=lab.threads, cpus=[])
    document: dict[str, Any] = {
        "protocol": protocol,
        "load": load,
        "volume": served["volumes"][0],
        "link": {
            "rate_bits_per_s": topology.link_rate,
            "delay_ns": topology.link_delay,
            "mtu_bytes": topology.mtu,
        },
        "initiators": {"cores": lab.cores, "costs": sides.initiator.told()},
        "target": {"cores": lab.target_cores, "costs": sides.target.told()},
        "machines": settings.load.clients or 1,
        "loads": lab.vms,
        "threads": lab.threads,
        "seed": study.design.seed ^ seed,
    }
    if lab.media is not None:
        document["media"] = {
            "servers": lab.media.servers,
            "service_ns": lab.media.service,
            "distribution": lab.media.distribution,
        }
    return document
