"""PostgreSQL and pgbench on the initiators: a database on the path of each, and a trial's load on them.

A script on the host (remote/database.sh) does the work. It makes a file system on a device, or uses a folder beside the
file on a mount, and starts both programs. The window is that of the engines, which observe all hosts; pgbench's log has
the same clock and shows which transactions lie within it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib import resources

import numpy as np

from iotax.labs.base import TrialFailed
from iotax.labs.generators.base import said_of
from iotax.labs.generators.pgbench import client_options, measured, result_of, server_options
from iotax.labs.hosts.beside import STEP_S, Beside, Member
from iotax.labs.hosts.measure import Answer, each_of
from iotax.labs.hosts.merge import Observed
from iotax.labs.hosts.paths import Paths, Script
from iotax.places import Event, HostFault
from iotax.records import CpuUse
from iotax.study import Settings
from iotax.study.database import memory_bytes, scale
from iotax.trial import TrialResult

SCRIPT = Script(
    "database",
    (resources.files("iotax.labs.generators") / "postgres.sh").read_text(encoding="utf-8")
    + (resources.files("iotax.labs.hosts") / "remote" / "database.sh").read_text(encoding="utf-8"),
)
_BUILD_BYTES_PER_S = 5 << 20
"""Slower than this on laying out a database, a host counts as hung."""
_CHECKPOINT_AT = 0.25
"""Share of a window after which a checkpoint is requested."""
COMMANDS = ("mke2fs", "dd", "mount", "umount", "chown", "mkdir", "rm", "rmdir", "tee")
"""Commands that root runs for it."""


class Databases(Beside):
    """Databases of one study. Failures are HostFault."""

    def __init__(self, paths: Paths) -> None:
        super().__init__(paths)
        self._window: _Window | None = None
        """Settings of the current trial."""

    async def ready(self, on: Member, settings: Settings) -> None:
        await self._does(on, settings, "database_ready", on.attached.device)

    async def is_ours(self, on: Member, settings: Settings) -> bool:
        """Whether an earlier database is all that the device holds."""
        return "OURS" in (await self._does(on, settings, "database_holds", on.attached.device)).split()

    async def build(self, on: Member, settings: Settings) -> None:
        load, volume = settings.load, settings.volume
        given = (on.attached.device, volume.size, scale(load, volume), "-k" if load.verify else "")
        try:
            within_s = STEP_S + volume.size / _BUILD_BYTES_PER_S
            await self._does(on, settings, "database_build", *given, within_s=within_s)
        except HostFault:
            await self._stop(settings, on)
            raise

    async def begin(self, settings: Settings, members: Sequence[Member], seed: int) -> Mapping[str, str]:
        """Every client of every host is connected then."""
        self._window = _Window(self, members, settings)
        memory, server = memory_bytes(settings.load, settings.volume), server_options(settings)
        steps = []
        for number, on in enumerate(members):
            clients = settings.load.workers, client_options(settings, seed + number)
            steps.append(self._does(on, settings, "database_begin", on.attached.device, memory, server, *clients))
        await each_of(steps)
        return {}

    def hear(self, host: str, event: Event) -> None:
        if self._window is not None:
            self._window.hear(host, event)

    async def results(self, settings: Settings, members: Sequence[Member], answers: Sequence[Answer]) -> list[Answer]:
        if self._window is not None:
            await self._window.checkpointed()
        return await super().results(settings, members, answers)

    async def checkpoint(self, on: Member, settings: Settings) -> None:
        await self._does(on, settings, "database_checkpoint")

    def _script(self, settings: Settings) -> Script:
        del settings
        return SCRIPT

    async def _end(self, settings: Settings, on: Member, answer: Answer) -> list[str]:
        edges_us = _edges_us(Observed.model_validate(answer.observed))
        return (await self._does(on, settings, "database_end", *edges_us)).splitlines()

    def _result(self, settings: Settings, on: Member, answer: Answer, said: Sequence[str]) -> TrialResult:
        observed = Observed.model_validate(answer.observed)
        begin_us, end_us = _edges_us(observed)
        try:
            used = used_in(said, begin_us, end_us)
        except ValueError:
            raise TrialFailed(f"{answer.host}: what was read and written there is told in an unknown form") from None
        return result_of(
            measured(said, begin_us, end_us, used),
            settings,
            endpoint=on.attached.endpoint,
            cpu=CpuUse.model_validate({"machine": observed.machine}),
            cpu_window_ns=observed.window["duration_ns"],
        )


class _Window:
    """The measured window, as it is heard of: each host makes a checkpoint when a quarter of it has passed."""

    def __init__(self, databases: Databases, members: Sequence[Member], settings: Settings) -> None:
        self._databases, self._settings = databases, settings
        self._at_ns = round(_CHECKPOINT_AT * settings.load.runtime)
        self.members = {each.place.name: each for each in members}
        self._asked: dict[str, asyncio.Task[None]] = {}

    def hear(self, host: str, event: Event) -> None:
        """Any event; events about processors come at each interval of the window."""
        if (
            event["event"] == "cpu"
            and host in self.members
            and host not in self._asked
            and event["at_ns"] >= self._at_ns
        ):
            asking = self._databases.checkpoint(self.members[host], self._settings)
            self._asked[host] = asyncio.get_running_loop().create_task(asking)

    async def checkpointed(self) -> None:
        """Waits until all checkpoints are requested. Raises HostFault."""
        await asyncio.gather(*self._asked.values())
        for host in self.members:
            if host not in self._asked:
                raise HostFault(host, "said nothing within the window, so it made no checkpoint", "silent")


def _edges_us(observed: Observed) -> tuple[int, int]:
    """The window by the host's clock."""
    start_ns = observed.window["start_unix_ns"]
    return start_ns // 1000, (start_ns + observed.window["duration_ns"]) // 1000


def used_in(lines: Sequence[str], begin_us: int, end_us: int) -> list[int]:
    """Reads, bytes read, writes and bytes written of a window, from the samples of a host. Raises ValueError."""
    [[before_s, epoch_s, after_s]] = [list(map(float, line.split())) for line in said_of(lines, "CLOCK")]
    # The last sample may be cut short.
    samples = [list(map(float, line.split())) for line in said_of(lines, "USE") if len(line.split()) == 5]
    booted_s = epoch_s - (before_s + after_s) / 2
    begin, end = (_used_at(samples, at_us / 1e6 - booted_s) for at_us in (begin_us, end_us))
    return [round(late - early) for early, late in zip(begin, end, strict=True)]


def _used_at(samples: Sequence[Sequence[float]], at_s: float) -> list[float]:
    """Four counts at a time, between the samples (s, counts…) around it; those of the nearest sample outside of all.
    Raises ValueError if there is none."""
    if not samples:
        raise ValueError("no sample")
    times_s, *counts = zip(*samples, strict=True)
    return [float(np.interp(at_s, times_s, each)) for each in counts]
