"""Other load generators on the initiators: each is started before the window that the engines observe and afterwards
reports what it did within it.

A script of the generator does the work on the host. Started programs are recorded in the path's journal, so that they
are ended first when the path is taken down.
"""

from __future__ import annotations

import asyncio
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from iotax.labs.base import TrialFailed
from iotax.labs.generators import generator_of
from iotax.labs.generators.base import HostJob
from iotax.labs.hosts.measure import Answer, each_of
from iotax.labs.hosts.merge import Observed
from iotax.labs.hosts.paths import Attached, Paths, Script
from iotax.labs.load import zone_bytes
from iotax.places import Event, HostFault
from iotax.places.host import HostPlace
from iotax.records import CpuUse
from iotax.study import Settings
from iotax.trial import Connected, TrialResult, Window

STEP_S = 300.0
"""Time for a program's start or end, and for its report."""
_AROUND_S = 240.0
"""Maximum time from its start to the window's, and from the window's end to its own: the slowest host has to connect
and to receive the start."""


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
    """Loads the initiators while engines observe, with a script on each. Failures are HostFault."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    async def results(self, settings: Settings, members: Sequence[Member], answers: Sequence[Answer]) -> list[Answer]:
        """The answers, with each host's results; everything is ended then. Also raises TrialFailed."""
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
                notes = result.origin.notes if result.origin else ()
                result = result.model_copy(update={"origin": None})
                told = {"result": result.model_dump(mode="json"), "connected": connected.model_dump(mode="json")}
                found.append(replace(each, log="\n".join([each.log, *notes]), **told))
            else:
                found.append(each)
        return found

    async def stop(self, settings: Settings, members: Sequence[Member]) -> None:
        """Ends everything after a failure that was already reported."""
        await asyncio.gather(*(self._stop(settings, each) for each in members))

    def hear(self, host: str, event: Event) -> None:
        """Events during the window."""
        del host, event

    @abstractmethod
    async def ready(self, on: Member, settings: Settings) -> None:
        """Raises HostFault if the host lacks something."""

    @abstractmethod
    async def begin(self, settings: Settings, members: Sequence[Member], seed: int) -> Mapping[str, str]:
        """Brings up everything but the window itself. Host → FIFO, where its program waits for the window to begin."""

    @abstractmethod
    def _script(self, settings: Settings) -> Script: ...

    @abstractmethod
    async def _end(self, settings: Settings, on: Member, answer: Answer) -> list[str]:
        """The script's report of the window."""

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
    """Programs that report their work at their end, through their generator's script."""

    async def ready(self, on: Member, settings: Settings) -> None:
        await self._does(on, settings, "load_ready", on.attached.device)

    async def begin(self, settings: Settings, members: Sequence[Member], seed: int) -> Mapping[str, str]:
        waiting = await each_of([self._begin(settings, each, seed) for each in members])
        return {on.place.name: fifo for on, fifo in zip(members, waiting, strict=True) if fifo}

    def _script(self, settings: Settings) -> Script:
        generator = generator_of(settings)
        return Script(generator.name, generator.host_script)

    async def _begin(self, settings: Settings, on: Member, seed: int) -> str:
        """The FIFO that the program waits at; empty if it is at work."""
        said = await self._does(on, settings, "load_ready", on.attached.device)
        found = dict(line.split(" ", 1) for line in said.splitlines() if " " in line)
        zone = zone_bytes(settings, on.sharing)
        load = settings.load.model_copy(update={"working_set": zone})
        job = HostJob(
            settings=replace(settings, load=load),
            path=on.attached.device,
            found=found,
            seed=seed + on.index,
            offset_bytes=zone * on.index if on.sharing > 1 else 0,
            # The report of the window's end may come some time later.
            longest_s=round(_AROUND_S + (settings.load.warmup + 1.1 * settings.load.runtime) / 1e9),
            client=on.index + 1,
        )
        generator = generator_of(settings)
        await self._does(on, settings, "load_begin", on.attached.device, *generator.host_job(job))
        return f"{found['RUN']}/start" if generator.released else ""

    async def _end(self, settings: Settings, on: Member, answer: Answer) -> list[str]:
        start_ns, end_ns = _edges_ns(answer)
        edges_ms = start_ns // 1_000_000, -(-end_ns // 1_000_000)
        # Waits until the program has reported everything about the window.
        within_s = STEP_S + settings.load.runtime / 1e9
        return (await self._does(on, settings, "load_end", *edges_ms, within_s=within_s)).splitlines()

    def _result(self, settings: Settings, on: Member, answer: Answer, said: Sequence[str]) -> TrialResult:
        start_ns, end_ns = _edges_ns(answer)
        try:
            return generator_of(settings).host_result(
                said,
                settings,
                endpoint=on.attached.endpoint,
                cpu=CpuUse.model_validate({"machine": Observed.model_validate(answer.observed).machine}),
                window=Window(start_unix_ns=start_ns, start_ns=0, duration_ns=end_ns - start_ns),
            )
        except TrialFailed as failed:
            raise TrialFailed(f"{answer.host}: {failed.reason}", failed.log, host=answer.host) from failed


def _edges_ns(answer: Answer) -> tuple[int, int]:
    """The window by the host's clock."""
    window = Observed.model_validate(answer.observed).window
    return window["start_unix_ns"], window["start_unix_ns"] + window["duration_ns"]
