"""Where I/O goes: an embedded protocol, a URI of somebody's target, or a file or device of this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from iotax.study.hosts import CLIENT
from iotax.study.kernel_path import NFS_VERSIONS, PREFIX, kernel_path

EMBEDDED = ("local", "nfs3", "iscsi", "nvme-tcp")
"""What the loopback lab serves itself. `local` reaches the server's volume without a protocol."""

KERNEL = ("local", "nfs3", "nfs4.1", "iscsi", "iser", "nvme-tcp", "nvme-rdma", "fcp", "fc-nvme")
"""What the vm lab serves from a kernel to another. `local` reaches the volume within the storage guest."""

HOSTS = ("nfs3", "iscsi", "nvme-tcp")
"""What a target of the hosts lab serves with the engine."""

NAMED = tuple(dict.fromkeys((*EMBEDDED, *KERNEL)))
"""Every protocol that a study may name without an endpoint; which of them depends on its lab."""

_FORMS = {
    "nfs": "nfs://HOST[:PORT]/EXPORT/FILE[?mountport=N]",
    "iscsi": "iscsi://HOST[:PORT]/IQN/LUN",
    "nvme-tcp": "nvme-tcp://HOST[:PORT]/NQN?ns=N",
}
_KERNEL_FORMS = {
    "nfs": "kernel:nfs://HOST[:PORT]/EXPORT/FILE[?vers=3|4.1|4.2&nconnect=N]",
    "iscsi": "kernel:iscsi://HOST[:PORT]/IQN/LUN[?portals=ADDRESS,…]",
    "nvme-tcp": "kernel:nvme-tcp://HOST[:PORT]/NQN?ns=N[&queues=N&portals=ADDRESS,…]",
    "fc": "kernel:fc://WWPN/LUN",
}
_QUERY = {"nfs": {"mountport"}, "iscsi": set(), "nvme-tcp": {"ns"}}
_KERNEL_QUERY = {
    "nfs": {"vers", "nconnect"},
    "iscsi": {"portals"},
    "nvme-tcp": {"ns", "queues", "portals"},
    "fc": set(),
}
_CONNECTIONS_MAX = {"nconnect": 16, "queues": 1024}
"""NFS_MAX_CONNECTIONS of Linux; more queues than any host has processors."""
_WORD = re.compile(r"[A-Za-z0-9_.:/+=@-]*")
"""Of what a host's shell and its commands are told."""
_WWPN = re.compile(r"[0-9a-f]{16}")


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
        return self.uri.startswith(PREFIX)


def parse_endpoint(target: str, folder: Path | None = None) -> Endpoint:
    """Reads a level of `protocol`. A relative path is taken from `folder`, the study file's own.

    Raises ValueError with the form that was expected.
    """
    if target in NAMED:
        return Endpoint(target)
    if target.startswith("local:"):
        return _path(target.removeprefix("local:"), folder)
    if "://" in target:
        # What each initiator puts its number into must be an endpoint then.
        return Endpoint(_uri(target.replace(CLIENT, "1")).protocol, target)
    if "/" in target or target.startswith("."):
        return _path(target, folder)
    raise ValueError(
        f"neither an embedded protocol ({', '.join(NAMED)}) nor an endpoint "
        f"({', '.join(_FORMS.values())}, or the path of a file or device)"
    )


def _path(path: str, folder: Path | None) -> Endpoint:
    if not path:
        raise ValueError("local: needs the path of a file or device")
    full = Path(path).expanduser()
    if not full.is_absolute() and folder is not None:
        full = folder / full
    return Endpoint("local", f"local:{full}")


def _uri(uri: str) -> Endpoint:
    kernel = uri.startswith(PREFIX)
    forms = _KERNEL_FORMS if kernel else _FORMS
    bare = uri.removeprefix(PREFIX)
    scheme = bare.partition("://")[0]
    if scheme not in forms:
        raise ValueError(f"{scheme}:// is not a protocol that iotax speaks; write {' or '.join(forms.values())}")
    form = f"write {forms[scheme]}"
    try:
        parts = urlsplit(bare)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{error}; {form}") from None
    if not host:
        raise ValueError(f"the host is missing; {form}")
    if port == 0:
        raise ValueError(f"port 0 cannot be used; {form}")
    query = parse_qs(parts.query, keep_blank_values=True)
    if unknown := sorted(set(query) - (_KERNEL_QUERY if kernel else _QUERY)[scheme]):
        raise ValueError(f"?{unknown[0]}= means nothing here; {form}")
    names = parts.path.strip("/").split("/") if parts.path.strip("/") else []
    if scheme == "nfs" and len(names) < 2:
        raise ValueError(f"the export or the file is missing; {form}")
    if scheme == "nfs" and "mountport" in query and not _is_port(query["mountport"][0]):
        raise ValueError(f"mountport is not a port; {form}")
    if scheme == "iscsi":
        if len(names) != 2:
            raise ValueError(f"the target name or the LUN is missing; {form}")
        if not re.match(r"(iqn|eui|naa)\.", names[0]):
            raise ValueError(f"{names[0]!r} is no iSCSI name (iqn., eui. or naa.); {form}")
        if not names[1].isdecimal():
            raise ValueError(f"the LUN {names[1]!r} is no number; {form}")
    if scheme == "nvme-tcp":
        if len(names) != 1 or not names[0].startswith("nqn."):
            raise ValueError(f"the subsystem's NQN is missing; {form}")
        if not (query.get("ns") or [""])[0].isdecimal() or int(query["ns"][0]) == 0:
            raise ValueError(f"the namespace is missing (ns=1 and up); {form}")
    if scheme == "fc" and (not _WWPN.fullmatch(host) or len(names) != 1 or not names[0].isdecimal()):
        raise ValueError(f"a WWPN is 16 hexadecimal digits without colons, and a LUN a number; {form}")
    if not kernel:
        return Endpoint("nfs3" if scheme == "nfs" else scheme, uri)
    _check_kernel(host, parts.path, query, form)
    return Endpoint(kernel_path(uri).protocol, uri)


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
            raise ValueError(f"{name} is no number from 1 to {most}; {form}")


def _is_port(text: str) -> bool:
    return text.isdecimal() and 0 < int(text) < 65536
