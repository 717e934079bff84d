"""Hears a task of the engine that measures, from its document to an outcome for each of its loads, and writes into each
result how it came about."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from iotax.engine import EngineError
from iotax.labs.base import Outcome, Progress, Sample, SlicesEnded, Step, TrialFailed
from iotax.places import Event, Place
from iotax.places.here import HERE
from iotax.places.waiting import Engine
from iotax.records import CpuRole, CpuTime, CpuUse, Facts
from iotax.trial import Background, Connected, CpuSecond, Kept, TrialResult
from iotax.units import show_minutes, show_time

CONNECT_S = 30.0
"""Time in which an endpoint must answer."""
SILENCE_S = 15.0
"""Time that a task may take beyond its duration, and the longest silence while it makes progress."""


@dataclass(frozen=True)
class Timeouts:
    """The longest silence of a task."""

    runs_s: float | None
    """Duration of the measurement once all its loads are connected; None if it follows another clock, when every
    message extends the deadline."""
    connect_s: float
    silence_s: float


def outcomes_of(
    program: Path,
    task: str,
    document: dict[str, Any],
    progress: Progress,
    *,
    timeouts: Timeouts,
    loads: Sequence[str] = ("",),
    place: Place = HERE,
    begun: Callable[[Engine], None] = lambda _: None,
    starts: Callable[[int], None] = lambda _: None,
) -> dict[str, Outcome]:
    """Load → result, if all loads ended. Raises TrialFailed with what was known by then.

    `loads` are the loads' ids; the only load of a task has none. `begun` is called with the task as soon as it runs, so
    that another thread can end it; `starts` when the load starts, in ns of this machine's wall clock.
    """
    connected: dict[str, Connected] = {}
    results: dict[str, TrialResult] = {}
    cores: dict[CpuRole, float] = {}
    reason = kind = log = ""
    with _begun(program, task, document, place) as engine:
        begun(engine)
        try:
            began_s = time.monotonic()
            deadline_s = began_s + timeouts.connect_s
            while len(results) < len(loads):
                event = engine.event(deadline_s)
                name = str(event.get("id", ""))
                match event["event"]:
                    case "connected":
                        connected[name] = Connected.model_validate(event)
                        if timeouts.runs_s is not None:
                            # All are connected: results come from here on, each load with the time it takes to start.
                            left_s = timeouts.runs_s if len(connected) == len(loads) else 0.0
                            deadline_s = time.monotonic() + left_s + timeouts.silence_s
                    case "started":
                        starts(int(event["at_unix_ns"]))
                    case "sample":
                        progress(replace(sample_of(event), cores=cores))
                    case "kept":
                        progress(slices_ended(event))
                    case "cpu":
                        cores = cores_of(event)
                    case "simulating":
                        progress(_simulating(event, time.monotonic() - began_s))
                    case "result":
                        results[name] = TrialResult.model_validate(event)
                if timeouts.runs_s is None:
                    deadline_s = max(deadline_s, time.monotonic() + timeouts.silence_s)
        except EngineError as error:
            reason, kind, log = str(error), error.kind, error.log
        except ValidationError as error:
            reason = malformed(error)
    # Only now, with the process ended, is its log whole.
    log = engine.log or log
    if not reason and (silent := [name for name, each in results.items() if not each.ios and not each.idle]):
        within = f"slices of {', '.join(silent)}" if any(silent) else "measured window"
        reason = f"no I/O completed within the {within}"
    if reason:
        raise TrialFailed(reason, log, connected.get(""), kind)
    return {name: Outcome(results[name], connected.get(name), log) for name in loads}


def sample_of(event: Event) -> Sample:
    """The engine's `sample` event."""
    return Sample(
        phase=str(event.get("phase", "run")),
        at_ns=int(event.get("at_ns", 0)),
        rate_iops=float(event.get("iops", 0.0)),
        latency_p50_ns=event.get("latency_p50_ns"),
        latency_p99_ns=event.get("latency_p99_ns"),
        trial=str(event.get("id", "")),
        round=int(event.get("round", 0)),
    )


def slices_ended(event: Event, host: str = "") -> SlicesEnded:
    """The engine's `kept` event. Raises EngineError."""
    try:
        kept = Kept.model_validate({"host": host, "slices": event.get("slices")})
    except ValidationError as error:
        raise EngineError("malformed", malformed(error), host) from error
    return SlicesEnded(str(event.get("id", "")), kept)


def cores_of(event: Event) -> dict[CpuRole, float]:
    """The engine's `cpu` event: processors that each role kept busy."""
    second = CpuSecond.model_validate(event)
    return {role: busy for role in second.busy_ns if (busy := second.cores(role)) is not None}


def malformed(error: ValidationError) -> str:
    """Says which field of the engine's line is not as agreed."""
    first = error.errors()[0]
    at = ".".join(str(part) for part in first["loc"])
    return f"the engine's line does not fit its own interface: {at}: {first['msg']}"


def _begun(program: Path, task: str, document: dict[str, Any], place: Place) -> Engine:
    try:
        return Engine(program, task, document, place=place)
    except EngineError as error:
        raise TrialFailed(str(error), error.log, kind=error.kind) from error


def _simulating(event: Event, took_s: float) -> Step:
    """A simulation's progress in virtual time, and the time for the rest at the same speed."""
    at_ns, until_ns = int(event["at_ns"]), int(event["until_ns"])
    share = min(1.0, at_ns / until_ns) if until_ns else 1.0
    left = show_minutes(took_s * (1 / share - 1)) if share else "unknown time"
    return Step(f"simulated {show_time(at_ns)} of {show_time(until_ns)}, {left} left", share)


THIS_MACHINE = "this machine"


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
        known: dict[str, object] = {"host": THIS_MACHINE, "window_ns": part.window_ns or window_ns}
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
