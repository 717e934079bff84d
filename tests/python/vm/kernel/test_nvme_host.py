"""Linux's NVMe/TCP host (nvme-tcp, nvme-cli) with iotax's target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .clients import NQN, NVME, SIZE_BYTES, Serve
from .machine import KernelMachine


def said_as_json(machine: KernelMachine, script: str) -> dict[str, object]:
    return json.loads("\n".join(machine.run(script)))


def test_nvme_cli_finds_and_describes_what_we_serve(serve: Serve, machine: KernelMachine) -> None:
    server = serve("nvme-tcp", SIZE_BYTES)
    found = said_as_json(machine, NVME.script(server, "nvme discover $AT -o json"))
    assert [(each["subnqn"], each["subtype"]) for each in found["records"]] == [(NQN, "nvme subsystem")]
    assert machine.run(NVME.script(server, f"connect {NQN} >/dev/null; echo $_controller $_device")) == [
        "/dev/nvme0 /dev/nvme0n1"
    ]
    listed = said_as_json(machine, "nvme list -o json")
    assert [(each["DevicePath"], each["PhysicalSize"], each["SectorSize"]) for each in listed["Devices"]] == [
        ("/dev/nvme0n1", SIZE_BYTES, 512)
    ]
    controller = said_as_json(machine, "nvme id-ctrl /dev/nvme0 -o json")
    assert controller["subnqn"] == NQN
    assert controller["nn"] >= 1
    namespace = said_as_json(machine, "nvme id-ns /dev/nvme0n1 -o json")
    assert namespace["nsze"] * 512 == SIZE_BYTES
    health = said_as_json(machine, "nvme smart-log /dev/nvme0 -o json")
    assert health["critical_warning"] == 0
    for command in (
        "error-log",
        "fw-log",
        "get-feature -f 7",
        "get-feature -f 0xb",
        "list-subsys",
        "effects-log",
        "ana-log",
        "get-property -o 8",
    ):
        machine.run(f"checked nvme {command} /dev/nvme0" if command != "list-subsys" else "checked nvme list-subsys")
    machine.run("checked nvme list-ns /dev/nvme0; checked nvme ns-descs /dev/nvme0n1; checked nvme flush /dev/nvme0n1")
    machine.run(f"checked nvme reset /dev/nvme0; checked nvme ns-rescan /dev/nvme0; . /test/nvme.sh; disconnect {NQN}")


@pytest.mark.parametrize(
    "options",
    [
        "-i 4 --hdr-digest --data-digest",
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in (
                "-i 4 -W 2 -P 2",
                "-i 1",
                "-i 4",
                "-i 1 -Q 16",
                "-i 1 --disable-sqflow",
                "-i 4 --hdr-digest",
                "-i 4 --data-digest",
            )
        ),
    ],
)
def test_how_the_kernel_connects_changes_no_byte(serve: Serve, machine: KernelMachine, options: str) -> None:
    server = serve("nvme-tcp", SIZE_BYTES)
    script = (
        f"connect {NQN} {options}; echo QUEUES=$(cat /sys/class/nvme/nvme?/queue_count); "
        "fio small $_device --size=4m --rw=randwrite --bs=512-16k --direct=1 --iodepth=32 --numjobs=1; "
        "fio large $_device --offset=16m --size=16m --rw=randwrite --bs=1m --direct=1 --iodepth=4; "
        f"disconnect {NQN}"
    )
    queues = next(line for line in machine.run(NVME.script(server, script)) if line.startswith("QUEUES="))
    wanted = 1 + int(options.split()[1]) + (4 if "-W" in options else 0)  # 1 for the admin queue
    assert queues == f"QUEUES={wanted}"


def test_discards_and_zeroes_do_what_they_say(serve: Serve, machine: KernelMachine, tmp_path: Path) -> None:
    server = serve("nvme-tcp", SIZE_BYTES)
    machine.run(
        NVME.script(
            server,
            f"connect {NQN}; fio all $_device --size=16m --rw=write --bs=1m --direct=1; "
            "checked blkdiscard -o 0 -l 4194304 $_device; "
            f"checked nvme write-zeroes $_device -s 16384 -c 8191; drop_caches; disconnect {NQN}",
        )
    )
    data = (tmp_path / "volume").read_bytes()
    for start in range(0, 16 << 20, 4 << 20):
        assert any(data[start : start + (4 << 20)]) == (start not in {0, 8 << 20})


def test_kernel_follows_the_ana_state_of_its_path(serve: Serve, machine: KernelMachine) -> None:
    server = serve("nvme-tcp", SIZE_BYTES)
    address = server.portals["nvme-tcp"]["address"]
    machine.run(NVME.script(server, f"connect {NQN}; ls /sys/class/nvme/nvme0/nvme0c*n1/ana_state"))
    for state in ("inaccessible", "non-optimized", "optimized"):
        answer = server.command({"command": "access", "portal": address, "state": state})
        assert answer == {"event": "access", "portal": address, "state": state}
        seen = (
            "cat_state() { cat /sys/class/nvme/nvme0/nvme0c*n1/ana_state; }; n=0; "
            f'while [ "$(cat_state)" != {state} ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n+1)); done; cat_state'
        )
        assert machine.run(seen) == [state]
    machine.run(f"dd if=/dev/nvme0n1 of=/dev/null bs=4k count=16 iflag=direct; . /test/nvme.sh; disconnect {NQN}")
