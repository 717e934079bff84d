"""What a host is, for the table of `iotax lab hosts check`. Changes nothing but the engine's copy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from iotax.labs.hosts.agent import LEASE_NS, Agent
from iotax.labs.hosts.clock import Offset
from iotax.labs.hosts.clock import measure as measure_clock
from iotax.labs.hosts.measure import READY_S
from iotax.labs.hosts.ssh import Binary, HostFault, Link

_MODULES = {"nvme-tcp": "nvme_tcp", "iscsi": "iscsi_tcp", "nfs": "nfs", "fc-nvme": "nvme_fc"}
"""Protocol → the kernel's module for it; built in, it stands under /sys/module or /proc/filesystems."""
_ASK = "uname -r; uname -m; nproc; sudo -n true 2>/dev/null && echo yes || echo no; " + "; ".join(
    f"{{ test -d /sys/module/{module} || /sbin/modinfo {module} >/dev/null 2>&1 "
    f"|| grep -qw {module} /proc/filesystems; }} && echo {protocol}"
    for protocol, module in _MODULES.items()
)


@dataclass(frozen=True)
class Survey:
    """Of one host."""

    host: str
    role: str
    kernel: str = ""
    machine: str = ""
    cores: int = 0
    sudo: bool = False
    """Whether `sudo -n` runs commands as root."""
    protocols: tuple[str, ...] = ()
    """That its kernel can speak."""
    engine: str = ""
    clock: Offset | None = None
    fault: str = ""
    """Why nothing else is known, or not all."""


async def survey(links: Sequence[tuple[str, Link]], binary: Binary) -> list[Survey]:
    """All at once, (role, link) each. A host that cannot be reached says why."""
    return list(await asyncio.gather(*(_one(role, link, binary) for role, link in links)))


async def _one(role: str, link: Link, binary: Binary) -> Survey:
    found = Survey(link.name, role)
    try:
        kernel, machine, cores, sudo, *protocols = (await link.run(f"{{ {_ASK}; }} || true")).splitlines()
        found = Survey(link.name, role, kernel, machine, int(cores), sudo == "yes", tuple(protocols))
        program = await link.install(binary)
        document = {"settle_ns": 0, "slice_ns": 1, "start": "told", "observe": {}, "lease_ns": LEASE_NS}
        agent = await Agent.start(link, program, "session", document)
        try:
            armed = await agent.expect("armed", READY_S)
            clock = await measure_clock(agent)
        finally:
            await agent.end()
    except HostFault as fault:
        return replace(found, fault=fault.message)
    except ValueError:
        return Survey(link.name, role, fault="its shell answers something else than was asked")
    return replace(found, engine=armed["engine_version"], clock=clock)
