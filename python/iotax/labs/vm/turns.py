"""A session in guests: every path is connected at once, and each guest keeps one schedule by its own clock.

The schedule is told once. The guest of a load submits in that load's slices; the others only read what their machine
spends over them, as exactly as their kernel tells. A round ends with a slice in which nobody loads anything: what
connected paths spend by themselves (keep-alives, path checkers), which is taken off.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from iotax.design.plan import GUEST_TURN_NS, LEAD_IN_NS
from iotax.labs.base import Progress, Sample, TrialFailed
from iotax.labs.hosts.clock import Offset, Ours, Turns, compared
from iotax.labs.hosts.measure import Answer, Job, Schedule, Turn, measure
from iotax.labs.outcomes import malformed, sample_of
from iotax.labs.vm.counters import with_guests
from iotax.labs.vm.guests import Guest
from iotax.places import Event
from iotax.places.guest import ENGINE
from iotax.places.waiting import wait_for
from iotax.study.model import Slices
from iotax.trial import Connected, Slice, TrialResult
from iotax.units import counted, show_time

_CLOCK_S = 20.0
"""How long a guest may take to say its time."""
_MISSED_MAX = 0.5
"""Of a treatment's slices; with more its session has too little of it."""
_CLOCKS_MAX = 200
"""Times that a slice is longer than clocks may differ; shorter ones are flagged."""


@dataclass(frozen=True)
class Load:
    """A trial's."""

    document: dict[str, Any]
    """The engine's `run` task."""
    guest: Guest
    """In which it runs."""
    role: str
    """Of that guest, by name."""
    local: bool
    """Without a target."""
    both_ends: bool
    """Its target stands in the same guest."""


@dataclass(frozen=True)
class Measured:
    result: TrialResult
    connected: Connected


@dataclass(frozen=True)
class Session:
    loads: Mapping[str, Load]
    """By trial id."""
    rounds: Sequence[Sequence[int]]
    """Places in `loads`."""
    slices: Slices
    storage: Guest | None
    """Where the target is, if it is not in the guest of the load."""
    cpus: int
    """Of each guest."""

    def measure(self, progress: Progress) -> dict[str, Measured]:
        """By trial id. Raises TrialFailed, EngineError."""
        guests = list(dict.fromkeys([load.guest for load in self.loads.values()] + [*filter(None, [self.storage])]))
        jobs = [Job(guest.port, ENGINE, turns=self._turn(guest)) for guest in guests]
        order = self._order()
        schedule = Schedule(len(order), LEAD_IN_NS, GUEST_TURN_NS, time.time_ns())
        answers = wait_for(
            measure(
                jobs,
                _told(progress),
                warmup_ns=self.slices.settle_ns,
                runtime_ns=self.slices.slice_ns,
                sample_ns=self.slices.slice_ns,
                schedule=schedule,
            )
        )
        self._kept_together(guests, answers)
        try:
            return self._outcomes(dict(zip(guests, answers, strict=True)), order)
        except ValidationError as error:
            raise TrialFailed(malformed(error)) from error

    def _kept_together(self, guests: Sequence[Guest], answers: Sequence[Answer]) -> None:
        """Whether the guests' clocks still agree as they did at the start. Raises TrialFailed, EngineError."""
        if len(guests) < 2:
            return
        later = wait_for(_offsets(guests))
        moved = [each.ahead_ns - answer.offset.ahead_ns for each, answer in zip(later, answers, strict=True)]
        apart_ns = max(moved) - min(moved)
        unsure_ns = sum(max(each.error_ns for each in some) for some in (later, [each.offset for each in answers]))
        if apart_ns > self.slices.settle_ns + unsure_ns:
            raise TrialFailed(
                f"the clocks of the guests moved apart by {show_time(apart_ns)} during the session, longer than slices "
                f"settle ({show_time(self.slices.settle_ns)}): what one guest spent is not of the other's load"
            )

    def _order(self) -> list[int | None]:
        return [each for row in self.rounds for each in (*row, None)]

    def _turn(self, guest: Guest) -> Turn:
        own = {name: load.document for name, load in self.loads.items() if load.guest is guest}
        names, places = list(self.loads), {name: place for place, name in enumerate(own)}
        return Turn(own, [[*(places.get(names[each]) for each in row), None] for row in self.rounds])

    def _outcomes(self, answers: Mapping[Guest, Answer], order: Sequence[int | None]) -> dict[str, Measured]:
        observed = {guest: _Observed.of(answer.observed, order) for guest, answer in answers.items()}
        found: dict[str, Measured] = {}
        for name, load in self.loads.items():
            answer = answers[load.guest]
            result = TrialResult.model_validate((answer.result or {})[name])
            connected = Connected.model_validate((answer.connected or {})[name])
            apart = self.storage is not None and not load.local and not load.both_ends
            target = observed[self.storage] if apart and self.storage is not None else None
            # A slice counts where every guest has read what it spent in it.
            slices = tuple(filter(None, (_with_target(each, target) for each in result.slices)))
            if len(slices) < (1 - _MISSED_MAX) * self.slices.rounds:
                missed = self.slices.rounds - len(slices)
                raise TrialFailed(
                    f"{name} missed {missed} of its {counted(self.slices.rounds, 'slice')}: I/Os of the slices before "
                    f"were not answered within {show_time(GUEST_TURN_NS)}; lower `outstanding:`, or settle for longer"
                )
            if not result.ios and not result.idle:
                raise TrialFailed(f"no I/O completed within the slices of {name}")
            target_ns = None
            if target is not None:
                spent_ns, over_ns = sum(each.target_cpu_ns or 0 for each in slices), sum(e.duration_ns for e in slices)
                target_ns = round(spent_ns * result.window.duration_ns / over_ns)
            result = with_guests(
                result.model_copy(update={"slices": slices}),
                load_guest=load.role,
                processors=self.cpus,
                idle_cores=observed[load.guest].idle_cores,
                both_ends=load.both_ends and not load.local,
                target_ns=target_ns,
                hypervisor_ns=None,
            )
            found[name] = Measured(result, connected.told(connected.endpoint, self._facts(list(answers.values()))))
        return found

    def _facts(self, answers: Sequence[Answer]) -> dict[str, str]:
        """How well the guests keep one schedule."""
        if len(answers) < 2:
            return {}
        error_ns = max(answer.offset.error_ns for answer in answers)
        short = "; a slice is shorter than 200 times that" if self.slices.slice_ns < _CLOCKS_MAX * error_ns else ""
        return {"clocks_agree_within": show_time(error_ns) + short}


@dataclass(frozen=True)
class _Observed:
    """A guest over every slice of a session."""

    busy_ns: Mapping[int, int]
    """By the slice's place."""
    idle_cores: float
    """With everything connected and no load."""

    @classmethod
    def of(cls, observed: Event, order: Sequence[int | None]) -> _Observed:
        slices = observed.get("slices", [])
        idle = [each["machine_busy_ns"] / each["duration_ns"] for each in slices if order[each["place"] - 1] is None]
        return cls({each["place"]: each["machine_busy_ns"] for each in slices}, statistics.mean(idle) if idle else 0.0)


def _with_target(part: Slice, target: _Observed | None) -> Slice | None:
    """None where the target's guest was too late to read its clocks."""
    if target is None:
        return part
    busy_ns = target.busy_ns.get(part.place)
    if busy_ns is None:
        return None
    return part.model_copy(update={"target_cpu_ns": max(0, round(busy_ns - target.idle_cores * part.duration_ns))})


async def _offsets(guests: Sequence[Guest]) -> list[Offset]:
    ours = Ours()

    def asked(guest: Guest) -> Callable[[], Awaitable[tuple[int, int | None]]]:
        async def ask() -> tuple[int, int | None]:
            return await guest.port.clock(_CLOCK_S), None

        return ask

    return [await compared(asked(guest), ours, Turns()) for guest in guests]


def _told(progress: Progress) -> Any:
    def hear(_: str, event: Event) -> None:
        if event["event"] == "sample":
            sample: Sample = sample_of(event)
            progress(sample)

    return hear
