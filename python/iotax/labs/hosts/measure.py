"""Measures one window on several hosts: when all are ready, each receives the same start in its own clock."""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from iotax.engine import EngineError
from iotax.labs.hosts.clock import Offset, Ours, Turns, off_by_ns, offset_of
from iotax.labs.hosts.clock import measure as measure_clock
from iotax.places import LEASE_NS, Event, HostFault, Place, Task
from iotax.places.base import line_of
from iotax.places.host import HostPlace

READY_S = 60.0
"""Time from starting the engines to every connection of every host."""
SILENCE_S = 20.0
"""Time that a host may take beyond the window."""
_AHEAD_S = 1.0
_ROUND_TRIPS = 5
_BESIDE = "beside"
"""Among the processes that an engine watches."""
_SLOWER_MAX = 30
"""Times that a clock with a pace of its own may be slower than ours."""
_CLOCK_SHARE = 0.0005
"""Share of the window by which a host's clock may be wrong: for two hosts together, at most the tolerance
of a start."""
_OFF_NS, _OFF_SHARE = 10_000_000, 0.001
"""Time, or share of the window, by which a host's start may differ beyond the error of its clock."""

Hear: TypeAlias = Callable[[str, Event], None]
"""A host and its engine's output."""
Grouped: TypeAlias = "Callable[[Sequence[Job], Window], Awaitable[Sequence[Group]]]"
"""Says who speaks with which hosts."""
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Job:
    """A host's task in the window."""

    place: Place
    program: str
    load: dict[str, Any] | None = None
    """The engine's `run` task; a host without any is observed only."""
    watch_pids: Mapping[str, int] | None = None
    secrets: Mapping[str, str] | None = None
    """Variables that the load has its secrets by; of a host (`HostPlace.start`)."""
    turns: Turn | None = None
    """The tasks of a session, in place of `load`."""
    release: str | None = None
    """A FIFO of the host at which a program waits for the window's settling time to begin."""


@dataclass(frozen=True)
class Turn:
    """A host's part of a session."""

    loads: Mapping[str, dict[str, Any]]
    """Trial id → the engine's `run` task for it."""
    rounds: Sequence[Sequence[int | None]]
    """Places in `loads` in the order of measuring; None: another host's load. All hosts' rounds have equal lengths."""

    @property
    def measured(self) -> int:
        """Loads that have a slice."""
        return len({load for each in self.rounds for load in each if load is not None})


@dataclass(frozen=True)
class Answer:
    """A host's answers. In a session, `connected` and `result` are by trial id."""

    host: str
    offset: Offset
    connected: dict[str, Any] | None
    result: dict[str, Any] | None
    observed: dict[str, Any]
    log: str
    beside: dict[str, Any] | None = None
    """CPU of the process through which iotax reaches the host, as the engine reports it; None if there is none."""
    pace: float | None = None
    """Pace of its clock over settling and window relative to ours; None if it is the same."""

    def seen_by(self, between: Offset) -> Answer:
        """For whoever the clock that `offset` compares with differs by `between` from."""
        return replace(self, offset=between.then(self.offset))


async def measure(
    jobs: Sequence[Job],
    hear: Hear | None = None,
    *,
    grouped: Grouped | None = None,
    warmup_ns: int,
    runtime_ns: int,
    sample_ns: int,
    schedule: Schedule | None = None,
    ours: Ours | None = None,
    after_s: float = 0.0,
    further: Sequence[Group] = (),
) -> list[Answer]:
    """An answer for each job. Raises EngineError for the first host that fails; the others are ended then. `hear`
    receives the events between start and answers; `grouped` says which process talks to which hosts, by default this
    one. `ours` is the clock to compare with, if that is repeated. `after_s`: what a load may take beyond the window.
    `further` groups start with the others, and have no jobs."""
    window = Window(warmup_ns, runtime_ns, sample_ns, schedule, after_s)
    groups = [*await _grouped(jobs, window, grouped), *further]
    ours = ours or Ours()
    try:
        await each_of([group.arm() for group in groups])
        # When nothing else is left to do: that would lengthen the round trips.
        offsets = await each_of([group.compare(ours) for group in groups])
        ahead_s = ahead_of([offset for of_group in offsets for offset in of_group])
        at_ns = ours.now_ns() + round(ahead_s * 1e9)
        # Whoever has not heard by the start would answer `late`, or is gone: no host measures before all are ready.
        await each_of([group.start(at_ns, ahead_s) for group in groups])
        answers = await each_of([group.answers(hear) for group in groups])
    finally:
        await asyncio.gather(*(group.end() for group in groups))
    return _by_job(jobs, groups, answers)


async def compare_clocks(jobs: Sequence[Job], ours: Ours, grouped: Grouped | None = None) -> list[Offset]:
    """How far each job's host's clock is from ours, with nothing running there. Raises EngineError for the first host
    that fails."""
    groups = await _grouped(jobs, Window(0, 1, 1), grouped)
    try:
        await each_of([group.arm() for group in groups])
        offsets = await each_of([group.compare(ours) for group in groups])
    finally:
        await asyncio.gather(*(group.end() for group in groups))
    return _by_job(jobs, groups, offsets)


async def _grouped(jobs: Sequence[Job], window: Window, grouped: Grouped | None) -> Sequence[Group]:
    return [Directly(jobs, window)] if grouped is None else await grouped(jobs, window)


def _by_job(jobs: Sequence[Job], groups: Sequence[Group], found: Sequence[Sequence[_Found]]) -> list[_Found]:
    """The results of each group's jobs, in the order of all jobs."""
    of_job = {
        id(job): each
        for group, of_group in zip(groups, found, strict=True)
        for job, each in zip(group.jobs, of_group, strict=True)
    }
    return [of_job[id(job)] for job in jobs]


@dataclass(frozen=True)
class Schedule:
    """Number of slices of a session, each with the window's settling and run."""

    slices: int
    lead_in_ns: int
    gap_ns: int
    """Time from one slice's end to the next one's load."""
    run: int
    """Version under which all hosts write, with a slice's place: later than the contents of the volumes."""

    def of(self, window: Window) -> int:
        """Its duration, ns."""
        led_in_ns = self.lead_in_ns + self.gap_ns
        return led_in_ns + self.slices * (window.warmup_ns + window.runtime_ns + self.gap_ns)


@dataclass(frozen=True)
class Window:
    """Duration for all hosts, in ns; one slice in a session."""

    warmup_ns: int
    runtime_ns: int
    sample_ns: int
    schedule: Schedule | None = None
    after_s: float = 0.0
    """What a load may take beyond it."""

    @property
    def measures_ns(self) -> int:
        return self.schedule.of(self) if self.schedule is not None else self.warmup_ns + self.runtime_ns


class Group(ABC):
    """Hosts of one window that are spoken with from one place. Its steps come in this order; each raises EngineError of
    the first host that fails."""

    jobs: Sequence[Job]

    @abstractmethod
    async def arm(self) -> None:
        """Waits until every host is ready."""

    @abstractmethod
    async def compare(self, ours: Ours) -> list[Offset]:
        """Offsets of the hosts' clocks, by job."""

    @abstractmethod
    async def start(self, at_ns: int, ahead_s: float) -> None:
        """Tells each host to start at a time of our clock, so far ahead; until all have heard."""

    @abstractmethod
    async def answers(self, hear: Hear | None) -> list[Answer]:
        """By job."""

    @abstractmethod
    async def end(self) -> None:
        """Whatever step it stands at. Raises nothing."""


class Directly(Group):
    """Each host by a channel of its own from here."""

    def __init__(self, jobs: Sequence[Job], window: Window) -> None:
        self.jobs, self._window = jobs, window
        self._running: list[Task] = []
        self._armed: list[_Armed] = []
        self._ready: list[_Ready] = []
        self._ours, self._ahead_s = Ours(), 0.0

    async def arm(self) -> None:
        asked = {
            "settle_ns": self._window.warmup_ns,
            "slice_ns": self._window.runtime_ns,
            "sample_ns": self._window.sample_ns,
        }
        if (schedule := self._window.schedule) is not None:
            asked |= {"lead_in_ns": schedule.lead_in_ns, "gap_ns": schedule.gap_ns, "run": schedule.run}
        self._armed = await each_of([_arm(job, asked, self._running) for job in self.jobs])

    async def compare(self, ours: Ours) -> list[Offset]:
        in_turns, self._ours = Turns(round(_CLOCK_SHARE * self._window.runtime_ns)), ours
        self._ready = await each_of([_compared(each, ours, in_turns) for each in self._armed])
        return [each.offset for each in self._ready]

    async def start(self, at_ns: int, ahead_s: float) -> None:
        self._ahead_s = ahead_s
        told = [line_of({"command": "start", "at_unix_ns": at_ns + each.offset.ahead_ns}) for each in self._ready]
        sent_ns = self._ours.now_ns()
        for each, line in zip(self._ready, told, strict=True):
            each.agent.send_line(line)
        self._ready = await each_of([self._started(each, at_ns, sent_ns) for each in self._ready])

    async def answers(self, hear: Hear | None) -> list[Answer]:
        return await each_of([_answer(each, self._ours, self._ahead_s, self._window, hear) for each in self._ready])

    async def end(self) -> None:
        await asyncio.gather(*(agent.end() for agent in self._running))

    async def _started(self, each: _Ready, at_ns: int, sent_ns: int) -> _Ready:
        left_ns = (await each.agent.expect("started", self._ahead_s + SILENCE_S))["left_ns"]
        if each.job.place.drifts:
            # Compares it once more, as near to the start as possible.
            begins_ns = at_ns + each.offset.ahead_ns
            offset = offset_of(sent_ns, begins_ns - left_ns, self._ours.now_ns())
            return replace(each, offset=offset, begins_ns=begins_ns - offset.ahead_ns)
        off_ns = off_by_ns(at_ns, left_ns, sent_ns, self._ours.now_ns())
        if abs(off_ns) > each.offset.error_ns + max(_OFF_NS, _OFF_SHARE * self._window.runtime_ns):
            said = f"its clock was set while the start was told: it would begin {_off(off_ns)} than the others"
            raise HostFault(each.job.place.name, said, "clock")
        return each


def ahead_of(offsets: Sequence[Offset]) -> float:
    """Seconds before the start at which it is sent: a busy host or guest may receive it as late as its slowest answer
    came."""
    return max(_AHEAD_S, _ROUND_TRIPS * max(each.longest_ns for each in offsets) / 1e9)


@dataclass(frozen=True)
class _Armed:
    job: Job
    agent: Task
    connected: dict[str, Any] | None


@dataclass(frozen=True)
class _Ready(_Armed):
    offset: Offset
    begins_ns: int | None = None
    """When it starts by our clock, where its own has a pace of its own."""


async def _arm(job: Job, window: Mapping[str, int], running: list[Task]) -> _Armed:
    turns = job.turns or Turn({job.place.name: job.load} if job.load is not None else {}, [[0]] if job.load else [])
    document = {
        **window,
        "loads": [{"id": name, "load": load} for name, load in turns.loads.items()],
        "rounds": turns.rounds,
        "start": "told",
        "observe": {"watch_pids": _watched(job)} | ({"release": job.release} if job.release else {}),
    } | ({"lease_ns": LEASE_NS} if job.place.leased else {})
    command = f"{job.program} session"
    if job.secrets and isinstance(job.place, HostPlace):
        agent = await job.place.start(command, document, secrets=job.secrets)
    else:
        agent = await job.place.start(command, document)
    running.append(agent)
    connected = {name: await agent.expect("connected", READY_S) for name in turns.loads}
    await agent.expect("armed", READY_S)
    return _Armed(job, agent, connected if job.turns else connected.get(job.place.name))


async def _compared(armed: _Armed, ours: Ours, in_turns: Turns) -> _Ready:
    return _Ready(armed.job, armed.agent, armed.connected, await measure_clock(armed.agent, ours, in_turns))


def _watched(job: Job) -> dict[str, int]:
    watched = dict(job.watch_pids or {})
    return watched if job.place.beside is None else watched | {_BESIDE: job.place.beside}


def _off(off_ns: int) -> str:
    return f"{abs(off_ns) / 1e6:.0f} ms {'later' if off_ns > 0 else 'earlier'}"


async def _answer(ready: _Ready, ours: Ours, ahead_s: float, window: Window, hear: Hear | None) -> Answer:
    host = ready.job.place.name
    heard = None if hear is None else functools.partial(hear, host)
    slower = 1 if ready.begins_ns is None else _SLOWER_MAX
    measures_ns, silence_s = window.measures_ns, window.after_s + SILENCE_S
    observed = await ready.agent.expect("observed", ahead_s + slower * measures_ns / 1e9 + silence_s, heard)
    pace = None if ready.begins_ns is None else measures_ns / max(1, ours.now_ns() - ready.begins_ns)
    if ready.job.turns is not None:
        heard_of = [await ready.agent.expect("result", SILENCE_S) for _ in range(ready.job.turns.measured)]
        result = {event["id"]: event for event in heard_of}
    else:
        result = await ready.agent.expect("result", SILENCE_S) if ready.job.load is not None else None
    beside = (observed.get("watched") or {}).pop(_BESIDE, None)
    return Answer(host, ready.offset, ready.connected, result, observed, ready.agent.log, beside, pace)


async def each_of(work: Sequence[Any]) -> list[Any]:
    """All at once; the first that fails ends the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except ExceptionGroup as failed:
        # Not `except*`: before Python 3.11.4 an exception raised in it becomes a group again.
        faults, others = failed.split(EngineError)
        if faults is None or others is not None:
            raise
        raise _first(faults) from None
    return [task.result() for task in tasks]


def _first(faults: ExceptionGroup[EngineError]) -> EngineError:
    """A group may hold groups."""
    found = faults.exceptions[0]
    return found if isinstance(found, EngineError) else _first(found)
