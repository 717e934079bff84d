"""Paths that a host's own kernel makes to an external target: NFS, iSCSI, NVMe/TCP, Fibre Channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import parse_qs, urlsplit

from iotax.protocols import schemes

PREFIX = "kernel:"
NFS_VERSIONS = ("3", "4.1", "4.2")
_NFS_VERSION = "4.2"
"""Ports if the endpoint names none."""

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
    """The path of a checked endpoint (`iotax.study.endpoint`)."""
    parts = urlsplit(uri.removeprefix(PREFIX))
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
