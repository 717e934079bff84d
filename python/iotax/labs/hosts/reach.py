"""How the hosts of a study are reached: over SSH, or by workers of a Dask cluster that run on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from iotax.places.host import HostPlace
from iotax.places.ssh import HANDSHAKES_MAX, SshHost
from iotax.study.hosts import Host, Hosts

if TYPE_CHECKING:
    from iotax.places.workers import Workers


TRIED_MAX = 200
"""Hosts whose lines one controller was seen to carry (docs/guide/hosts.md, Many hosts)."""


class Reach:
    """Of one study."""

    def __init__(self, spec: Hosts, tell: Callable[[str], None]) -> None:
        """`tell` hears what is waited for."""
        self._handshakes = asyncio.Semaphore(HANDSHAKES_MAX)
        self._workers = _workers(spec, tell)

    def place(self, host: Host) -> HostPlace:
        """A host on which the engine runs."""
        if self._workers is None:
            return self.over_ssh(host)
        from iotax.places.workers import OnWorker  # noqa: PLC0415

        return OnWorker(host, self._workers)

    def over_ssh(self, host: Host) -> SshHost:
        """One that runs no worker: an array, a switch, a host of ESXi."""
        return SshHost(host, self._handshakes)

    async def close(self) -> None:
        """After all of its places."""
        if self._workers is not None:
            await self._workers.close()


def untried(spec: Hosts) -> str:
    """What to know of more hosts than anybody tried; empty for fewer."""
    count = len(spec.hosts())
    if count <= TRIED_MAX:
        return ""
    return (
        f"{count} hosts, and no more than {TRIED_MAX} were tried from one controller: it carries all their lines, some "
        "4 ms of one core for each in every trial. Where clocks are known less well or starts are late, run parts "
        "of them as studies of their own"
    )


def _workers(spec: Hosts, tell: Callable[[str], None]) -> Workers | None:
    """None where the hosts are reached over SSH, which takes no Dask."""
    if spec.cluster == "ssh":
        return None
    from iotax.places.workers import Workers  # noqa: PLC0415

    return Workers(spec.cluster, spec.hosts(), tell)
