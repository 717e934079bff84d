"""Events on hosts: a command of the user's at a moment of the window, and its undo.

The engine on the host runs both, by the host's own clock (`iotax-engine perform`). It holds the undo before the event
begins, and undoes it even if it is killed, or this process or the way to the host is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from iotax.labs.base import CheckItem
from iotax.labs.hosts.clock import Offset, Ours, Turns
from iotax.labs.hosts.clock import measure as measure_clock
from iotax.labs.hosts.measure import READY_S, SILENCE_S, Answer, Group, Hear, Job, each_of
from iotax.places import LEASE_NS, HostFault, Task
from iotax.places.base import FOLDER
from iotax.places.host import HostPlace
from iotax.records.interruptions import Happened
from iotax.study import Study
from iotax.study.events import Happening, happenings
from iotax.trial import Trial

_KEPT = f"{FOLDER}/not-undone.*"
"""Where the engine keeps each undo that has not succeeded."""
_COMMAND_S = 30.0
"""The engine's own limit for a command."""


@dataclass
class _Armed:
    happening: Happening
    agent: Task
    offset: Offset
    happened: Happened | None = None


def happens_of(study: Study, trial: Trial, places: Sequence[HostPlace], program: str) -> Happens | None:
    """The events of a trial; None if the study has none."""
    found = happenings(study.events, study.design.seed, trial.block, trial.replicate)
    warmup_ns = study.settings(trial.treatment).load.warmup
    return Happens(found, {place.name: place for place in places}, program, warmup_ns) if found else None


def disturbing(study: Study, kind: Literal["warning", "refused"]) -> list[CheckItem]:
    """What each event does, which the user has to allow."""
    said = "an event of this study runs `{}` there; `iotax run --disturb` allows it"
    return [CheckItem(kind, str(each.do.host), said.format(each.do.command)) for each in study.events]


async def left_undone(study: Study, places: Sequence[HostPlace]) -> list[CheckItem]:
    """Events of earlier runs that may not have been undone, on the hosts where this study makes something happen."""
    hosts = {each.do.host for each in study.events}
    return [item for place in places if place.name in hosts for item in await _left_undone(place)]


async def _left_undone(place: HostPlace) -> list[CheckItem]:
    try:
        undos = (await place.run(f"cat ~/{_KEPT} 2>/dev/null || true")).splitlines()
    except HostFault:
        return []  # the survey says why
    said = "an event there was not undone, or is under way. If nothing runs, run `{}` there, then `rm ~/{}`"
    return [CheckItem("error", place.name, said.format("; ".join(undos), _KEPT))] if undos else []


class Happens(Group):
    """The events of one run, as further tasks of its window. They belong to no job."""

    jobs: Sequence[Job] = ()

    def __init__(
        self, happenings: Sequence[Happening], places: Mapping[str, HostPlace], program: str, warmup_ns: int
    ) -> None:
        """`places`: the hosts, by name. `program`: the engine there."""
        self._happenings, self._places = happenings, places
        self._program, self._warmup_ns = program, warmup_ns
        self._running: list[Task] = []
        self._armed: list[_Armed] = []
        self._starts_ns = 0
        self.begun = False
        """Whether any event has started."""

    async def arm(self) -> None:
        agents = await each_of([self._arm(each) for each in self._happenings])
        self._armed = [_Armed(each, agent, Offset(0, 0)) for each, agent in zip(self._happenings, agents, strict=True)]

    async def _arm(self, each: Happening) -> Task:
        document = {
            "begin": each.do.command,
            "undo": each.do.undo,
            "lasts_ns": each.lasts_ns,
            "lease_ns": LEASE_NS,
        }
        if (place := self._places.get(str(each.do.host))) is None:
            raise HostFault(str(each.do.host), "the host is lost, so its event cannot happen", "missing")
        agent = await place.start(f"{self._program} perform", document)
        self._running.append(agent)
        await agent.expect("armed", READY_S)
        return agent

    async def compare(self, ours: Ours) -> list[Offset]:
        for each in self._armed:
            each.offset = await measure_clock(each.agent, ours, Turns())
        return []

    async def start(self, at_ns: int, ahead_s: float) -> None:
        self._starts_ns = at_ns + self._warmup_ns
        for each in self._armed:
            begins_ns = self._starts_ns + each.happening.at_ns + each.offset.ahead_ns
            each.agent.send({"command": "start", "at_unix_ns": begins_ns})
        await each_of([each.agent.expect("started", ahead_s + SILENCE_S) for each in self._armed])

    async def answers(self, hear: Hear | None) -> list[Answer]:
        await each_of([self._happened(each) for each in self._armed])
        return []

    async def _happened(self, each: _Armed) -> None:
        """Raises HostFault."""
        to_begin_s = (self._warmup_ns + each.happening.at_ns) / 1e9
        try:
            began = await each.agent.expect("began", to_begin_s + _COMMAND_S + SILENCE_S)
            self.begun = True
            # The way to the host may be what the event cuts off: its engine goes on by itself.
            # An undo that fails is tried twice.
            undone = await each.agent.expect("undone", each.happening.lasts_ns / 1e9 + 2 * _COMMAND_S + SILENCE_S)
        except HostFault as fault:
            reason = f"the event `{each.happening.do.words}`: {fault.message}"
            raise HostFault(fault.host, reason, fault.kind, fault.log) from fault
        ahead_ns = self._starts_ns + each.offset.ahead_ns
        each.happened = Happened(
            what=each.happening.do.words,
            asked_ns=each.happening.at_ns,
            began_ns=began["at_unix_ns"] - ahead_ns,
            undone_ns=undone["at_unix_ns"] - ahead_ns,
        )

    async def end(self) -> None:
        await asyncio.gather(*(agent.end() for agent in self._running))

    def told(self) -> tuple[Happened, ...]:
        """What has happened, by time."""
        return tuple(each.happened for each in self._armed if each.happened is not None)
