"""The served volume, as the engine's `serve` document (docs/reference/engine.md), and the commands with which clients
reach it."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from iotax.protocols import known, portal, schemes
from iotax.study.connection import Polling

PORTS = {
    protocol.name: protocol.served_port or scheme.port
    for scheme, protocol in schemes().values()
    if protocol.client is not None and scheme is protocol.scheme
}
"""Default ports of protocols with third-party clients: IANA's nfs, iscsi-target, nvme. Both versions of NFS have the
same default, but each is served at its own port."""
Address: TypeAlias = IPv4Address | IPv6Address
_GROUP = "allowed"
_LOOPBACK = IPv4Address("127.0.0.1")


@dataclass(frozen=True)
class Offer:
    """One volume behind every protocol."""

    name: str = "v0"
    """Part of the IQN, the NQN and the NFS export's path."""
    path: Path | None = None
    """The file or device behind it; memory where there is none."""
    size_bytes: int = 0
    """0: all that stands at the path."""
    keep: bool = False
    destroy: bool = False
    read_only: bool = False
    listen: Address = _LOOPBACK
    ports: Mapping[str, int] = field(default_factory=lambda: dict(PORTS))
    allow: Sequence[str] = ()
    """IQNs, NQNs, addresses and networks that may come in; none: whoever reaches the address."""
    threads: int = 1
    polling: Polling = "auto"
    """Clients of a served volume want low latency, so it polls; a measurement sleeps, so that its CPU time is
    meaningful."""

    def document(self) -> dict[str, Any]:
        volume: dict[str, Any] = {
            "name": self.name,
            "media": "memory" if self.path is None else "file",
            "size_bytes": self.size_bytes,
        }
        if self.path is not None:
            volume |= {"path": str(self.path)}
            volume |= {"keep": True} if self.keep else {}
            volume |= {"destroy": str(self.path)} if self.destroy else {}
        export: dict[str, Any] = {"volume": self.name, "read_only": self.read_only}
        if self.allow:
            export["groups"] = [_GROUP]
        return {
            "volumes": [volume],
            "exports": [
                {"protocol": protocol, "listen": portal(str(self.listen), port), **export}
                for protocol, port in self.ports.items()
            ],
            "groups": [{"name": _GROUP, "initiators": list(self.allow)}] if self.allow else [],
            "threads": self.threads,
            "polling": self.polling,
        }

    def warnings(self) -> list[str]:
        """Remarks on network and data for the person who starts it."""
        found = []
        if not self.listen.is_loopback:
            where = "every network of this machine" if self.listen.is_unspecified else f"the network of {self.listen}"
            who = f"only {', '.join(self.allow)} may connect" if self.allow else "whoever reaches it may connect"
            may = "read" if self.read_only else "read, overwrite and erase"
            found.append(
                f"listening on {where}: {who}, and {may} the volume. Nothing is encrypted, and no one has to prove "
                "who they are" + ("" if self.allow else "; --allow names the hosts and networks that may connect")
            )
        if self.path is None:
            found.append("the volume is in memory: its data are lost when this ends")
        elif self.keep and not self.read_only:
            found.append(f"{self.path} is served as it is, and clients may overwrite what it holds")
        return found


def reachable(endpoint: str) -> str:
    """The endpoint as clients write it: a server that listens on every address is named by this machine's name."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    if not ip_address(host).is_unspecified:
        return endpoint
    return parts._replace(netloc=f"{socket.gethostname()}:{parts.port}").geturl()


def commands(protocol: str, endpoint: str, read_only: bool = False) -> list[str]:
    """For a Linux client, as root: connect, load, disconnect."""
    parts = urlsplit(endpoint)
    row = known(protocol)
    if row is None or row.client is None:
        return []
    return row.client(parts.hostname or "", parts.port or 0, parts.path.strip("/"), parse_qs(parts.query), read_only)
