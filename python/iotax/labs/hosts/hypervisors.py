"""The hosts under virtual initiators: an observer on those of Linux, esxtop on those of ESXi, over the same window."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncGenerator, Mapping, Sequence

from iotax.labs.hosts.esxtop import Esxtop
from iotax.labs.hosts.measure import Job, each_of
from iotax.labs.hosts.merge import HostSeries, Observed, ObservedSecond
from iotax.places import HostFault
from iotax.places.host import HostPlace
from iotax.places.ssh import SshHost
from iotax.records import CpuTime, CpuUse
from iotax.study.hosts import Hypervisor


class Hypervisors:
    """Hypervisors of one study."""

    def __init__(
        self, linux: Sequence[HostPlace], esxi: Sequence[SshHost], guests: Mapping[str, Sequence[str]]
    ) -> None:
        """`guests`: host → those of the inventory that it runs."""
        self.linux, self.esxi, self._guests = linux, esxi, guests
        self._spec = {each.name: each.host for each in [*linux, *esxi] if isinstance(each.host, Hypervisor)}
        self._esxtops: list[Esxtop] = []

    def __contains__(self, host: str) -> bool:
        return host in self._spec

    async def jobs(self, program: str) -> list[Job]:
        """Observers, of the guests' own processes too. Raises HostFault if a guest does not run there."""
        pids = await each_of([self._pids(place) for place in self.linux])
        return [Job(place, program, watch_pids=watched) for place, watched in zip(self.linux, pids, strict=True)]

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Within this, reads rows from every ESXi host and keeps what they covered until the next time. Raises
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

    def esxi_cpu(
        self, start_unix_ns: int, end_unix_ns: int, spent: Mapping[str, int], background_ns: Mapping[str, int | None]
    ) -> list[CpuTime]:
        """CPU of every ESXi host over a window of this machine's clock; `spent`: CPU of each guest over it. Raises
        HostFault if rows are missing."""
        parts = []
        for each in self._esxtops:
            part = each.during(start_unix_ns, end_unix_ns)
            if part is None:
                raise HostFault(each.host, "esxtop's rows do not cover the window", "silent")
            guests = self._guests[each.host]
            known = guests and all(name in spent for name in guests)
            parts.append(
                part.model_copy(
                    update={
                        "guests_ns": sum(spent[name] for name in guests) if known else None,
                        "background_ns": background_ns.get(each.host),
                    }
                )
            )
        return parts

    def esxi_series(self, start_unix_ns: int, others: Sequence[HostSeries]) -> list[HostSeries]:
        """CPU of every ESXi host over the intervals of hosts with an engine; its guests' CPU is theirs. Empty if there
        are no intervals, or not all of its guests have them."""
        seconds = {each.host: each.seconds for each in others}
        found = []
        for each in self._esxtops:
            guests = self._guests[each.host]
            together = list(zip(*(seconds.get(name, ()) for name in guests), strict=False))
            host_seconds = []
            for intervals in together:
                first = intervals[0]
                part = each.during(start_unix_ns + first.at_ns, start_unix_ns + first.at_ns + first.duration_ns)
                if part is None:
                    break
                guest_ns = sum(one.busy_ns["machine"] for one in intervals)
                host_seconds.append(
                    ObservedSecond(
                        at_ns=first.at_ns,
                        duration_ns=first.duration_ns,
                        busy_ns={"machine": part.busy_ns},
                        guest_ns=guest_ns,
                    )
                )
            found.append(HostSeries(each.host, host_seconds, {}, hypervisor=True))
        return found

    def linux_cpu(self, host: str, observed: Observed, background_ns: int | None) -> list[CpuTime]:
        """The host minus its guests, as its kernel counts them; and the processes of guests that the study names, minus
        these guests."""
        window_ns = observed.window["duration_ns"]
        parts = []
        for guest, cpu in observed.watched.items():
            [part] = CpuUse.model_validate({"hypervisor": cpu.model_dump(exclude={"guest_ns"})})
            known = {"host": f"{host}: {guest}", "window_ns": window_ns, "guests_ns": cpu.guest_ns}
            parts.append(part.model_copy(update=known))
        [machine] = CpuUse.model_validate({"machine": observed.machine})
        guests = [core.guest_ns for core in machine.cores]
        ran = sum(each for each in guests if each is not None) if guests and None not in guests else None
        known = {
            "host": host,
            "window_ns": window_ns,
            "role": "hypervisor",
            "guests_ns": ran,
            "background_ns": background_ns,
        }
        return [*parts, machine.model_copy(update=known)]

    async def _pids(self, place: HostPlace) -> dict[str, int]:
        """Guest → its QEMU process, by the name that libvirt or the user gave it."""
        found = {}
        for guest in self._spec[place.name].guests:
            pattern = shlex.quote(f"-name (guest=)?{guest}(,| |$)")
            said = (await place.run(f"pgrep -f -- {pattern} || true")).split()
            if len(said) != 1:
                raise HostFault(
                    place.name, f"{len(said)} processes of a guest {guest}, where one is expected", "not_found"
                )
            found[guest] = int(said[0])
        return found
