"""A session in guests: the CPU of whole guests, slice by slice (labs/turns.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from iotax.labs import turns
from iotax.labs.base import Progress, TrialFailed
from iotax.labs.hosts.clock import Offset, Ours, Turns, compared
from iotax.labs.hosts.measure import Answer
from iotax.labs.outcomes import malformed
from iotax.labs.turns import Seen, Station
from iotax.labs.vm.counters import with_guests
from iotax.labs.vm.guests import Guest
from iotax.places.guest import ENGINE
from iotax.places.waiting import wait_for
from iotax.study.model import Slices
from iotax.trial import Connected, Slice, TrialResult

_CLOCK_S = 20.0
"""Time in which a guest must report its clock."""


@dataclass(frozen=True)
class Load:
    """A trial's."""

    document: dict[str, Any]
    """The engine's `run` task."""
    guest: Guest
    """The guest of the load."""
    role: str
    """That guest's name."""
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
    """Results by trial id."""
    rounds: Sequence[Sequence[int]]
    """Places in `loads`."""
    slices: Slices
    storage: Guest | None
    """The target's guest, if it is not that of the load."""
    cpus: int
    """Processors of each guest."""

    def measure(self, progress: Progress) -> dict[str, Measured]:
        """Results by trial id. Raises TrialFailed, EngineError."""
        guests = list(dict.fromkeys([load.guest for load in self.loads.values()] + [*filter(None, [self.storage])]))
        stations = [
            Station(
                guest.port,
                ENGINE,
                {name: load.document for name, load in self.loads.items() if load.guest is guest},
            )
            for guest in guests
        ]
        session = turns.Session(list(self.loads), self.rounds, self.slices, stations)
        answers = wait_for(session.measure(turns.told(progress), lambda ours: offsets(guests, ours)))
        try:
            return self.outcomes(dict(zip(guests, answers, strict=True)), session)
        except ValidationError as error:
            raise TrialFailed(malformed(error)) from error

    def outcomes(self, answers: Mapping[Guest, Answer], session: turns.Session) -> dict[str, Measured]:
        """Raises TrialFailed, ValidationError."""
        seen = {guest: Seen.of(answer.observed, session.order) for guest, answer in answers.items()}
        found: dict[str, Measured] = {}
        for name, load in self.loads.items():
            answer = answers[load.guest]
            result = TrialResult.model_validate((answer.result or {})[name])
            connected = Connected.model_validate((answer.connected or {})[name])
            apart = self.storage is not None and not load.local and not load.both_ends
            target = seen[self.storage] if apart and self.storage is not None else None
            # A slice counts if every guest has read its CPU for it.
            slices = tuple(filter(None, (_with_target(each, target) for each in result.slices)))
            session.missed(name, len(slices))
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
                idle_cores=seen[load.guest].idle_cores,
                both_ends=load.both_ends and not load.local,
                target_ns=target_ns,
                hypervisor_ns=None,
            )
            facts = session.facts(list(answers.values()))
            found[name] = Measured(result, connected.told(connected.endpoint, facts))
        return found


def _with_target(part: Slice, target: Seen | None) -> Slice | None:
    """None if the target's guest was too late to read its clocks."""
    if target is None:
        return part
    if part.place not in target.busy_ns:
        return None
    return part.model_copy(update={"target_cpu_ns": max(0, target.net_ns(part.place, part.duration_ns))})


async def offsets(guests: Sequence[Guest], ours: Ours) -> list[Offset]:
    """How far the clocks of guests are ahead of this machine's. Raises EngineError."""

    def asked(guest: Guest) -> Callable[[], Awaitable[tuple[int, int | None]]]:
        async def ask() -> tuple[int, int | None]:
            return await guest.port.clock(_CLOCK_S), None

        return ask

    return [await compared(asked(guest), ours, Turns()) for guest in guests]
