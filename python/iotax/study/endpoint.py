"""Where I/O goes: an embedded protocol, the URI of an external target, or a file or device of this machine.

On hosts it may also be a path that the host's own kernel makes to an external target (NFS, iSCSI, NVMe/TCP, Fibre
Channel), or a guest's virtual disk by the serial number that its hypervisor gives it: `guest-disk://SERIAL`. The
guest's name of a disk (/dev/vdb, /dev/sdc, /dev/nvme1n1) may change with each boot, the serial number stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import parse_qs, urlsplit

from iotax.protocols import Protocol, names, schemes
from iotax.study.hosts import CLIENT

EMBEDDED = names("loopback")
"""What the loopback lab serves itself. `local` reaches the server's volume without a protocol."""

KERNEL = names("vm")
"""What the vm lab serves from a kernel to another. `local` reaches the volume within the storage guest."""

SIM = names("sim")
"""What the sim lab simulates."""
HOSTS = names("hosts")
"""What a target of the hosts lab serves with the engine."""

NAMED = names()
"""Every protocol that a study may name without an endpoint; which of them depends on its lab."""

_SCHEMES = schemes()
_CONNECTIONS_MAX = {"nconnect": 16, "queues": 1024}
"""NFS_MAX_CONNECTIONS of Linux; more queues than any host has processors."""
_WORD = re.compile(r"[A-Za-z0-9_.:/+=@-]*")
"""Of what a host's shell and its commands are told."""


@dataclass(frozen=True)
class Endpoint:
    """One level of `protocol`. `uri` is what the engine is given; empty for an embedded protocol."""

    protocol: str
    uri: str = ""

    @property
    def embedded(self) -> bool:
        return not self.uri

    @property
    def kernel(self) -> bool:
        """Whether the kernel of each initiator makes the path."""
        return self.uri.startswith(KERNEL_PREFIX)

    @property
    def guest_disk(self) -> bool:
        """Whether each initiator looks for a disk with this serial number."""
        return self.uri.startswith(GUEST_DISK)


def parse_endpoint(target: str, folder: Path | None = None) -> Endpoint:
    """Reads a level of `protocol`. A relative path is taken from `folder`, the study file's own.

    Raises ValueError with the form that was expected.
    """
    if target in NAMED:
        return Endpoint(target)
    if target.startswith("local:"):
        return _path(target.removeprefix("local:"), folder)
    if target.startswith(GUEST_DISK):
        if wrong := wrong_serial(serial_of(target.replace(CLIENT, "1"))):
            raise ValueError(f"{wrong}; write {GUEST_DISK_FORM}")
        return Endpoint("local", target)
    if "://" in target:
        # What each initiator puts its number into must be an endpoint then.
        return Endpoint(_uri(target.replace(CLIENT, "1")).protocol, target)
    if "/" in target or target.startswith("."):
        return _path(target, folder)
    raise ValueError(
        f"neither an embedded protocol ({', '.join(NAMED)}) nor an endpoint "
        f"({', '.join(scheme.form for scheme, _ in _SCHEMES.values() if scheme.form)}, or the path of a file or device)"
    )


def _path(path: str, folder: Path | None) -> Endpoint:
    if not path:
        raise ValueError("local: needs the path of a file or device")
    full = Path(path).expanduser()
    if not full.is_absolute() and folder is not None:
        full = folder / full
    return Endpoint("local", f"local:{full}")


def _uri(uri: str) -> Endpoint:
    kernel = uri.startswith(KERNEL_PREFIX)
    forms = {name: scheme.kernel_form if kernel else scheme.form for name, (scheme, _) in _SCHEMES.items()}
    bare = uri.removeprefix(KERNEL_PREFIX)
    found = bare.partition("://")[0]
    if not forms.get(found):
        written = " or ".join(filter(None, forms.values()))
        raise ValueError(f"{found}:// is not a protocol that iotax speaks; write {written}")
    scheme, protocol = _SCHEMES[found]
    form = f"write {forms[found]}"
    _refuse_login(bare, protocol, form)
    portals = portals_of(bare)
    if len(portals) > 1 and (kernel or not protocol.has_paths):
        hint = "; name the others as `portals=`" if kernel and "portals" in scheme.kernel_query else ""
        raise ValueError(f"one portal stands before the path{hint}; {form}")
    if len(portals) > PORTALS_MAX:
        raise ValueError(f"{len(portals)} portals are more than {PORTALS_MAX}; {form}")
    for portal in portals:
        _check_portal(portal, form)
    parts = urlsplit(one_portal(bare))
    host = parts.hostname or ""
    query = parse_qs(parts.query, keep_blank_values=True)
    if unknown := sorted(set(query) - {*(scheme.kernel_query if kernel else scheme.query)}):
        hint = "" if kernel else scheme.elsewhere.get(unknown[0], "")
        raise ValueError(f"?{unknown[0]}= means nothing here{f': {hint}' if hint else ''}; {form}")
    path = parts.path.strip("/")
    check = (scheme.kernel_wrong if kernel else None) or scheme.wrong
    if wrong := check(host, path.split("/") if path else [], query):
        raise ValueError(f"{wrong}; {form}")
    if not kernel:
        return Endpoint(protocol.name, uri)
    _check_kernel(host, parts.path, query, form)
    return Endpoint(kernel_path(uri).protocol, uri)


PORTALS_MAX = 8


def portals_of(uri: str) -> list[str]:
    """The portals before the path, each a host with or without a port; empty for a local path."""
    return uri.partition("://")[2].partition("/")[0].split(",") if "://" in uri else []


def one_portal(uri: str) -> str:
    """The same endpoint through its first portal alone."""
    scheme, mark, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.partition(',')[0]}{slash}{path}"


def _check_portal(portal: str, form: str) -> None:
    try:
        parts = urlsplit(f"//{portal}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{error}; {form}") from None
    if not host:
        raise ValueError(f"the host is missing; {form}")
    if port == 0:
        raise ValueError(f"port 0 cannot be used; {form}")


def _refuse_login(uri: str, protocol: Protocol, form: str) -> None:
    """A user and a secret, as QEMU and libiscsi write them before the host (`user%secret@host`), would be looked up as
    a name and printed wherever the endpoint is. The message repeats nothing of them."""
    authority = uri.partition("://")[2].partition("/")[0]
    if "@" not in authority and "%" not in authority.partition("[")[0]:
        return
    ways = [_LOGINS[option] for option in sorted(protocol.options) if option in _LOGINS]
    instead = f"give them apart, as {ways[0]} under the endpoint's label or `connection`" if ways else "leave them out"
    raise ValueError(f"a user or a secret stands before the host, where it would be printed: {instead}; {form}")


_LOGINS = {
    "chap": "`chap: {user: NAME, secret_file: FILE}`",
    "dhchap": "`dhchap: {secret_file: FILE}`",
    "uid": "`uid:` and `gid:`",
}
"""Option → how a study gives it."""


def _check_kernel(host: str, path: str, query: dict[str, list[str]], form: str) -> None:
    """What a kernel's initiator cannot be asked for."""
    for text in (host, path, query.get("portals", [""])[0].replace(",", "")):
        if not _WORD.fullmatch(text) or text.startswith("-") or "/../" in f"{text}/":
            raise ValueError(f"{text!r} has characters that no path of a kernel has here; {form}")
    if (version := query.get("vers", [NFS_VERSIONS[0]])[0]) not in NFS_VERSIONS:
        raise ValueError(f"vers={version} is none of {', '.join(NFS_VERSIONS)}; {form}")
    for name, most in _CONNECTIONS_MAX.items():
        value = query.get(name, ["1"])[0]
        if not value.isdecimal() or not 1 <= int(value) <= most:
            raise ValueError(f"{name} is not a number from 1 to {most}; {form}")


GUEST_DISK = "guest-disk://"
GUEST_DISK_FORM = f"{GUEST_DISK}SERIAL"
_SERIAL_MAX = 64
_SERIAL = re.compile(r"[A-Za-z0-9_.+-]+(?: +[A-Za-z0-9_.+-]+)*")


def serial_of(uri: str) -> str:
    """The serial number of a checked endpoint."""
    return uri.removeprefix(GUEST_DISK)


def wrong_serial(serial: str) -> str:
    """The error in a serial number; empty if there is none."""
    if not serial:
        return "the serial number is missing"
    if len(serial) > _SERIAL_MAX:
        return f"the serial number has {len(serial)} characters; at most {_SERIAL_MAX} are possible"
    if not _SERIAL.fullmatch(serial):
        return "a serial number consists of letters, digits, the characters _ . + - and spaces between them"
    return ""


KERNEL_PREFIX = "kernel:"
NFS_VERSIONS = ("3", "4.1", "4.2")
_NFS_VERSION = "4.2"
"""If the endpoint names none."""

Kind: TypeAlias = Literal["nfs", "iscsi", "nvme-tcp", "fc", "fc-nvme"]
FIBRE_CHANNEL: frozenset[Kind] = frozenset({"fc", "fc-nvme"})
NVME: frozenset[Kind] = frozenset({"nvme-tcp", "fc-nvme"})


@dataclass(frozen=True)
class KernelPath:
    """The path that a host must bring up."""

    kind: Kind
    address: str
    """Host name or address; empty for Fibre Channel."""
    port: int
    name: str
    """NQN, IQN, or NFS export; for SCSI over Fibre Channel the WWPN of the target's port."""
    unit: str
    """Namespace, LUN, or the file within the export."""
    version: str = ""
    """Version of NFS."""
    connections: int | None = None
    """NFS: connections of the mount (`nconnect`). NVMe: I/O queues. The kernel's own choice when not given."""

    portals: tuple[str, ...] = ()
    """Further addresses of the same target, for several paths to it."""
    wwpn: str = ""
    """Fibre Channel: the WWPN of the target's port."""

    @property
    def protocol(self) -> str:
        """The protocol's name in reports."""
        if self.kind == "fc":
            return "fcp"
        return f"nfs{self.version}" if self.kind == "nfs" else self.kind


def kernel_path(uri: str) -> KernelPath:
    """The path of a checked endpoint."""
    parts = urlsplit(uri.removeprefix(KERNEL_PREFIX))
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    kind: Kind = parts.scheme  # ty: ignore[invalid-assignment]
    above, _, last = parts.path.strip("/").rpartition("/")
    asked = query.get("nconnect") or query.get("queues")
    return KernelPath(
        kind,
        "" if kind in FIBRE_CHANNEL else parts.hostname or "",
        parts.port or schemes()[kind][0].port,
        name={"nfs": f"/{above}", "iscsi": above, "fc": parts.hostname or ""}.get(kind, last),
        unit=query.get("ns", "1") if kind in NVME else last,
        version=query.get("vers", _NFS_VERSION) if kind == "nfs" else "",
        connections=int(asked) if asked else None,
        portals=tuple(each for each in query.get("portals", "").split(",") if each),
        wwpn=parts.hostname or "" if kind in FIBRE_CHANNEL else "",
    )
