"""Results that notebooks of earlier versions hold: what they lack of a trial's facts follows from their study.

Before the facts, the vm lab put the CPU of whole guests where the engine puts that of processes.
"""

from __future__ import annotations

from collections.abc import Sequence

from iotax.records import CpuTime, CpuUse, Facts
from iotax.study import Study
from iotax.study.facts import planned_facts
from iotax.trial import Background, Trial, TrialResult


def completed(result: TrialResult, trial: Trial, study: Study, backgrounds: Sequence[Background]) -> TrialResult:
    """The result with its facts; as it is where it has them."""
    if result.facts != Facts():
        return result
    facts = planned_facts(study, study.settings(trial.treatment))
    of_block = next((each for each in backgrounds if each.block == trial.block), None)
    parts = [_part(each, result, facts, study, of_block) for each in result.cpu]
    if facts.lab == "vm":
        # What it called the machine was the sum of both guests, and the target of a guest that holds both ends 0.
        ends = ("both", "hypervisor") if _both_ends(facts) else ("initiator", "target", "hypervisor")
        parts = [each for each in parts if each.role in ends]
    return result.model_copy(update={"facts": facts, "cpu": CpuUse(parts)})


def _part(part: CpuTime, result: TrialResult, facts: Facts, study: Study, background: Background | None) -> CpuTime:
    known: dict[str, object] = {"window_ns": result.window.duration_ns}
    if facts.lab == "vm":
        assert study.lab.vm is not None
        guest = part.role in ("initiator", "target")
        known |= {"layer": "guest", "processors": study.lab.vm.cpus} if guest else {}
        known |= {"role": "both"} if part.role == "initiator" and _both_ends(facts) else {}
        known |= {"background_ns": 0}  # it was taken off already
    elif part.role == "initiator":
        known["processors"] = facts.threads
    elif part.role == "target":
        known["processors"] = facts.target_threads
    elif part.layer == "machine" and background is not None and (idle_ns := background.cpu.machine_ns) is not None:
        known["background_ns"] = round(idle_ns * result.window.duration_ns / background.duration_ns)
    return part.model_copy(update=known)


def _both_ends(facts: Facts) -> bool:
    return facts.shared == "machine" and facts.served == "lab"
