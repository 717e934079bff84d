"""Our initiators with Linux's targets: LIO over iSCSI, nvmet over TCP, knfsd."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from iotax.engine import find_engine

from .machine import KernelMachine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SIZE_BYTES = 32 << 20
IQN = "iqn.2026-11.io.iotax:kernel"
NQN = "nqn.2026-11.io.iotax:kernel"
TPG = f"/sys/kernel/config/target/iscsi/{IQN}/tpgt_1"


def run(document: dict[str, Any]) -> dict[str, Any]:
    """The last event of a load."""
    with subprocess.Popen([find_engine(), "load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdin and engine.stdout
        engine.stdin.write(json.dumps(document) + "\n")
        engine.stdin.flush()  # and stays open: its end would be the engine's
        return [json.loads(line) for line in engine.stdout][-1]


def holds_what_is_written(endpoint: str, options: dict[str, Any], shapes: list[tuple[int, int]]) -> None:
    """Verified load of every shape: workers (connections), block size. The volume holds the pattern already."""
    for workers, block_size_bytes in shapes:
        document = {
            "task": "run",
            "endpoint": endpoint,
            "options": options,
            "workers": workers,
            "outstanding": 8,
            "block_size_bytes": block_size_bytes,
            "read_percent": 50,
            "warmup_ns": 100_000_000,
            "seed": 5,
            "verify": True,
        }
        result = run(document | {"runtime_ns": 700_000_000})
        if result["event"] == "result" and not (result["read"]["ios"] and result["write"]["ios"]):
            result = run(document | {"runtime_ns": 5_000_000_000})  # a busy machine did not come to both
        case = (options, workers, block_size_bytes, result)
        assert result["event"] == "result", case
        assert result["read"]["ios"] > 0 and result["write"]["ios"] > 0, case
        assert result["verify"]["checked_blocks"] > 0, case
        assert result["verify"]["wrong_blocks"] == 0, case
        assert result["checks"]["errors"] == 0, case


def fill(endpoint: str, options: dict[str, Any] | None = None) -> None:
    document = {"task": "fill", "endpoint": endpoint, "destroy": endpoint, "seed": 5}
    filled = run(document | {"options": options or {}})
    assert (filled["event"], filled.get("bytes")) == ("filled", SIZE_BYTES), filled


@pytest.fixture(scope="module")
def shapes() -> list[tuple[int, int]]:
    return [(1, 512), (4, 4096), (2, 65536), (1, 1 << 20)]


@pytest.fixture
def lio(machine: KernelMachine) -> Iterator[str]:
    machine.run(f"volume_up {SIZE_BYTES}; step iscsi target_up")
    endpoint = f"iscsi://127.0.0.1:{machine.ports['iscsi']}/{IQN}/0"
    fill(endpoint)
    yield endpoint
    machine.run("step iscsi target_down; umount /volume")


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        ("", {}),
        ("", {"header_digest": True}),
        ("", {"data_digest": True}),
        ("", {"header_digest": True, "data_digest": True}),
        ("InitialR2T=No", {"initial_r2t": False, "immediate_data": True}),
        ("ImmediateData=No", {"initial_r2t": True}),
        ("InitialR2T=No ImmediateData=No", {"initial_r2t": False, "immediate_data": False, "data_digest": True}),
        ("InitialR2T=No", {"first_burst_bytes": 4096, "max_burst_bytes": 8192}),
        ("MaxBurstLength=16384 FirstBurstLength=8192", {}),
        ("MaxOutstandingR2T=4", {"max_recv_data_segment_bytes": 8192, "header_digest": True}),
        ("MaxRecvDataSegmentLength=4096", {"max_recv_data_segment_bytes": 512}),
    ],
)
def test_lio_gives_back_what_was_written_whatever_was_negotiated(
    machine: KernelMachine, lio: str, shapes: list[tuple[int, int]], parameters: str, options: dict[str, Any]
) -> None:
    for each in parameters.split():
        name, _, value = each.partition("=")
        machine.run(f"echo {value} >{TPG}/param/{name}; is {value} $(cat {TPG}/param/{name}) {name}")
    holds_what_is_written(lio, options, shapes)


@pytest.fixture
def nvmet(machine: KernelMachine) -> Iterator[str]:
    machine.run(f"volume_up {SIZE_BYTES}; step nvme-tcp target_up")
    endpoint = f"nvme-tcp://127.0.0.1:{machine.ports['nvme-tcp']}/{NQN}?ns=1"
    fill(endpoint)
    yield endpoint
    machine.run("step nvme-tcp target_down; umount /volume")


@pytest.mark.parametrize("header_digest", [False, True])
@pytest.mark.parametrize("data_digest", [False, True])
def test_nvmet_gives_back_what_was_written_whatever_was_negotiated(
    nvmet: str, shapes: list[tuple[int, int]], header_digest: bool, data_digest: bool
) -> None:
    # A file's namespace has blocks of its file system's size.
    holds_what_is_written(nvmet, {"header_digest": header_digest, "data_digest": data_digest}, shapes[1:])


def test_nvmet_gives_back_what_it_asked_for_by_r2t(machine: KernelMachine, shapes: list[tuple[int, int]]) -> None:
    """A capsule holds what a Connect takes, and no write."""
    port = "/sys/kernel/config/nvmet/ports/1"
    machine.run(
        f"volume_up {SIZE_BYTES}; load nvmet nvmet-tcp; mkdir -p {port}; echo 1024 >{port}/param_inline_data_size; "
        f"is 1024 $(cat {port}/param_inline_data_size) param_inline_data_size; step nvme-tcp target_up"
    )
    endpoint = f"nvme-tcp://127.0.0.1:{machine.ports['nvme-tcp']}/{NQN}?ns=1"
    fill(endpoint)
    holds_what_is_written(endpoint, {}, shapes[1:])
    machine.run("step nvme-tcp target_down; umount /volume")


@pytest.fixture
def knfsd(machine: KernelMachine) -> Iterator[str]:
    machine.run(f"volume_up {SIZE_BYTES}; step nfs3 target_up")
    endpoint = f"nfs://127.0.0.1:{machine.ports['nfs3']}/volume/data?mountport={machine.ports['mountd']}"
    fill(endpoint)
    yield endpoint
    machine.run("step nfs3 target_down; umount -l /volume")


def test_knfsd_gives_back_what_was_written(knfsd: str, shapes: list[tuple[int, int]]) -> None:
    holds_what_is_written(knfsd, {}, [*shapes[:3], (1, 4096), (1, 1536), (4, 128 << 10)])
