"""Paths of the initiators' own kernels: one per host, or several side by side, read back, and taken down whatever
happens to this process.

A script on the host (remote/paths.sh) does the work. While a study runs, it holds the host's lock and a lease. When the
lease ends for any reason, the script takes down the paths in the host's journal.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from secrets import token_hex

from iotax.labs.hosts.secrets import NoSecret, carried
from iotax.places import LEASE_NS, Binary, HostFault, Task
from iotax.places.base import FOLDER
from iotax.places.host import HostPlace
from iotax.study import Settings
from iotax.study.endpoint import FIBRE_CHANNEL, GUEST_DISK, NVME, KernelPath, kernel_path, serial_of
from iotax.study.topology import given

UP_S = 120.0
"""A login, a scan and a disk that settles; each step of the script has its own, shorter limit."""
_ARMED_S = 60.0
_LOOK_AGAIN_S = 0.5
_KINDS = frozenset({"missing", "denied", "unreachable", "in_use", "disk_full", "not_found", "usage"})
_LOCAL = "local:"
_SECRETS = "secrets=stdin"


@dataclass(frozen=True)
class Script:
    """Shell scripts copied to hosts under a name made from their content."""

    name: str
    text: str

    @property
    def path(self) -> str:
        """Folder on a host, below the login's home."""
        return f"{FOLDER}/{self.name}-{hashlib.sha256(self.text.encode()).hexdigest()[:16]}.sh"

    async def install(self, place: HostPlace) -> None:
        """Raises HostFault."""
        # A name of its own: hosts may share their homes.
        part = f"{self.path}.{token_hex(8)}"
        await place.run(f"cat >{part} && mv {part} {self.path}", given=self.text)


def _remote(file: str) -> str:
    return (resources.files("iotax.labs.hosts") / "remote" / file).read_text(encoding="utf-8")


PATHS = Script("paths", _remote("paths.sh"))
_GUEST_DISK = Script("guest-disk", _remote("guest_disk.sh"))
_DEVICE = re.compile(r"DEVICE=(/dev/[A-Za-z0-9_.!-]{1,64})\n?")
"""What a host may answer; its answer becomes an argument there."""


@dataclass(frozen=True)
class Attached:
    """A path that is up on a host."""

    device: str
    """The block device, or the file."""
    identity: str
    """Identity that distinguishes it from others with the same name: WWID, UUID, or place."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Settings in effect, as the host's kernel reports them."""
    file: Mapping[str, int] | None = None
    """For a file that only iotax mounts: device and inode, as the engine's `judged`."""

    @property
    def endpoint(self) -> str:
        """The endpoint for the engine on the host."""
        return f"{_LOCAL}{self.device}"

    @property
    def needs_root(self) -> bool:
        return self.device.startswith("/dev/")


class Paths:
    """Paths of one study. `together`: a path stays up beside those that follow, each in its own slot on the host."""

    def __init__(self, binary: Binary, *, together: bool = False) -> None:
        self._binary, self._together = binary, together
        self.appear_s = 0.0
        """How long a disk may take to appear on a host: a hypervisor's command that attaches one ends before the
        guest's kernel has found it."""
        self._keepers: dict[str, Task] = {}
        self._up: dict[str, dict[tuple[str, ...], Attached]] = {}
        """Host → requested path → result."""
        self._slots: dict[str, list[tuple[str, ...]]] = {}
        """Host → requested path in each slot, from 1."""
        self._users: set[tuple[str, str]] = set()
        """Hosts with the program that uses their paths, where it was copied."""

    async def up(self, place: HostPlace, uri: str, settings: Settings) -> Attached:
        """The path of an endpoint, with `{client}` filled in; takes down another path first if it may not stay. Raises
        HostFault. Paths that are on the host anyway are looked up each time, since their names may lead elsewhere by
        now."""
        until_s = time.monotonic() + (self.appear_s if uri.startswith((GUEST_DISK, _LOCAL)) else 0)
        while True:
            try:
                return await self._up_now(place, uri, settings)
            except HostFault as fault:
                if fault.kind != "not_found" or time.monotonic() >= until_s:
                    raise
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _up_now(self, place: HostPlace, uri: str, settings: Settings) -> Attached:
        if uri.startswith(GUEST_DISK):
            await self._keep(place)
            uri = await self._guest_disk(place, uri)
        asked = words(uri, settings)
        try:
            secrets = "" if uri.startswith(_LOCAL) else carried(uri, settings)
        except NoSecret as error:
            raise HostFault(place.name, f"{settings.endpoint.uri}: {error}", "usage") from error
        if secrets:
            # Credentials distinguish two paths, but no secrets are kept.
            whose = settings.connection.chap or settings.connection.dhchap
            asked = (_SECRETS, *asked)
            known = (repr(whose), *asked)
        else:
            known = asked
        await self._keep(place)
        up = self._up.setdefault(place.name, {})
        if known in up and not uri.startswith(_LOCAL):
            return up[known]
        if self._together:
            asked = (f"slot={self._slot(place.name, known)}", *asked)
            up.pop(known, None)
        else:
            up.clear()
        attached = attached_of(place.name, await self._script(place, f"up {shlex.join(asked)}", secrets))
        if wrong := mismatches(uri, settings, attached.facts):
            up.clear()
            await self._script(place, "down")
            raise HostFault(place.name, f"{uri}: {'; '.join(wrong)}", "usage")
        up[known] = attached
        return attached

    async def _guest_disk(self, place: HostPlace, uri: str) -> str:
        """The device that has this serial number on the host now, as an endpoint. Raises HostFault."""
        said = await self.use(place, _GUEST_DISK, shlex.join(("guest_disk", serial_of(uri))), UP_S)
        if (found := _DEVICE.fullmatch(said)) is None:
            raise HostFault(place.name, f"{uri}: the host's answer names no device", "io")
        return f"{_LOCAL}{found[1]}"

    def _slot(self, host: str, known: tuple[str, ...]) -> int:
        slots = self._slots.setdefault(host, [])
        if known not in slots:
            slots.append(known)
        return 1 + slots.index(known)

    async def use(self, place: HostPlace, script: Script, words: str, within_s: float) -> str:
        """Runs a function on a path that is up, and returns its result. Raises HostFault."""
        if (place.name, script.path) not in self._users:
            await script.install(place)
            self._users.add((place.name, script.path))
        return await self._script(place, f"with {script.path} {words}", within_s=within_s)

    async def rest(self, places: Sequence[HostPlace]) -> None:
        """Takes down the paths on these hosts, and keeps the hosts. Raises HostFault."""
        for place in places:
            if any(asked[0] != "local" for asked in self._up.pop(place.name, {})):
                await self._script(place, "down")

    async def close(self, places: list[HostPlace]) -> list[str]:
        """Takes everything down and releases the hosts; returns what could not be taken down, with what to do."""
        left = []
        for place in places:
            if (keeper := self._keepers.pop(place.name, None)) is None:
                continue
            try:
                if not await keeper.alive():
                    raise HostFault(place.name, "the process there that holds its paths has ended")
                await self._script(place, "down")
            except HostFault as fault:
                # The keeper on the host tries again, and so does the next study.
                left.append(f"{fault}. What is left there, the next run or `iotax lab hosts clean` takes down")
            await keeper.end()
        self._up.clear()
        return left

    async def clean(self, place: HostPlace) -> str:
        """Takes down what an earlier study left, and removes everything that iotax copied; returns what it was. Raises
        HostFault, also if a study is running."""
        said = ""
        if await place.run(f"ls {FOLDER}/path-* {FOLDER}/using-* {FOLDER}/lock-* {FOLDER}/work-* 2>/dev/null || true"):
            await PATHS.install(place)
            said = await self._script(place, "clean")
        copied = " ".join(f"{FOLDER}/{name}" for name in ("engine-*", "*-*.sh"))
        removed = f"rm -fv {copied} && {{ rmdir {FOLDER} 2>/dev/null || true; }}"
        return (said + await place.run(removed)).strip()

    async def _keep(self, place: HostPlace) -> None:
        keeper = self._keepers.get(place.name)
        if keeper is not None and await keeper.alive():
            return
        self._up.pop(place.name, None)
        if keeper is not None:
            await keeper.end()
        program = await place.install(self._binary)
        await PATHS.install(place)
        document = {"settle_ns": 0, "slice_ns": 1, "start": "told", "observe": {}, "lease_ns": LEASE_NS}
        keeper = await place.start(f"sh {PATHS.path} keep {program}", document)
        try:
            await keeper.expect("armed", _ARMED_S)
        except HostFault as fault:
            said = keeper.log
            await keeper.end()
            raise _explained(place.name, said.splitlines()[-1] if said else fault.message) from fault
        self._keepers[place.name] = keeper

    async def _script(self, place: HostPlace, command: str, given: str = "", within_s: float = UP_S) -> str:
        try:
            return await place.run(f"sh {PATHS.path} {command}", given=given, within_s=within_s)
        except HostFault as fault:
            if fault.kind != "io":
                raise
            raise _explained(place.name, fault.message.removeprefix("sh failed: ")) from fault


def words(uri: str, settings: Settings) -> tuple[str, ...]:
    """Arguments of the script on the host."""
    if uri.startswith(_LOCAL):
        return "local", uri.removeprefix(_LOCAL)
    path, connection = kernel_path(uri), settings.connection
    topology = given(settings.topology)
    set_first = [f"mtu={topology['mtu']}"] if "mtu" in topology else []
    set_first += [f"policy={topology['path_policy']}"] if topology.get("path_policy") else []
    set_first += [f"depth={topology['queue_depth']}"] if "queue_depth" in topology else []
    set_first += [f"portals={','.join(path.portals)}"] if path.portals else []
    if path.kind == "fc":
        return *set_first, path.kind, path.name, path.unit
    if path.kind == "fc-nvme":
        return *set_first, path.kind, path.wwpn, path.name, path.unit, str(_connections(path, settings) or "")
    common = *set_first, path.kind, path.address, str(path.port), path.name, path.unit
    count = str(_connections(path, settings) or "")
    if path.kind == "nfs":
        return *common, path.version, count
    on = "CRC32C" if path.kind == "iscsi" else "on"
    digests = tuple(on if each else "" for each in (connection.header_digest, connection.data_digest))
    return (*common, *digests) if path.kind == "iscsi" else (*common, count, *digests)


_READ_BACK = ("mtu", "path_policy", "queue_depth")


def _connections(path: KernelPath, settings: Settings) -> int | None:
    """A setting of a mount or of a controller's I/O queues, from the endpoint or the treatment."""
    field = "nconnect" if path.kind == "nfs" else "io_queues" if path.kind in NVME else ""
    return path.connections if path.connections is not None else given(settings.topology).get(field)


def attached_of(host: str, said: str) -> Attached:
    """The path from the script's output. Raises HostFault if it names no device."""
    found: dict[str, str] = {}
    facts: dict[str, str] = {}
    for line in said.splitlines():
        into, rest = (facts, line.removeprefix("FACT ")) if line.startswith("FACT ") else (found, line)
        name, _, value = rest.partition("=")
        into[name] = value
    if not found.get("DEVICE"):
        raise HostFault(host, "the path came up, but named no device", "io")
    file = dict(zip(("device", "inode"), map(int, found["FILE"].split()), strict=True)) if "FILE" in found else None
    return Attached(found["DEVICE"], found.get("ID", ""), facts, file)


def mismatches(uri: str, settings: Settings, facts: Mapping[str, str]) -> list[str]:
    """Settings that were requested but that the host's kernel does not have."""
    if uri.startswith(_LOCAL):
        return []
    path, connection = kernel_path(uri), settings.connection
    asked = {name: str(value) for name, value in given(settings.topology).items() if name in _READ_BACK}
    if path.kind == "nfs":
        asked["vers"] = path.version
    elif path.kind not in FIBRE_CHANNEL:
        asked |= {name: "on" for name in ("header_digest", "data_digest") if getattr(connection, name)}
    if path.portals:
        asked["paths"] = str(1 + len(path.portals))
    if (connections := _connections(path, settings)) is not None:
        asked["nconnect" if path.kind == "nfs" else "queues"] = str(connections)
    return [
        f"{name} is {facts.get(name, 'not to be found')}, {value} was asked for"
        for name, value in asked.items()
        if facts.get(name) != value
    ]


def _explained(host: str, said: str) -> HostFault:
    """The script's last words are a kind and a message."""
    kind, _, message = said.partition(" ")
    return HostFault(host, message, kind) if kind in _KINDS else HostFault(host, said, "io")
