"""A session: trials measured in turns, by one engine or by several machines.

With several machines, every path is connected at once, and each machine has one schedule by its own clock. The schedule
is told once. The machine of a load submits in that load's slices; the others only read what they spend over them, as
exactly as their kernels tell. Some slices have no load: what connected paths spend by themselves (keep-alives, path
checkers) is taken off.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iotax.design.plan import GUEST_TURN_NS, LEAD_IN_NS
from iotax.design.rounds import with_idle
from iotax.labs.base import Outcome, Progress, TrialFailed
from iotax.labs.hosts.clock import Offset, Ours
from iotax.labs.hosts.measure import Answer, Grouped, Hear, Job, Schedule, Turn, measure
from iotax.labs.outcomes import CONNECT_S, SILENCE_S, Timeouts, outcomes_of, sample_of, slices_ended
from iotax.places import Event, Place
from iotax.study.model import Slices
from iotax.units import counted, show_time

_MISSED_MAX = 0.5
"""Tolerated share of missing slices; with more, a treatment has too little of its session."""
_CLOCKS_MAX = 200
"""Times that a slice is longer than clocks may differ; shorter ones are flagged."""


@dataclass(frozen=True)
class Station:
    """An engine that takes part: its place and its loads. An engine without loads only observes."""

    place: Place
    program: str
    loads: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """Trial id → the engine's `run` task."""
    watch_pids: Mapping[str, int] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The fields of a `Job`."""


@dataclass(frozen=True)
class Session:
    trials: Sequence[str]
    """Their ids."""
    rounds: Sequence[Sequence[int]]
    """Places in `trials`, in the order of measuring."""
    slices: Slices
    stations: Sequence[Station]
    turn_ns: int = GUEST_TURN_NS
    """Time from one slice's end to the next one's load."""

    @property
    def order(self) -> list[int | None]:
        """Places of all slices, one after another; None for those without load."""
        return [each for row in with_idle(self.rounds) for each in row]

    async def measure(
        self,
        hear: Hear,
        offsets: Callable[[Ours], Awaitable[list[Offset]]],
        grouped: Grouped | None = None,
    ) -> list[Answer]:
        """An answer for each station. `offsets` compares the stations' clocks with ours once more, in this order.
        Raises TrialFailed if clocks moved apart, and EngineError."""
        ours = Ours()
        jobs = [
            Job(each.place, each.program, watch_pids=each.watch_pids, secrets=each.secrets, turns=self._turn(each))
            for each in self.stations
        ]
        answers = await measure(
            jobs,
            hear,
            grouped=grouped,
            warmup_ns=self.slices.settle_ns,
            runtime_ns=self.slices.slice_ns,
            sample_ns=self.slices.slice_ns,
            schedule=Schedule(len(self.order), LEAD_IN_NS, self.turn_ns, time.time_ns()),
            ours=ours,
        )
        if len({station.place.name for station in self.stations}) > 1:
            self._kept_together([answer.offset for answer in answers], await offsets(ours))
        return answers

    def missed(self, name: str, measured: int) -> int:
        """The number of missing slices of a trial. Raises TrialFailed if there are too many."""
        missed = self.slices.rounds - measured
        if measured < (1 - _MISSED_MAX) * self.slices.rounds:
            raise TrialFailed(
                f"{name} missed {missed} of its {counted(self.slices.rounds, 'slice')}: I/Os of the slices before "
                f"were not answered within {show_time(self.turn_ns)}, or a machine woke late; lower `outstanding:`, "
                "settle for longer, or repeat it when the machines are less busy"
            )
        return missed

    def facts(self, answers: Sequence[Answer]) -> dict[str, str]:
        """How well the machines keep one schedule."""
        if len({answer.host for answer in answers}) < 2:
            return {}
        error_ns = max(answer.offset.error_ns for answer in answers)
        short = "; a slice is shorter than 200 times that" if self.slices.slice_ns < _CLOCKS_MAX * error_ns else ""
        return {"clocks_agree_within": show_time(error_ns) + short}

    def _turn(self, station: Station) -> Turn:
        places = {name: place for place, name in enumerate(station.loads)}
        rounds = [
            [None if each is None else places.get(self.trials[each]) for each in row] for row in with_idle(self.rounds)
        ]
        return Turn(station.loads, rounds)

    def _kept_together(self, before: Sequence[Offset], after: Sequence[Offset]) -> None:
        """Whether clocks still agree as they did at the start. Raises TrialFailed, which names the one that moved."""
        moved = [later.ahead_ns - earlier.ahead_ns for earlier, later in zip(before, after, strict=True)]
        apart_ns = max(moved) - min(moved)
        unsure_ns = sum(max(each.error_ns for each in some) for some in (before, after))
        if apart_ns <= self.slices.settle_ns + unsure_ns:
            return
        # By our clock as first read: nothing else sets it meanwhile.
        at = max(range(len(moved)), key=lambda index: abs(moved[index]))
        name = self.stations[at].place.name
        raise TrialFailed(
            f"the clocks moved apart by {show_time(apart_ns)} during the session ({name}'s the most), longer than "
            f"slices settle ({show_time(self.slices.settle_ns)}): what one machine spent is not of the other's load; "
            "was a clock set? The session is left out",
            kind="clock",
            host=name,
        )


@dataclass(frozen=True)
class Seen:
    """A machine over every slice of a session, as one station there read it."""

    busy_ns: Mapping[int, int]
    """CPU by the slice's place."""
    watched_ns: Mapping[int, Mapping[str, int]]
    """CPU of watched processes, by role."""
    idle_cores: float
    """With everything connected and no load."""
    is_exact: bool
    """Idle time in nanoseconds, and not in ticks."""

    @classmethod
    def of(cls, observed: Event, order: Sequence[int | None]) -> Seen:
        """From the engine's `observed` line."""
        slices = observed.get("slices", [])
        idle = [each["machine_busy_ns"] / each["duration_ns"] for each in slices if order[each["place"] - 1] is None]
        return cls(
            {each["place"]: each["machine_busy_ns"] for each in slices},
            {each["place"]: each.get("watched_ns", {}) for each in slices},
            statistics.mean(idle) if idle else 0.0,
            bool(slices) and all(each.get("resolution_ns") == 0 for each in slices),
        )

    def net_ns(self, place: int, duration_ns: int) -> int:
        """CPU without the background; may be below 0 because of ticks, since many slices are added up."""
        return round(self.busy_ns[place] - self.idle_cores * duration_ns)


def told(progress: Progress) -> Hear:
    """Tells each slice that one machine heard of."""

    def hear(host: str, event: Event) -> None:
        if event["event"] == "sample":
            progress(sample_of(event))
        elif event["event"] == "kept":
            progress(slices_ended(event, host))

    return hear


def session_document(
    loads: Mapping[str, dict[str, Any]],
    rounds: Sequence[Sequence[int]],
    *,
    lead_in_ns: int,
    settle_ns: int,
    slice_ns: int,
) -> dict[str, Any]:
    """`loads`: trial id → the engine's `run` task for it; `rounds`: their places, in the order of measuring."""
    return {
        "loads": [{"id": name, "load": load} for name, load in loads.items()],
        "rounds": rounds,
        "lead_in_ns": lead_in_ns,
        "settle_ns": settle_ns,
        "slice_ns": slice_ns,
    }


def run_session(program: Path, document: dict[str, Any], progress: Progress) -> dict[str, Outcome]:
    """Trial id → result. Raises TrialFailed: a session that fails has no results."""
    slices = sum(len(each) for each in document["rounds"])
    turns_s = (document["lead_in_ns"] + slices * (document["settle_ns"] + document["slice_ns"])) / 1e9
    ids = [load["id"] for load in document["loads"]]
    timeouts = Timeouts(2 * turns_s, CONNECT_S, SILENCE_S)
    return outcomes_of(program, "session", document, progress, timeouts=timeouts, loads=ids)
