"""Shared by tests of engine sessions: a server, and loads over every protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_process import ready, started

MIB = 1 << 20


@pytest.fixture
def served(real_engine: Path) -> Iterator[dict[str, Any]]:
    """The `ready` event of a server that exports one small memory volume over every protocol."""
    protocols = ("nfs3", "iscsi", "nvme-tcp")
    document = {
        "volumes": [{"name": "v0", "media": "memory", "size_bytes": 8 * MIB, "fill": "pattern", "seed": 1}],
        "exports": [{"protocol": each, "listen": "127.0.0.1:0", "volume": "v0"} for each in protocols],
    }
    with started(real_engine, "serve", document) as server:
        yield ready(server)
        assert server.stdin
        server.stdin.close()


def loads(served: dict[str, Any], **more: object) -> list[dict[str, Any]]:
    """Loads that read and write the whole volume, one per protocol and one local."""
    endpoints = {each["protocol"]: each["endpoint"] for each in served["portals"]}
    endpoints["local"] = f"local:{served['volumes'][0]['path']}"
    return [
        {
            "id": protocol,
            "load": {
                "task": "run",
                "endpoint": endpoint,
                "outstanding": 4,
                "read_percent": 50,
                "verify": True,
                "watch_pids": {} if protocol == "local" else {"target": served["pid"]},
                **more,
            },
        }
        for protocol, endpoint in endpoints.items()
    ]
