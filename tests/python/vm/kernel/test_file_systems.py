"""Linux makes, fills, checks and remounts file systems on iotax's volumes, over each protocol."""

from __future__ import annotations

import pytest

from .clients import ISCSI, NFS_DISK, NVME, Client, Serve
from .machine import KernelMachine


def name(value: object) -> str | None:
    return value.protocol if isinstance(value, Client) else None


@pytest.mark.parametrize(
    ("client", "kind", "copied_mib", "operations"),
    [
        (ISCSI, "ext4", 4, 200),
        pytest.param(NVME, "xfs", 4, 200, marks=pytest.mark.long),
        *(
            pytest.param(client, kind, 32, 1500, marks=pytest.mark.long)
            for client in (ISCSI, NVME)
            for kind in ("ext4", "xfs")
        ),
        *(pytest.param(NFS_DISK, kind, 8, 150, marks=pytest.mark.long) for kind in ("ext4", "xfs")),
    ],
    ids=name,
)
def test_a_file_system_of_ours_keeps_every_byte(
    serve: Serve, machine: KernelMachine, client: Client, kind: str, copied_mib: int, operations: int
) -> None:
    server = serve(client.protocol)
    machine.run(client.attached(server, f"file_system_holds {kind} $DATA {copied_mib} {operations}"), 300)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize("client", [ISCSI, NVME, NFS_DISK], ids=name)
def test_four_gibibytes_of_files_are_copied_right(
    serve: Serve, machine: KernelMachine, client: Client, kind: str
) -> None:
    server = serve(client.protocol, 10 << 30)
    machine.run(client.attached(server, f"large_copies {kind} $DATA 4096"), 3400)
