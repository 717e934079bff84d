"""Writes into a result how it came about."""

from __future__ import annotations

from dataclasses import dataclass

from iotax.records import CpuTime, CpuUse, Facts
from iotax.trial import Background, CpuSecond, TrialResult

HERE = "this machine"


@dataclass(frozen=True)
class Processors:
    """Number of processors that each process could use."""

    load: int
    target: int | None = None


def usable(threads: int, pinned: int, allowed: int) -> int:
    """Processors for this many threads: those that they are pinned to, or as many as the machine allows."""
    return min(threads, pinned or allowed)


def recorded(
    result: TrialResult, facts: Facts, processors: Processors, background: Background | None = None
) -> TrialResult:
    """The result of a load on this machine, with its facts. `background` is that of the trial's block."""
    window_ns = result.checks.cpu_window_ns or result.window.duration_ns
    parts = []
    for part in result.cpu:
        known: dict[str, object] = {"host": HERE, "window_ns": part.window_ns or window_ns}
        if part.layer == "machine":
            known["background_ns"] = _background_ns(background, window_ns)
        elif part.role in ("initiator", "target"):
            known["processors"] = processors.load if part.role == "initiator" else processors.target
        parts.append(CpuTime.model_copy(part, update=known))
    found = result.model_copy(update={"facts": facts, "cpu": CpuUse(parts)})
    return found.model_copy(update={"cpu_series": [_of_path(each, found) for each in result.cpu_series]})


def _of_path(second: CpuSecond, result: TrialResult) -> CpuSecond:
    """A path in the kernel works outside the load process: over time, too, the machine stands for it."""
    parts = result.role("initiator").parts
    if not parts or parts[0].layer == "process":
        return second
    return second.model_copy(update={"busy_ns": {**second.busy_ns, "initiator": second.busy_ns["machine"]}})


def _background_ns(background: Background | None, window_ns: int) -> int | None:
    idle_ns = background.cpu.machine_ns if background is not None else None
    if background is None or idle_ns is None or background.duration_ns <= 0:
        return None
    return round(idle_ns * window_ns / background.duration_ns)
