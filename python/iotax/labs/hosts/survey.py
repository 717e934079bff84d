"""Describes hosts for the table of `iotax lab hosts check`. Changes nothing but the engine's copy."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from iotax.labs.hosts.clock import Offset, Ours, Turns
from iotax.labs.hosts.clock import measure as measure_clock
from iotax.labs.hosts.measure import READY_S
from iotax.places import LEASE_NS, Binary, HostFault
from iotax.places.host import Companion, HostPlace
from iotax.protocols import kernel_modules

# Built in, a module stands under /sys/module or /proc/filesystems.
_ASK = (
    "uname -r; uname -m; nproc; "
    'if [ "$(id -u)" = 0 ]; then echo root; elif sudo -n true 2>/dev/null; then echo all; else echo no; fi; '
) + "; ".join(
    f"{{ test -d /sys/module/{module} || /sbin/modinfo {module} >/dev/null 2>&1 "
    f"|| grep -qw {module} /proc/filesystems; }} && echo {protocol}"
    for protocol, module in kernel_modules().items()
)

COMMANDS = {"nvme-tcp": ("nvme",), "fc-nvme": ("nvme",), "iscsi": ("iscsiadm",), "nfs": ("mount", "umount"), "fc": ()}
"""Kind of a kernel's path → commands that root runs for it."""
_HELD = (
    "{ lsblk -rno NAME,TYPE,FSTYPE,MOUNTPOINTS 2>/dev/null || lsblk -rno NAME,TYPE,FSTYPE,MOUNTPOINT 2>/dev/null; } | "
    """awk '$2 != "loop" && $2 != "rom" && NF > 2 { name = $1; $1 = $2 = ""; sub(/^ +/, ""); print name ": " $0 }'"""
)
"""Disks or partitions in use: with a file system, a volume manager's label, or a mount."""


@dataclass(frozen=True)
class Asked:
    """What a study needs to know of one host beyond what every host is asked."""

    commands: tuple[str, ...] = ()
    """Commands that must run as root."""
    devices: bool = False
    """Whether the engine opens block devices there, as root."""
    peer: str = ""
    """An address that it reaches over the network under test."""


@dataclass(frozen=True)
class Interface:
    """Facts of a host."""

    name: str
    mtu: int
    speed_mbit: int | None = None
    """None if it has none, as virtual ones."""

    def __str__(self) -> str:
        speed = "" if self.speed_mbit is None else f", {self.speed_mbit / 1000:g} Gbit/s"
        return f"{self.name}, MTU {self.mtu}{speed}"


@dataclass(frozen=True)
class Survey:
    """A survey of one host."""

    host: str
    role: str
    kernel: str = ""
    machine: str = ""
    cores: int = 0
    root: bool = False
    """Whether the login is root, who needs no sudo."""
    sudo: bool = False
    """Whether `sudo -n` runs any command as root."""
    allowed: tuple[str, ...] = ()
    """Commands that the study needs as root and has."""
    protocols: tuple[str, ...] = ()
    """Protocols of its kernel."""
    obstacles: tuple[str, ...] = ()
    """Commands that the study needs as root and cannot have: `nvme is missing`, `mount is forbidden`."""
    link: Interface | None = None
    """The interface on the way to the study's target; None if it names none or there is no route."""
    held: tuple[str, ...] = ()
    """Its disks and the contents of each: `sda: ext4 /`."""
    engine: str = ""
    clock: Offset | None = None
    companion: Companion | None = None
    """The Dask worker through which it is reached, if there is one."""
    relay: str = ""
    """The relay that holds its connection, if there is one."""
    fault: str = ""
    """Why nothing else is known, or not all."""
    fault_kind: str = ""
    """The kind of that HostFault."""


async def survey(places: Sequence[tuple[str, HostPlace, Asked]], binary: Binary) -> list[Survey]:
    """All at once. A host that cannot be reached says why."""
    in_turns = Turns()
    return list(await asyncio.gather(*(_one(role, place, asked, binary, in_turns) for role, place, asked in places)))


async def with_companions(places: Sequence[tuple[str, HostPlace, Asked]], surveyed: Sequence[Survey]) -> list[Survey]:
    """Includes the process through which each host is reached, measured while no host is busy with a request."""

    async def one(place: HostPlace, found: Survey) -> Survey:
        if found.fault:
            return found
        try:
            return replace(found, companion=await place.companion())
        except HostFault as fault:
            return replace(found, fault=fault.message, fault_kind=fault.kind)
        except ValueError:
            return replace(found, fault="what its Dask worker takes at rest cannot be read there")

    places_only = [place for _, place, _ in places]
    return list(await asyncio.gather(*map(one, places_only, surveyed)))


async def _one(role: str, place: HostPlace, asked: Asked, binary: Binary, in_turns: Turns) -> Survey:
    found = Survey(place.name, role)
    if role == "esxi":
        return await _esxi(found, place)
    try:
        kernel, machine, cores, root, *protocols = (await place.run(f"{{ {_ASK}; }} || true")).splitlines()
        found = Survey(place.name, role, kernel, machine, int(cores), root=root == "root", sudo=root == "all")
        found = replace(found, protocols=tuple(protocols))
        program = await place.install(binary)
        allowed, obstacles = await _as_root(place, asked, binary)
        found = replace(
            found,
            allowed=allowed,
            obstacles=obstacles,
            link=await _interface(place, asked.peer),
            # lsblk writes the line breaks between several mounts so.
            held=tuple(line.replace("\\x0a", ", ") for line in (await place.run(_HELD)).splitlines()),
        )
        document = {"settle_ns": 0, "slice_ns": 1, "start": "told", "observe": {}, "lease_ns": LEASE_NS}
        agent = await place.start(f"{program} session", document)
        try:
            armed = await agent.expect("armed", READY_S)
            clock = await measure_clock(agent, Ours(), in_turns)
        finally:
            await agent.end()
    except HostFault as fault:
        return replace(found, fault=fault.message, fault_kind=fault.kind)
    except ValueError:
        return Survey(place.name, role, fault="its shell answers something else than was asked")
    return replace(found, engine=armed["engine_version"], clock=clock)


async def _esxi(found: Survey, place: HostPlace) -> Survey:
    """No engine runs there; esxtop is needed."""
    try:
        kernel, machine, *there = (await place.run("uname -sr; uname -m; command -v esxtop || true")).splitlines()
    except HostFault as fault:
        return replace(found, fault=fault.message, fault_kind=fault.kind)
    except ValueError:
        return replace(found, fault="its shell answers something else than was asked")
    obstacles = () if there else ("esxtop is missing",)
    return replace(found, role="hypervisor", kernel=kernel, machine=machine, obstacles=obstacles)


async def _as_root(place: HostPlace, asked: Asked, binary: Binary) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The commands available to root, and the obstacles to the others."""
    commands = [*asked.commands, *([f'"$HOME/{binary.remote}"'] if asked.devices else [])]
    if not commands:
        return (), ()
    said = await place.run(
        "PATH=$PATH:/usr/sbin:/sbin; "
        f"for each in {' '.join(commands)}; do name=${{each##*/}}; "
        'command -v "$each" >/dev/null 2>&1 || { echo "$name is missing"; continue; }; '
        '[ "$(id -u)" = 0 ] || sudo -n -l "$each" >/dev/null 2>&1 || '
        '{ echo "sudo -n $name is forbidden"; continue; }; echo "OK $name"; done'
    )
    lines = said.splitlines()
    allowed = tuple(line.removeprefix("OK ") for line in lines if line.startswith("OK "))
    return allowed, tuple(line for line in lines if not line.startswith("OK "))


async def _interface(place: HostPlace, peer: str) -> Interface | None:
    if not peer:
        return None
    where = shlex.quote(peer)
    said = await place.run(
        f"PATH=$PATH:/usr/sbin:/sbin; to=$(getent ahosts {where} | awk 'NR == 1 {{ print $1 }}'); "
        f"dev=$(ip -o route get \"${{to:-{where}}}\" 2>/dev/null | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p'); "
        'if [ -n "$dev" ]; then echo "$dev"; cat "/sys/class/net/$dev/mtu"; '
        'cat "/sys/class/net/$dev/speed" 2>/dev/null; fi; true'
    )
    name, mtu, speed, *_ = [*said.split(), "", "", ""]
    return Interface(name, int(mtu), int(speed) if speed.isdecimal() and int(speed) else None) if name else None
