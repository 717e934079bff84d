"""Linux's targets in the guest, and iotax's load against them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine_process import events
from iotax.engine import find_engine

from .machine import KernelMachine

SIZE_BYTES = 4 << 20
IQN = "iqn.2026-11.io.iotax:kernel"
NQN = "nqn.2026-11.io.iotax:kernel"


@contextmanager
def served(machine: KernelMachine, protocol: str, setup: str = ":") -> Iterator[str]:
    """Runs `setup` in the guest and exports a new volume from Linux's target; yields its endpoint."""
    ports = machine.ports
    endpoints = {
        "iscsi": f"iscsi://127.0.0.1:{ports['iscsi']}/{IQN}/0",
        "nvme-tcp": f"nvme-tcp://127.0.0.1:{ports['nvme-tcp']}/{NQN}?ns=1",
        "nfs3": f"nfs://127.0.0.1:{ports['nfs3']}/volume/data?mountport={ports['mountd']}",
        "nfs4.1": f"nfs41://127.0.0.1:{ports['nfs3']}/volume/data",
    }
    machine.run(f"volume_up {SIZE_BYTES}; {setup}; step {protocol} target_up")
    try:
        yield endpoints[protocol]
    finally:
        lazily = "-l" if protocol in ("nfs3", "nfs4.1") else ""  # knfsd keeps the file open for a while
        machine.run(f"step {protocol} target_down; umount {lazily} /volume")


def run(document: dict[str, Any]) -> dict[str, Any]:
    """The last event of a load."""
    return events(find_engine(), document)[-1]


def fill(endpoint: str, options: dict[str, Any] | None = None) -> None:
    document = {"task": "fill", "endpoint": endpoint, "destroy": endpoint, "seed": 5}
    filled = run(document | {"options": options or {}})
    assert (filled["event"], filled.get("bytes")) == ("filled", SIZE_BYTES), filled


def holds_what_is_written(endpoint: str, options: dict[str, Any], shapes: list[tuple[int, int]]) -> None:
    """Runs a verified load of every shape: workers (connections), block size. The volume must hold the pattern."""
    for workers, block_size_bytes in shapes:
        document = {
            "task": "run",
            "endpoint": endpoint,
            "options": options,
            "workers": workers,
            "outstanding": min(8, SIZE_BYTES // (2 * workers * block_size_bytes)),
            "block_size_bytes": block_size_bytes,
            "read_percent": 50,
            "warmup_ns": 50_000_000,
            "seed": 5,
            "verify": True,
        }
        result = run(document | {"runtime_ns": 250_000_000})
        if result["event"] == "result" and not (result["read"]["ios"] and result["write"]["ios"]):
            result = run(document | {"runtime_ns": 20_000_000_000})  # a busy machine had not done both directions
        case = (options, workers, block_size_bytes, result)
        assert result["event"] == "result", case
        assert result["read"]["ios"] > 0 and result["write"]["ios"] > 0, case
        assert result["verify"]["checked_blocks"] > 0, case
        assert result["verify"]["wrong_blocks"] == 0, case
        assert result["checks"]["errors"] == 0, case
