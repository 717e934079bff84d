"""The hosts under virtual initiators: an observer on those of Linux, esxtop on those of ESXi, over the same window."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncGenerator, Sequence

from iotax.labs.hosts.esxtop import Esxtop
from iotax.labs.hosts.measure import Job, each_of
from iotax.labs.hosts.merge import Observed
from iotax.places import HostFault
from iotax.places.host import HostPlace
from iotax.places.ssh import SshHost
from iotax.records import CpuTime, CpuUse
from iotax.study.hosts import Hypervisor


class Hypervisors:
    """Of one study."""

    def __init__(self, linux: Sequence[HostPlace], esxi: Sequence[SshHost]) -> None:
        self.linux, self.esxi = linux, esxi
        self._spec = {each.name: each.host for each in [*linux, *esxi] if isinstance(each.host, Hypervisor)}
        self._esxtops: list[Esxtop] = []

    def __contains__(self, host: str) -> bool:
        return host in self._spec

    async def jobs(self, program: str) -> list[Job]:
        """Observers, of the guests' own processes too. Raises HostFault where a guest does not run there."""
        pids = await each_of([self._pids(place) for place in self.linux])
        return [Job(place, program, watch_pids=watched) for place, watched in zip(self.linux, pids, strict=True)]

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Within, rows are read from every ESXi host; what they covered is kept until the next time. Raises
        HostFault."""
        self._esxtops = []
        async with contextlib.AsyncExitStack() as stack:
            for started in await each_of([Esxtop.start(place) for place in self.esxi]):
                self._esxtops.append(started)
                stack.push_async_callback(started.end)
            reading = asyncio.gather(*(each.through(1 << 63) for each in self._esxtops))
            try:
                yield
                until_ns = time.time_ns()
            finally:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError, HostFault):
                    await reading
            # The row that covers the end of the window is still to come.
            await each_of([each.through(until_ns) for each in self._esxtops])

    def esxi_cpu(self, start_unix_ns: int, end_unix_ns: int, background_ns: dict[str, int | None]) -> list[CpuTime]:
        """Of every ESXi host over a window of our clock. Raises HostFault where rows are missing."""
        parts = []
        for each in self._esxtops:
            part = each.during(start_unix_ns, end_unix_ns)
            if part is None:
                raise HostFault(each.host, "esxtop's rows do not cover the window", "silent")
            parts.append(part.model_copy(update={"background_ns": background_ns.get(each.host)}))
        return parts

    def linux_cpu(self, host: str, observed: Observed, background_ns: int | None) -> list[CpuTime]:
        """The processes of its guests, where the study names them; else the machine stands for them."""
        window_ns = observed.window["duration_ns"]
        parts = []
        for guest, cpu in observed.watched.items():
            [part] = CpuUse.model_validate({"hypervisor": cpu})
            parts.append(part.model_copy(update={"host": f"{host}: {guest}", "window_ns": window_ns}))
        [machine] = CpuUse.model_validate({"machine": observed.machine})
        role = "other" if parts or background_ns is None else "hypervisor"
        known = {"host": host, "window_ns": window_ns, "role": role, "background_ns": background_ns}
        return [*parts, machine.model_copy(update=known)]

    async def _pids(self, place: HostPlace) -> dict[str, int]:
        """Guest → its QEMU process, by the name that libvirt or the user gave it."""
        found = {}
        for guest in self._spec[place.name].guests:
            pattern = shlex.quote(f"-name (guest=)?{guest}(,| |$)")
            said = (await place.run(f"pgrep -f -- {pattern} || true")).split()
            if len(said) != 1:
                raise HostFault(
                    place.name, f"{len(said)} processes of a guest {guest}, where one is meant", "not_found"
                )
            found[guest] = int(said[0])
        return found
