"""Linux's iSCSI initiator (iscsi_tcp, open-iscsi) with iotax's target."""

from __future__ import annotations

import pytest

from .clients import IQN, ISCSI, SIZE_BYTES, Serve
from .machine import KernelMachine, Server


def iscsi(server: Server, script: str) -> str:
    return ISCSI.script(server, f"iscsid_up; {script}")


SESSION, CONNECTION = "node.session.iscsi.", "node.conn[0].iscsi."


@pytest.mark.parametrize(
    ("wishes", "came_to"),
    [
        (
            {f"{CONNECTION}HeaderDigest": "CRC32C", f"{CONNECTION}DataDigest": "CRC32C"},
            {"header_digest": "1", "data_digest": "1"},
        ),
        pytest.param(
            {f"{SESSION}ImmediateData": "No", f"{SESSION}InitialR2T": "Yes"},
            {"immediate_data": "0", "initial_r2t": "1"},
            marks=pytest.mark.long,
        ),
        pytest.param(
            {f"{SESSION}InitialR2T": "No", f"{SESSION}FirstBurstLength": "4096", f"{SESSION}MaxBurstLength": "8192"},
            {"first_burst_len": "4096", "max_burst_len": "8192"},
            marks=pytest.mark.long,
        ),
        pytest.param(
            {f"{CONNECTION}MaxRecvDataSegmentLength": "4096", f"{CONNECTION}MaxXmitDataSegmentLength": "4096"},
            {"max_recv_dlength": "4096"},
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_the_kernel_negotiates_changes_no_byte(
    serve: Serve, machine: KernelMachine, wishes: dict[str, str], came_to: dict[str, str]
) -> None:
    server = serve("iscsi", SIZE_BYTES)
    words = " ".join(f"{key} {value}" for key, value in wishes.items())
    said = machine.run(iscsi(server, f"login {IQN} {words}; for key in {' '.join(came_to)}; do negotiated $key; done"))
    assert said[1:] == list(came_to.values())
    machine.run(
        iscsi(
            server,
            "_device=$(ls /dev/sd?); "
            "fio small $_device --size=4m --rw=randwrite --bs=512-16k --direct=1 --iodepth=32; "
            "fio large $_device --offset=16m --size=16m --rw=randrw --bs=1m --direct=1 --iodepth=4; "
            f"logout {IQN}",
        )
    )


def test_discovery_names_the_target_and_a_second_session_reads_what_the_first_wrote(
    serve: Serve, machine: KernelMachine
) -> None:
    server = serve("iscsi", SIZE_BYTES)
    load = "once $_device --size=8m --rw=write --bs=64k"
    assert machine.run(iscsi(server, "discovered"))[-1].split()[-1] == IQN
    machine.run(iscsi(server, f"login {IQN}; fio {load}; logout {IQN}"))
    machine.run(iscsi(server, f"login {IQN}; fio {load} --verify_only; logout {IQN}"))


def test_kernel_follows_the_access_state_of_its_path(serve: Serve, machine: KernelMachine) -> None:
    server = serve("iscsi", SIZE_BYTES, portal_groups="each")
    address = server.portals["iscsi"]["address"]
    sysfs = "/sys/block/sd?/device"
    up = machine.run(iscsi(server, f"load scsi_dh_alua; login {IQN}; cat {sysfs}/dh_state {sysfs}/access_state"))
    assert up[-2:] == ["alua", "active/optimized"]
    for state, seen in (
        ("inaccessible", "unavailable"),
        ("non-optimized", "active/non-optimized"),
        ("optimized", "active/optimized"),
    ):
        answer = server.command({"command": "access", "portal": address, "state": state})
        assert answer == {"event": "access", "portal": address, "state": state}
        # The kernel asks after the unit attention that the next command gets. While it knows of no access it sends no
        # reads, so a rescan must ask.
        asks = "dd if=$(ls /dev/sd?) of=/dev/null bs=4k count=1 iflag=direct" if state == "inaccessible" else "rescan"
        follow = (
            f"rescan() {{ echo 1 >$(echo {sysfs}/rescan); }}; n=0; "
            f'while [ "$(cat {sysfs}/access_state)" != {seen} ] && [ $n -lt 300 ]; do '
            f"{asks} >/dev/null 2>&1; sleep 0.1; n=$((n+1)); done; cat {sysfs}/access_state"
        )
        assert machine.run(follow)[-1] == seen
    machine.run(iscsi(server, f"logout {IQN}"))
