"""Commands with which clients reach a served volume, made from the endpoints of the server's `ready` line."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

from iotax.protocols import known


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
