"""Servers that crash under load of Linux's clients, and lost connections: both recover, and no byte is wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .clients import CLIENTS, NQN, NVME, SIZE_BYTES, Client, Serve
from .machine import KernelMachine

LOAD = "load $DATA --size=24m --rw=randwrite --bs=4k --direct=1 --iodepth=16"


@pytest.mark.parametrize(
    "client",
    [each if each.protocol == "nvme-tcp" else pytest.param(each, marks=pytest.mark.long) for each in CLIENTS],
    ids=lambda client: client.protocol,
)
def test_a_server_killed_under_load_comes_back_and_no_byte_is_wrong(
    serve: Serve, machine: KernelMachine, tmp_path: Path, client: Client
) -> None:
    server = serve(client.protocol, SIZE_BYTES)
    data = f"DATA=$(ls {client.data})"
    machine.run(client.script(server, f"{client.up}; {data}; start_fio {LOAD} --rate_iops=500"))
    for _ in range(2):
        time.sleep(2)
        machine.run("fio_runs")
        server.kill()
        time.sleep(2)
        server.start()
    verified = f"{data}; end_fio 200; drop_caches; fio {LOAD} --verify_only"
    machine.run(client.script(server, f"{verified}; {client.down}"), 300)
    assert any((tmp_path / "volume").read_bytes()[: 24 << 20])


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param("checked nvme reset $_controller", id="reset", marks=pytest.mark.long),
        # Waits until the host's keep-alive timeout passes; the controller's passes too.
        pytest.param(
            "ip link set eth0 down; until_true 30 grep -q connecting $_state || die kept; ip link set eth0 up",
            id="network",
        ),
    ],
)
def test_a_connection_lost_under_load_is_made_anew(serve: Serve, machine: KernelMachine, loss: str) -> None:
    load = LOAD.replace("24m", "16m") + " --rate_iops=1000"
    machine.run(
        NVME.script(
            serve("nvme-tcp", SIZE_BYTES),
            f"connect {NQN} -i 4 --keep-alive-tmo=3; DATA=$_device _state=/sys/class/nvme/${{_controller##*/}}/state; "
            f"start_fio {load}; sleep 1; fio_runs; {loss}; end_fio 100; is live $(cat $_state) state; "
            f"drop_caches; fio {load} --verify_only; {NVME.down}",
        ),
        200,
    )
