"""How a study's hosts are reached: over SSH, or through Dask workers that run on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from iotax.labs.hosts.measure import Directly, Group, Job, Window, each_of
from iotax.labs.hosts.survey import Asked, Survey, survey
from iotax.places import Binary
from iotax.places.here import LocalHost
from iotax.places.host import HostPlace
from iotax.places.ssh import HANDSHAKES_MAX, SshHost
from iotax.study.hosts import Host, Hosts

if TYPE_CHECKING:
    from iotax.labs.hosts.relayed import Relayed, Relays
    from iotax.places.workers import Workers


TRIED_MAX = 200
"""Hosts whose lines one controller was seen to carry (docs/guide/hosts.md, Many hosts)."""


class Reach:
    """The access to one study's hosts."""

    def __init__(self, spec: Hosts, tell: Callable[[str], None]) -> None:
        """`tell` receives the reasons for waiting."""
        self._handshakes = asyncio.Semaphore(HANDSHAKES_MAX)
        self._workers = _workers(spec, tell)
        self._relays = _relays(spec)
        self._relayed: dict[str, Relayed] = {}

    def initiator(self, host: Host) -> HostPlace:
        """Behind a relay, where the study has relays."""
        if self._relays is None or host.is_here:
            return self.place(host)
        from iotax.labs.hosts.relayed import Relayed  # noqa: PLC0415

        return self._relayed.setdefault(host.name, Relayed(host, self._relays))

    def place(self, host: Host) -> HostPlace:
        """A host on which the engine runs."""
        if host.is_here:
            return LocalHost(host)
        if self._workers is None:
            return self.over_ssh(host)
        from iotax.places.workers import OnWorker  # noqa: PLC0415

        return OnWorker(host, self._workers)

    def over_ssh(self, host: Host) -> SshHost:
        """One that runs no worker: an array, a switch, a host of ESXi."""
        return SshHost(host, self._handshakes)

    async def install(self, places: Sequence[HostPlace], binary: Binary) -> None:
        """The engine on each. Raises HostFault."""
        work: list[Coroutine[Any, Any, object]] = [
            place.install(binary) for place in places if place.name not in self._relayed
        ]
        if self._relays is not None:
            behind = [self._relayed[place.name] for place in places if place.name in self._relayed]
            work.append(self._relays.install(behind, binary))
        await each_of(work)

    async def survey(self, asked: Sequence[tuple[str, HostPlace, Asked]], binary: Binary) -> list[Survey]:
        """All at once. A host that cannot be reached says why."""
        if self._relays is None:
            return await survey(asked, binary)
        behind = [
            (role, self._relayed[place.name], about) for role, place, about in asked if place.name in self._relayed
        ]
        others = [each for each in asked if each[1].name not in self._relayed]
        found = await asyncio.gather(self._relays.survey(behind, binary), survey(others, binary))
        by_host = {each.host: each for part in found for each in part}
        return [by_host[place.name] for _, place, _ in asked]

    async def groups(self, jobs: Sequence[Job], window: Window) -> list[Group]:
        """Which process talks to which hosts. Raises HostFault."""
        own = [job for job in jobs if job.place.name not in self._relayed]
        groups: list[Group] = [Directly(own, window)] if own else []
        if self._relays is not None:
            groups += await self._relays.groups([job for job in jobs if job.place.name in self._relayed], window)
        return groups

    async def close(self) -> None:
        """Call after closing all of its places."""
        if self._relays is not None:
            await self._relays.close()
        if self._workers is not None:
            await self._workers.close()


def untried(spec: Hosts) -> str:
    """A remark if there are more hosts than were ever tested; empty for fewer."""
    count = len(spec.hosts())
    if count <= TRIED_MAX:
        return ""
    if spec.relays is not None:
        return f"{count} hosts, and no more than {TRIED_MAX} were tried, with relays as without"
    return (
        f"{count} hosts, and no more than {TRIED_MAX} were tried from one controller: it carries all their lines, some "
        "4 ms of one core for each in every trial. `relays:` has other machines do that (docs/guide/hosts.md)"
    )


def _relays(spec: Hosts) -> Relays | None:
    if spec.relays is None:
        return None
    from iotax.labs.hosts.relayed import Relays  # noqa: PLC0415

    return Relays(spec.relays, spec.initiator_hosts())


def _workers(spec: Hosts, tell: Callable[[str], None]) -> Workers | None:
    """None if the hosts are reached over SSH, without Dask."""
    if spec.cluster == "ssh":
        return None
    from iotax.places.workers import Workers  # noqa: PLC0415

    return Workers(spec.cluster, spec.hosts(), tell)
