"""Load generators of others on the initiators: each is started there before the window that the engines observe, and
says afterwards what it did within it.

The work is done by a script on the host, which is the generator's own. What is started stands in the path's journal, so
that whoever takes the path down ends it first.
"""

from __future__ import annotations

import asyncio
import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from iotax.labs.base import TrialFailed
from iotax.labs.generators import GENERATORS
from iotax.labs.generators.base import Generator, HostJob
from iotax.labs.hosts.measure import Answer, each_of
from iotax.labs.hosts.merge import Observed
from iotax.labs.hosts.paths import Attached, Paths, Script
from iotax.labs.load import zone_bytes
from iotax.places import Event, HostFault
from iotax.places.host import HostPlace
from iotax.records import CpuUse
from iotax.study import Settings
from iotax.trial import Connected, TrialResult

STEP_S = 300.0
"""For a program's start or its end, and for what it then says."""
_AROUND_S = 240.0
"""From its begin to the window's, at most, and from the window's end to its own: the slowest host has to connect and to
hear of the start."""


@dataclass(frozen=True)
class Member:
    """A host with a load of its own."""

    place: HostPlace
    attached: Attached
    """Its path, which is up."""
    index: int = 0
    """Its number among the clients that share a volume."""
    sharing: int = 1


class Beside(ABC):
    """What loads the initiators while engines observe, by a script on each. What fails is HostFault."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    async def results(self, settings: Settings, members: Sequence[Member], answers: Sequence[Answer]) -> list[Answer]:
        """The answers, those of its hosts with what they did; all is ended then. Raises TrialFailed, too."""
        of = {each.place.name: each for each in members}
        mine = [each for each in answers if each.host in of]
        ended = await each_of([self._end(settings, of[each.host], each) for each in mine])
        said = {each.host: lines for each, lines in zip(mine, ended, strict=True)}
        found = []
        for each in answers:
            if each.host in said:
                on = of[each.host]
                result = self._result(settings, on, each, said[each.host])
                connected = Connected(driver=result.driver, endpoint=on.attached.endpoint)
                told = {"result": result.model_dump(mode="json"), "connected": connected.model_dump(mode="json")}
                found.append(replace(each, **told))
            else:
                found.append(each)
        return found

    async def stop(self, settings: Settings, members: Sequence[Member]) -> None:
        """Ends what is there, after a failure that is told already."""
        await asyncio.gather(*(self._stop(settings, each) for each in members))

    def hear(self, host: str, event: Event) -> None:
        """What comes during the window."""
        del host, event

    @abstractmethod
    async def ready(self, on: Member, settings: Settings) -> None:
        """Raises HostFault where the host lacks something."""

    @abstractmethod
    async def begin(self, settings: Settings, members: Sequence[Member], seed: int) -> None:
        """Brings up everything but the window itself."""

    @abstractmethod
    def _script(self, settings: Settings) -> Script: ...

    @abstractmethod
    async def _end(self, settings: Settings, on: Member, answer: Answer) -> list[str]:
        """What it says of the window."""

    @abstractmethod
    def _result(self, settings: Settings, on: Member, answer: Answer, said: Sequence[str]) -> TrialResult:
        """Raises TrialFailed."""

    async def _stop(self, settings: Settings, on: Member) -> None:
        try:
            await self._does(on, settings, "down_using")
        except HostFault:
            # Whoever takes the path down tries again, and tells of it.
            return

    async def _does(
        self, on: Member, settings: Settings, function: str, *arguments: str | int, within_s: float = STEP_S
    ) -> str:
        words = shlex.join([function, *map(str, arguments)])
        return await self._paths.use(on.place, self._script(settings), words, within_s)


class Programs(Beside):
    """Programs that say at their end what they did, by a script of their generator's."""

    async def ready(self, on: Member, settings: Settings) -> None:
        await self._does(on, settings, "load_ready", on.attached.device)

    async def begin(self, settings: Settings, members: Sequence[Member], seed: int) -> None:
        await each_of([self._begin(settings, each, seed) for each in members])

    def _script(self, settings: Settings) -> Script:
        generator = _generator(settings)
        return Script(generator.name, generator.host_script)

    async def _begin(self, settings: Settings, on: Member, seed: int) -> None:
        found = await self._does(on, settings, "load_ready", on.attached.device)
        zone = zone_bytes(settings, on.sharing)
        load = settings.load.model_copy(update={"working_set": zone})
        job = HostJob(
            settings=replace(settings, load=load),
            path=on.attached.device,
            found=dict(line.split(" ", 1) for line in found.splitlines() if " " in line),
            seed=seed + on.index,
            offset_bytes=zone * on.index if on.sharing > 1 else 0,
            # What it says of the window's end, it may say some time later.
            longest_s=round(_AROUND_S + (settings.load.warmup + 1.1 * settings.load.runtime) / 1e9),
        )
        await self._does(on, settings, "load_begin", on.attached.device, _generator(settings).host_job(job))

    async def _end(self, settings: Settings, on: Member, answer: Answer) -> list[str]:
        start_ns, end_ns = _edges_ns(answer)
        edges_ms = start_ns // 1_000_000, -(-end_ns // 1_000_000)
        # It waits until the program has said all that it says of the window.
        within_s = STEP_S + settings.load.runtime / 1e9
        return (await self._does(on, settings, "load_end", *edges_ms, within_s=within_s)).splitlines()

    def _result(self, settings: Settings, on: Member, answer: Answer, said: Sequence[str]) -> TrialResult:
        start_ns, end_ns = _edges_ns(answer)
        try:
            return _generator(settings).host_result(
                said,
                settings,
                endpoint=on.attached.endpoint,
                cpu=CpuUse.model_validate({"machine": Observed.model_validate(answer.observed).machine}),
                start_unix_ns=start_ns,
                duration_ns=end_ns - start_ns,
            )
        except TrialFailed as failed:
            raise TrialFailed(f"{answer.host}: {failed.reason}", failed.log, host=answer.host) from failed


def _generator(settings: Settings) -> Generator:
    return GENERATORS[settings.load.generator]


def _edges_ns(answer: Answer) -> tuple[int, int]:
    """Of the window, by the host's clock."""
    window = Observed.model_validate(answer.observed).window
    return window["start_unix_ns"], window["start_unix_ns"] + window["duration_ns"]
