"""iotax's initiators with Linux's targets: LIO over iSCSI, nvmet over TCP, knfsd."""

from __future__ import annotations

from typing import Any

import pytest

from .linux_targets import IQN, fill, holds_what_is_written, served
from .machine import KernelMachine

TPG = f"/sys/kernel/config/target/iscsi/{IQN}/tpgt_1"
SHAPES = [(4, 4096), (2, 65536), (1, 1 << 20), (1, 12288)]
"""Connections, block size; blocks of 12288 bytes start at any multiple of 4096."""
SMALL_SHAPES = [(1, 512), (1, 1536)]


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        ("InitialR2T=No ImmediateData=No", {"initial_r2t": False, "immediate_data": False, "data_digest": True}),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in (
                ("MaxRecvDataSegmentLength=4096", {"max_recv_data_segment_bytes": 512}),
                ("", {}),
                ("", {"header_digest": True, "data_digest": True}),
                ("MaxBurstLength=16384 FirstBurstLength=8192", {}),
                ("", {"header_digest": True}),
                ("", {"data_digest": True}),
                ("InitialR2T=No", {"initial_r2t": False, "immediate_data": True}),
                ("ImmediateData=No", {"initial_r2t": True}),
                ("InitialR2T=No", {"first_burst_bytes": 4096, "max_burst_bytes": 8192}),
                ("MaxOutstandingR2T=4", {"max_recv_data_segment_bytes": 8192, "header_digest": True}),
            )
        ),
    ],
)
def test_lio_gives_back_what_was_written_whatever_was_negotiated(
    machine: KernelMachine, parameters: str, options: dict[str, Any]
) -> None:
    with served(machine, "iscsi") as endpoint:
        fill(endpoint)
        for each in parameters.split():
            name, _, value = each.partition("=")
            machine.run(f"echo {value} >{TPG}/param/{name}; is {value} $(cat {TPG}/param/{name}) {name}")
        holds_what_is_written(endpoint, options, SMALL_SHAPES + SHAPES)


@pytest.mark.parametrize(
    ("header_digest", "data_digest"),
    [(True, True), (False, False), (True, False), (False, True)],
)
@pytest.mark.long
def test_nvmet_gives_back_what_was_written_whatever_was_negotiated(
    machine: KernelMachine, header_digest: bool, data_digest: bool
) -> None:
    with served(machine, "nvme-tcp") as endpoint:
        fill(endpoint)
        # A namespace backed by a file has the block size of its file system.
        holds_what_is_written(endpoint, {"header_digest": header_digest, "data_digest": data_digest}, SHAPES)


def test_nvmet_gives_back_what_it_asked_for_by_r2t(machine: KernelMachine) -> None:
    """With this size a capsule holds the data of a Connect, but not of a write."""
    port = "/sys/kernel/config/nvmet/ports/1"
    small = f"load nvmet nvmet-tcp; mkdir -p {port}; echo 1024 >{port}/param_inline_data_size"
    checked = f"is 1024 $(cat {port}/param_inline_data_size) param_inline_data_size"
    with served(machine, "nvme-tcp", f"{small}; {checked}") as endpoint:
        fill(endpoint)
        holds_what_is_written(endpoint, {}, SHAPES)


@pytest.mark.parametrize("version", ["nfs3", "nfs4.1"])
def test_knfsd_gives_back_what_was_written(machine: KernelMachine, version: str) -> None:
    # The file system nfsd exists once knfsd has run. With so little memory knfsd would offer less than the largest
    # blocks.
    size = "/proc/fs/nfsd/max_block_size"
    large = (
        f"step {version} target_up; step {version} target_down; echo 1048576 >{size}; is 1048576 $(cat {size}) {size}"
    )
    with served(machine, version, large) as endpoint:
        fill(endpoint)
        holds_what_is_written(endpoint, {}, [*SMALL_SHAPES, *SHAPES, (1, 4096), (4, 128 << 10)])
