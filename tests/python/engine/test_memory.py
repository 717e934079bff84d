"""Memory of the engine's processes, measured."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

from iotax.engine import find_engine
from iotax.places.waiting import Engine

PROTOCOLS = ("nvme-tcp", "iscsi", "nfs3")
MIB = 1 << 20
VOLUME_BYTES = 16 * MIB
WAIT_S = 60.0


def resident_bytes(pid: int) -> int:
    """Resident memory without shared memory, which holds the memory volumes."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))


def server(protocol: str) -> Engine:
    return Engine(
        find_engine(),
        "serve",
        {
            "volumes": [{"name": "v0", "media": "memory", "size_bytes": VOLUME_BYTES, "fill": "pattern"}],
            "exports": [{"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}],
        },
    )


def load_document(endpoint: str, **more: Any) -> dict[str, Any]:
    return {
        "task": "run",
        "endpoint": endpoint,
        "block_size_bytes": 4096,
        "read_percent": 50,
        "random_percent": 100,
        "working_set_bytes": VOLUME_BYTES,
        "warmup_ns": 0,
        "runtime_ns": 500_000_000,
        **more,
    }


def endpoint_of(engine: Engine) -> str:
    return engine.expect("ready", time.monotonic() + WAIT_S)["portals"][0]["endpoint"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_server_with_a_thousand_idle_connections_holds_less_than_64_mib(protocol: str) -> None:
    # An NVMe controller grants 128 I/O queues.
    idle = {
        "workers": 125,
        "outstanding": 1,
        "pacing": {"kind": "open", "rate_iops": 0},
        "runtime_ns": int(WAIT_S * 1e9),
    }
    with contextlib.ExitStack() as up:
        target = up.enter_context(server(protocol))
        document = load_document(endpoint_of(target), **idle)
        loads = [up.enter_context(Engine(find_engine(), "load", document)) for _ in range(8)]
        for load in loads:
            load.expect("connected", time.monotonic() + WAIT_S)
        held = resident_bytes(target.pid)
    assert held < 64 * MIB, f"{held / MIB:.1f} MiB"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_load_of_640_outstanding_holds_less_than_32_mib(protocol: str) -> None:
    with server(protocol) as target:
        long = {"runtime_ns": int(WAIT_S * 1e9), "sample_ns": 100_000_000}
        document = load_document(endpoint_of(target), workers=5, outstanding=128, **long)
        with Engine(find_engine(), "load", document) as load:
            while load.expect("sample", time.monotonic() + WAIT_S)["iops"] == 0:
                pass
            held = resident_bytes(load.pid)
    assert held < 32 * MIB, f"{held / MIB:.1f} MiB"
