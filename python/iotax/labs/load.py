"""One task of the load process: the document that describes it, and its results. Loads that bring a volume into a
steady state are a trial's, except for what they write and where."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from iotax.engine import EngineError
from iotax.labs.base import Outcome, Progress, Step, TrialFailed, Worked
from iotax.labs.media import data_document
from iotax.labs.outcomes import CONNECT_S, SILENCE_S, Timeouts, malformed, outcomes_of
from iotax.places import Event, Place
from iotax.places.here import HERE
from iotax.places.waiting import Engine
from iotax.protocols import known
from iotax.records import CpuUse, Record
from iotax.study.database import buffers_bytes
from iotax.study.model import Load, Oltp, Settings
from iotax.study.rules import ZONE_BYTES
from iotax.study.topology import Topology
from iotax.trial import Background, TrialResult, Window

SAMPLE_NS = 500_000_000
_EVENT_SAMPLE_NS = 100_000_000
BACKGROUND_NS = 500_000_000
_COUNT_NS = 10_000_000
"""Intervals in which the I/Os of a run with events are counted."""
_READ_BACK_BYTES_PER_S = 512 << 10
"""Slower than this, reading back counts as hung. The engine itself gives up where nothing comes for 30 s."""
_SECTOR_BYTES = 512


class Checked(Record):
    """The result of `check` at an endpoint."""

    size_bytes: int
    block_size_bytes: int = _SECTOR_BYTES
    max_io_bytes: int | None = None
    """Maximum bytes of one I/O; None without a limit."""
    read_only: bool = False
    holds: str
    """zeros, pattern, foreign, or nothing where a volume can be made."""
    what: str | None = None
    at_bytes: int | None = None
    scanned_bytes: int = 0
    held: str | None = None
    """Other users of a local file or device."""
    identity: dict[str, int] | None = None
    """Identity of the local file or device that was checked."""


class _Idle(Record):
    window: Window
    cpu: CpuUse


@dataclass(frozen=True)
class Permission:
    """Why a local file or device, or an endpoint, may be written to."""

    judged: dict[str, int] | None = None
    """The identity of what was checked and is held."""
    destroy: bool = False
    """Whether the user allowed overwriting its data."""

    def said(self, endpoint: str) -> dict[str, Any]:
        """The form of the engine's documents."""
        return ({"judged": self.judged} if self.judged else {}) | ({"destroy": endpoint} if self.destroy else {})


def run_document(
    settings: Settings,
    endpoint: str,
    *,
    seed: int,
    driver: str,
    cpus: list[int],
    watch_pids: dict[str, int],
    permission: Permission = Permission(),
    events: bool = False,
) -> dict[str, Any]:
    """The engine's `run` task for one treatment, with what is seen of a run that has events."""
    load = settings.load
    document = {
        "task": "run",
        "endpoint": endpoint,
        "options": options(settings),
        "workers": load.workers,
        "outstanding": load.outstanding,
        "threads": load.threads,
        "block_size_bytes": load.block_size,
        "read_percent": _number(load.read),
        "random_percent": _number(load.random),
        "working_set_bytes": settings.working_set_bytes,
        "working_set_offset_bytes": 0,
        **data_document(settings.volume),
        "pacing": _pacing(settings),
        "warmup_ns": load.warmup,
        "runtime_ns": load.runtime,
        "sample_ns": min(SAMPLE_NS, load.runtime),
        "seed": seed,
        "verify": load.verify,
        "filled": settings.volume.fill == "pattern" and settings.precondition is None,
        "driver": driver,
        "cpus": cpus,
        "polling": settings.connection.polling,
        "watch_pids": watch_pids,
        **({"durable": True} if load.durable else {}),
        **({"fsync": load.fsync} if load.fsync else {}),
        **permission.said(endpoint),
        **(_around_events(load) if events else {}),
    }
    if load.oltp is not None:
        return document | {"oltp": oltp_document(settings.working_set_bytes, load.oltp)}
    if load.streams:
        return document | {"streams": _streams(settings)}
    return document | {"shared": True} if load.shared else document


def _around_events(load: Load) -> dict[str, Any]:
    """I/Os are counted and their latencies told in short intervals, and afterwards every written block is read back,
    where a worker knows what was written last."""
    known = load.verify and load.oltp is None and not any(each.shared for each in load.accesses())
    intervals = {"count_ns": _COUNT_NS, "sample_ns": min(_EVENT_SAMPLE_NS, load.runtime)}
    return intervals | ({"read_back": True} if known else {})


def after_s(document: Mapping[str, Any]) -> float:
    """What a load of the engine may take beyond its window, besides what any takes."""
    return document["working_set_bytes"] / _READ_BACK_BYTES_PER_S if document.get("read_back") else 0.0


def oltp_document(database_bytes: int, oltp: Oltp) -> dict[str, int]:
    return {"memory_bytes": buffers_bytes(oltp, database_bytes), "checkpoint_ns": oltp.checkpoint}


def _pacing(settings: Settings) -> dict[str, Any]:
    load = settings.load
    if load.rate_iops is None:
        return {"kind": "closed"}
    return {"kind": "open", "rate_iops": load.rate_iops, "arrivals": load.arrivals, "backlog_max": load.backlog}


def _streams(settings: Settings) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "share": each.share,
            "block_size_bytes": each.block_size,
            "read_percent": _number(each.read),
            "random_percent": _number(each.random),
        }
        | ({"shared": True} if each.shared else {})
        for each in settings.load.accesses()
    ]


def options(settings: Settings) -> dict[str, Any]:
    """Connection settings that the protocol has."""
    connection = settings.connection
    if settings.endpoint.kernel:
        return {}
    protocol = known(settings.endpoint.protocol)
    asked = connection.model_dump(include=set(protocol.options), exclude_none=True) if protocol else {}
    if not asked.get("initiator"):
        asked.pop("initiator", None)
    return asked | (_path_options(settings.topology) if protocol and protocol.has_paths else {})


def _path_options(topology: Topology) -> dict[str, Any]:
    """What the engine's initiator is told of its paths."""
    asked = {"keep_alive_ns": topology.keep_alive, "path_policy": topology.path_policy}
    if topology.path_retry != Topology().path_retry:
        asked["path_retry"] = topology.path_retry
    return {name: value for name, value in asked.items() if value is not None}


def run_load(
    program: Path,
    document: dict[str, Any],
    progress: Progress,
    *,
    timeouts: Timeouts | None = None,
    place: Place = HERE,
    starts: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Runs one trial's load to its end; calls `starts` when its window starts. Raises TrialFailed with what was known
    by then."""
    runs_s = (document["warmup_ns"] + document["runtime_ns"]) / 1e9
    timeouts = timeouts or Timeouts(runs_s, CONNECT_S, SILENCE_S)
    timeouts = replace(timeouts, silence_s=timeouts.silence_s + after_s(document))

    def load_starts(at_unix_ns: int) -> None:
        starts(at_unix_ns + document["warmup_ns"])

    return outcomes_of(program, "load", document, progress, timeouts=timeouts, place=place, starts=load_starts)[""]


def run_check(
    program: Path,
    settings: Settings,
    endpoint: str,
    progress: Progress,
    *,
    judged: dict[str, int] | None = None,
    look_bytes: int | None = None,
    volume_bytes: int | None = None,
) -> Checked:
    """Checks the contents of the endpoint: all of it, or `look_bytes` from its start. Raises EngineError. With
    `volume_bytes`: whether a server could have a volume of that size at a local path. `judged` is the identity of a
    local file or device that the caller holds."""
    document: dict[str, Any] = {
        "task": "check",
        "endpoint": endpoint,
        "options": options(settings),
        "working_set_bytes": None if volume_bytes is not None else settings.working_set_bytes,
        "judged": judged,
        "look_bytes": look_bytes,
        "volume_bytes": volume_bytes,
    }
    document = {name: value for name, value in document.items() if value is not None}
    step = steps(f"checking what data {endpoint} holds", progress)
    return Checked.model_validate(run_task(program, document, "checked", step))


def run_fill(program: Path, settings: Settings, endpoint: str, *, permission: Permission, progress: Progress) -> None:
    """Writes the pattern over the working set. Raises EngineError."""
    document = {
        "task": "fill",
        "endpoint": endpoint,
        "options": options(settings),
        "working_set_bytes": settings.working_set_bytes,
        **data_document(settings.volume),
        **permission.said(endpoint),
    }
    run_task(program, document, "filled", steps(f"writing the pattern to {endpoint}", progress))


def run_idle(program: Path, block: int, *, cpus: list[int], watch_pids: dict[str, int]) -> Background:
    """The machine and the watched processes without load. Raises TrialFailed."""
    document = {"task": "idle", "runtime_ns": BACKGROUND_NS, "cpus": cpus, "watch_pids": watch_pids}
    try:
        idle = _Idle.model_validate(run_task(program, document, "idle", lambda _: None))
    except EngineError as error:
        raise TrialFailed(str(error), error.log, kind=error.kind) from error
    except ValidationError as error:
        raise TrialFailed(malformed(error)) from error
    return Background(
        block=block,
        started_unix_ns=idle.window.start_unix_ns,
        duration_ns=idle.window.duration_ns,
        cpu=idle.cpu,
    )


def steps(text: str, progress: Progress) -> Callable[[Event], None]:
    """Turns the engine's progress lines into steps."""

    def step(event: Event) -> None:
        if event["event"] == "progress":
            total_bytes = int(event.get("total_bytes", 0))
            progress(Step(text, int(event.get("done_bytes", 0)) / total_bytes if total_bytes else None))

    return step


def run_task(
    program: Path,
    document: dict[str, Any],
    last: str,
    each: Callable[[Event], None],
    *,
    place: Place = HERE,
    silence_s: float = CONNECT_S,
) -> Event:
    """The event that ends a task. Any line of the engine puts the deadline off: a scan or a fill may take long."""
    with Engine(program, "load", document, place=place) as engine:
        while True:
            event = engine.event(time.monotonic() + silence_s)
            if event["event"] == last:
                return event
            each(event)


def of_client(document: dict[str, Any], settings: Settings, index: int, sharing: int) -> dict[str, Any]:
    """The load of one of several clients: its own addresses, in its own part of the volume that they share."""
    zone = zone_bytes(settings, sharing)
    own: dict[str, Any] = {"working_set_bytes": zone, "working_set_offset_bytes": zone * index if sharing > 1 else 0}
    if settings.load.oltp is not None:
        own["oltp"] = oltp_document(zone, settings.load.oltp)
    return document | own | {"seed": (document["seed"] + index) % (1 << 63)}


def zone_bytes(settings: Settings, clients: int) -> int:
    """Bytes for each client of a volume that `clients` share: the load's working set, or an equal part of
    the volume."""
    if settings.load.working_set is not None:
        return settings.load.working_set
    return max(ZONE_BYTES, settings.volume.size // clients // ZONE_BYTES * ZONE_BYTES)


def _number(percent: float) -> int | float:
    return int(percent) if percent == int(percent) else percent


def filling(settings: Settings, size_bytes: int) -> Settings:
    """Time to fill all of it."""
    return replace(settings, load=Load().model_copy(update={"working_set": size_bytes}))


def overwriting(settings: Settings, size_bytes: int) -> Settings:
    """One round of random writes over all of it, with data that reads can verify later."""
    asked = settings.precondition
    assert asked is not None, "what is preconditioned"
    load = {
        "block_size": asked.block_size,
        "read": 0.0,
        "workers": asked.workers,
        "outstanding": asked.outstanding,
        "working_set": size_bytes,
        "warmup": 0,
        "runtime": asked.round,
    }
    return replace(settings, load=Load().model_copy(update=load))


def worked(results: list[TrialResult]) -> Worked:
    """Total of all that overwrote at the same time."""
    return Worked(
        sum(each.read.bytes + each.write.bytes for each in results),
        sum(each.ios * 1e9 / each.window.duration_ns for each in results),
    )
