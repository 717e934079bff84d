"""The volumes behind the endpoints that a study names: reached, checked and filled from its initiators."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from iotax.engine import EngineError
from iotax.labs import guard
from iotax.labs.base import CheckItem, Progress, Step, Worked
from iotax.labs.generators import generator_of
from iotax.labs.hosts.beside import Beside, Member, Programs
from iotax.labs.hosts.databases import COMMANDS as DATABASE_COMMANDS
from iotax.labs.hosts.databases import Databases
from iotax.labs.hosts.measure import each_of
from iotax.labs.hosts.paths import Attached, Paths
from iotax.labs.hosts.secrets import handed_over
from iotax.labs.hosts.survey import COMMANDS, Asked
from iotax.labs.load import Checked, Permission, options, overwriting, run_document, worked, zone_bytes
from iotax.labs.media import data_document
from iotax.places import Binary, HostFault
from iotax.places.host import HostPlace
from iotax.study import Settings
from iotax.study.endpoint import GUEST_DISK, KERNEL_PREFIX, NVME, kernel_path, one_portal
from iotax.study.hosts import CLIENT, Host
from iotax.study.topology import given
from iotax.trial import TrialResult

_ANSWER_S = 60.0
_GLANCE_BYTES = 4 << 20
"""Looked at once more whenever a path was brought up: partition tables and file systems begin here."""
_LOCAL = "local:"
_WWID = re.compile(r"(?:device/)?wwid ")
_WORLDWIDE = re.compile(rf"{_WWID.pattern}(?:naa|eui|uuid)\.")
"""An identity that no other disk has. Linux makes the other WWIDs (nvme.…, t10.…) from the vendor, model and serial
number, which are the same for the disks of two guests if the user gave both one serial number."""


@dataclass(frozen=True)
class Reached:
    """An endpoint from one host."""

    endpoint: str
    """The endpoint for the engine there."""
    program: str
    permission: Permission
    attached: Attached | None = None
    """The path of the host's kernel; None if the engine connects itself."""

    @property
    def facts(self) -> dict[str, str] | None:
        """Identity of a path that the host's kernel made."""
        return None if self.attached is None else dict(self.attached.facts)


class Volumes:
    """Volumes of one study. `destroy` holds the endpoints whose data may be overwritten, as the study names them."""

    def __init__(
        self,
        settings: Sequence[Settings],
        initiators: Sequence[HostPlace],
        absent: Container[str],
        binary: Binary,
        destroy: frozenset[str],
        enter: Callable[[Settings], Awaitable[None]],
        *,
        together: bool,
    ) -> None:
        """`absent` holds the names of initiators that are left out, as soon as they are. `enter` runs the user's
        commands for settings before anything is checked or written there. `together`: all endpoints stay connected."""
        self._absent = absent
        self._settings, self._initiators, self._destroy = settings, initiators, destroy
        self._binary, self.paths, self._enter = binary, Paths(binary, together=together), enter
        self.databases, self._programs = Databases(self.paths), Programs(self.paths)
        self._identities: dict[tuple[str, str], str] = {}
        """(host, endpoint) → which device or file was judged there."""
        self._judged: dict[tuple[str, str], tuple[Attached, dict[str, int] | None]] = {}
        """(host, endpoint) → the path that is up, and the engine's identity of it, since it was looked at."""

    def asked(self, server: Host | None) -> Asked:
        """What each initiator must support; `server` serves the embedded protocols."""
        uris = dict.fromkeys(each.endpoint.uri for each in self._settings)
        paths = [kernel_path(expanded(uri, 0)) for uri in uris if uri.startswith(KERNEL_PREFIX)]
        commands = dict.fromkeys(command for path in paths for command in COMMANDS[path.kind])
        for each in self._settings:
            if each.endpoint.kernel:
                kind, told = kernel_path(expanded(each.endpoint.uri, 0)).kind, given(each.topology)
                commands |= {"ip": None} if "mtu" in told else {}
                # Secrets go where they are used by its standard input.
                if (each.connection.chap and kind == "iscsi") or (each.connection.dhchap and kind in NVME):
                    commands["tee"] = None
                commands |= {"tee": None} if "queue_depth" in told else {}
                commands |= {"tee" if kind in NVME else "dmsetup": None} if told.get("path_policy") else {}
        peers = [path.address for path in paths if path.address]
        peers += [urlsplit(one_portal(uri)).hostname or "" for uri in uris if "://" in uri and not _on_host(uri)]
        peers += [server.data] if server is not None and "" in uris else []
        has_database = any(generator_of(each).database for each in self._settings)
        commands |= dict.fromkeys(DATABASE_COMMANDS) if has_database else {}
        devices = any(path.kind != "nfs" for path in paths) or any(
            uri.startswith((f"{_LOCAL}/dev/", GUEST_DISK)) for uri in uris
        )
        return Asked(tuple(commands), devices, next(iter(peers), ""))

    async def check(self, progress: Progress, *, commands: bool = True) -> list[CheckItem]:
        """The contents of each endpoint. A volume that several hosts reach is checked once; the others only verify that
        it is the same. Raises HostFault only for the user's commands; without `commands` none run."""
        found: list[CheckItem] = []
        for settings in self._external():
            if commands:
                await self._enter(settings)
            whole: dict[str, str] = {}
            viewers = self._viewers(settings)
            for index in viewers:
                found += await self._check(settings, index, whole, progress)
            found += self._alike(settings, viewers)
        return found

    def _alike(self, settings: Settings, viewers: Sequence[int]) -> list[CheckItem]:
        """Disks of several guests with one serial number, unless their identity shows that they are one disk."""
        uri = settings.endpoint.uri
        if not settings.endpoint.guest_disk or CLIENT in uri:
            return []
        names = [self._initiators[index].name for index in viewers]
        having = [name for name in names if (name, uri) in self._identities]
        identities = {self._identities[name, uri] for name in having}
        if len(having) < 2 or (len(identities) == 1 and _WORLDWIDE.match(next(iter(identities)))):
            return []
        said = f"{' and '.join(having[:2])} each have a disk with this serial number"
        remedy = f"give each its own serial number and write {CLIENT} in the endpoint"
        share = "each host loads only its own part, as of a shared volume"
        return [
            CheckItem("warning", f"{settings.label} ({uri})", f"{said}; {share}. If the disks are not one, {remedy}")
        ]

    def joined(self) -> list[CheckItem]:
        """Endpoints that are one disk on a host: its kernel may join their paths, so neither is compared. Known
        once they were looked at."""
        found: list[CheckItem] = []
        first: dict[tuple[str, str], str] = {}
        for (host, uri), identity in self._identities.items():
            is_disk = uri.startswith(KERNEL_PREFIX) and kernel_path(uri).kind != "nfs"
            other = first.setdefault((host, identity), uri) if is_disk else uri
            if other != uri:
                said = f"{other} is the same disk ({identity}), and multipathd would join both paths"
                asked = "map each path a LUN of its own, or measure in runs: `replicates:`"
                found.append(CheckItem("error", f"{uri} on {host}", f"{said}; {asked}"))
        return found

    async def fill(self, progress: Progress) -> None:
        """Writes the pattern where a treatment may read it. Raises HostFault."""
        for settings in self._external():
            # Preconditioning fills the volume, so it must not be filled sequentially afterwards.
            if generator_of(settings).database:
                await self._enter(settings)
                progress(Step(f"laying out the database on {settings.endpoint.uri}"))
                owners = self._owners(settings)
                if shared := [index for index in self._present() if index not in owners]:
                    said = f"{expanded(settings.endpoint.uri, shared[0])} is another host's disk, too: one file system"
                    raise HostFault(self._initiators[shared[0]].name, f"{said} knows one host", "usage")
                await each_of([self._build(settings, index) for index in owners])
            elif settings.volume.fill == "pattern" and settings.precondition is None:
                await self._enter(settings)
                progress(Step(f"writing the pattern to {settings.endpoint.uri}"))
                await each_of([self._fill(settings, index) for index in self._owners(settings)])

    def endpoints(self) -> list[str]:
        """The endpoints that the study names itself."""
        return [settings.endpoint.uri for settings in self._external()]

    async def fill_all(self, uri: str) -> Worked:
        """A pass of preconditioning over every volume behind an endpoint. Raises HostFault."""
        settings = self._settings_of(uri)
        await self._enter(settings)
        owners = self._owners(settings)
        await each_of([self._fill(settings, index) for index in owners])
        return Worked(len(owners) * self.needed_bytes(settings))

    async def overwrite_all(self, uri: str, seed: int, driver: str) -> Worked:
        """A round of it, on all of them at once. Raises HostFault."""
        settings = self._settings_of(uri)
        await self._enter(settings)

        async def one(index: int) -> TrialResult:
            reached = await self.reach(settings, index)
            document = run_document(
                overwriting(settings, self.needed_bytes(settings)),
                reached.endpoint,
                seed=seed + index,
                driver=driver,
                cpus=[],
                watch_pids={},
                permission=reached.permission,
            )
            return TrialResult.model_validate(await self._task(self._initiators[index], reached.program, document))

        return worked(await each_of([one(index) for index in self._owners(settings)]))

    async def reach(self, settings: Settings, index: int) -> Reached:
        """The endpoint of a host's load, with its kernel's path up and verified to be the checked volume. Raises
        HostFault."""
        place, uri = self._initiators[index], expanded(settings.endpoint.uri, index)
        given_away = settings.endpoint.uri in self._destroy
        if not _on_host(uri):
            return Reached(uri, self._binary.remote, Permission(destroy=given_away))
        attached = await self.paths.up(place, uri, settings)
        known = self._identities.setdefault((place.name, uri), attached.identity)
        if known != attached.identity:
            said = f"{uri} is {attached.identity} now; what was judged is {known}. Nothing was written"
            raise HostFault(place.name, said, "swapped")
        since, identity = self._judged.get((place.name, uri), (None, None))
        if since is not attached:
            checked = await self._look(place, settings, attached, look_bytes=_GLANCE_BYTES)
            if settings.writes and checked.holds == "foreign" and not given_away:
                said = f"{uri} holds {checked.what or 'data'} that iotax did not write. Nothing was changed"
                raise HostFault(place.name, said, "foreign_data")
            identity = checked.identity
            self._judged[place.name, uri] = attached, identity
        permission = Permission(judged=identity, destroy=given_away)
        return Reached(attached.endpoint, self._program(attached), permission, attached)

    async def answers(self, settings: Settings) -> None:
        """Raises HostFault if the endpoint does not answer. Writes nothing."""
        if _on_host(settings.endpoint.uri):
            await self.reach(settings, self._present()[0])
        else:
            first = self._present()[0]
            document = _check_document(expanded(settings.endpoint.uri, first), settings, look_bytes=0)
            await self._task(self._initiators[first], self._binary.remote, document)

    def beside(self, settings: Settings) -> Beside | None:
        """The program that loads the hosts in place of the engine; None for the engine."""
        if generator_of(settings).database:
            return self.databases
        return self._programs if generator_of(settings).host_script else None

    def needed_bytes(self, settings: Settings) -> int:
        """Bytes used of each volume by all clients that share it."""
        if generator_of(settings).database:
            return settings.volume.size
        clients = 1 if CLIENT in settings.endpoint.uri else settings.load.clients or len(self._initiators)
        return max(zone_bytes(settings, clients) * clients, settings.preconditioned_bytes)

    def _settings_of(self, uri: str) -> Settings:
        return next(each for each in self._external() if each.endpoint.uri == uri)

    def _owners(self, settings: Settings) -> list[int]:
        """A host for each volume behind an endpoint. The devices of several hosts may be several, though their names
        are one; by their identity they are known as the same."""
        uri = settings.endpoint.uri
        if CLIENT not in uri and not uri.startswith((_LOCAL, GUEST_DISK)):
            return self._present()[:1]
        found: dict[str, int] = {}
        for index in self._present():
            place = self._initiators[index]
            identity = self._identities.get((place.name, expanded(uri, index)), "")
            # A file system of a database is not given to two hosts even if their disks may be two.
            one_disk = _WORLDWIDE.match(identity) or (generator_of(settings).database and _WWID.match(identity))
            found.setdefault(identity if one_disk else place.name, index)
        return list(found.values())

    def _external(self) -> list[Settings]:
        """The largest treatment of each endpoint that the study names itself."""
        largest: dict[str, Settings] = {}
        for settings in self._settings:
            uri = settings.endpoint.uri
            if uri and (uri not in largest or self.needed_bytes(settings) > self.needed_bytes(largest[uri])):
                largest[uri] = settings
        return list(largest.values())

    def _present(self) -> list[int]:
        return [index for index, place in enumerate(self._initiators) if place.name not in self._absent]

    def _viewers(self, settings: Settings) -> list[int]:
        """The hosts that check: each with a volume or path of its own."""
        uri = settings.endpoint.uri
        return self._present() if CLIENT in uri or _on_host(uri) else self._present()[:1]

    async def _check(
        self, settings: Settings, index: int, whole: dict[str, str], progress: Progress
    ) -> list[CheckItem]:
        """`whole` holds the identities that were looked at from end to end, and by which host."""
        place, uri = self._initiators[index], expanded(settings.endpoint.uri, index)
        progress(Step(f"checking what data {uri} holds on {place.name}"))
        # The user gives permission for the endpoint as the study names it.
        named, label = settings.endpoint.uri, f"{settings.label} on {place.name}"
        destroy = named in self._destroy
        look_bytes: int | None = 0 if destroy else None
        try:
            if not _on_host(uri):
                document = _check_document(uri, settings, look_bytes)
                checked = Checked.model_validate(await self._task(place, self._binary.remote, document))
            else:
                attached = await self.paths.up(place, uri, settings)
                self._identities[place.name, uri] = attached.identity
                if (
                    settings.endpoint.kernel
                    and (first := whole.setdefault(attached.identity, place.name)) != place.name
                ):
                    return [CheckItem("ok", f"{label} ({uri})", f"the volume that {first} has, {attached.identity}")]
                if CLIENT not in named and settings.endpoint.kernel and len(whole) > 1:
                    said = f"is {attached.identity}, and {next(iter(whole.values()))} has {next(iter(whole))}"
                    return [CheckItem("error", f"{label} ({uri})", f"{said}: all must reach one volume")]
                if (beside := self.beside(settings)) is not None:
                    await beside.ready(Member(place, attached), settings)
                checked = await self._look(place, settings, attached, look_bytes)
        except HostFault as fault:
            error = EngineError(fault.kind, fault.message, named)
            return [guard.explain(label, named, error)]
        needed = settings.load.model_copy(update={"working_set": self.needed_bytes(settings)})
        return guard.judge(replace(settings, load=needed), label, named, checked, destroy=destroy)

    async def _fill(self, settings: Settings, index: int) -> None:
        reached = await self.reach(settings, index)
        document = {
            "task": "fill",
            "endpoint": reached.endpoint,
            "options": options(settings),
            "working_set_bytes": self.needed_bytes(settings),
            **data_document(settings.volume),
            **reached.permission.said(reached.endpoint),
        }
        await self._task(self._initiators[index], reached.program, document)

    async def _build(self, settings: Settings, index: int) -> None:
        reached = await self.reach(settings, index)
        assert reached.attached is not None, "the rules let databases have nothing else"
        await self.databases.build(Member(self._initiators[index], reached.attached), settings)

    async def _look(self, place: HostPlace, settings: Settings, attached: Attached, look_bytes: int | None) -> Checked:
        document = _check_document(attached.endpoint, settings, look_bytes)
        document |= {"judged": dict(attached.file)} if attached.file else {}
        checked = Checked.model_validate(await self._task(place, self._program(attached), document))
        foreign = checked.holds == "foreign" and generator_of(settings).database
        if foreign and await self.databases.is_ours(Member(place, attached), settings):
            return checked.model_copy(update={"holds": "pattern", "what": "an earlier database of iotax"})
        return checked

    def _program(self, attached: Attached) -> str:
        return self._binary.as_root if attached.needs_root else self._binary.remote

    async def _task(self, place: HostPlace, program: str, document: dict[str, Any]) -> dict[str, Any]:
        """The event that ends a task of one host. Any line puts the deadline off: a scan may take long."""
        await place.install(self._binary)
        last = {"check": "checked", "fill": "filled", "run": "result"}[document["task"]]
        given, secrets = handed_over(place.name, document)
        agent = await place.start(f"{program} load", given, secrets=secrets)
        try:
            while (event := await agent.event(_ANSWER_S))["event"] != last:
                pass
            return event
        finally:
            await agent.end()


def expanded(endpoint: str, index: int) -> str:
    return endpoint.replace(CLIENT, str(index + 1))


def _on_host(uri: str) -> bool:
    """Whether the engine there is given a device or file of its host."""
    return uri.startswith((_LOCAL, GUEST_DISK, KERNEL_PREFIX))


def _check_document(endpoint: str, settings: Settings, look_bytes: int | None) -> dict[str, Any]:
    document = {"task": "check", "endpoint": endpoint, "options": options(settings)}
    return document | ({} if look_bytes is None else {"look_bytes": look_bytes})
