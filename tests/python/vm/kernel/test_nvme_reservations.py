"""Reservations of iotax's target, with Linux's NVMe/TCP host, nvme-cli, and a second host that preempts it."""

from __future__ import annotations

import json
import struct

from raw_nvme import Controller

from .clients import NQN, NVME, SIZE_BYTES, Serve
from .machine import KernelMachine

HOST_ID = "11111111-2222-4333-8444-555555555555"
REGISTER, ACQUIRE = 0x0D, 0x11
WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 3


def test_nvme_cli_reserves_and_linux_is_kept_out_once_another_preempts_it(serve: Serve, machine: KernelMachine) -> None:
    server = serve("nvme-tcp", SIZE_BYTES)
    write = "dd if=/dev/zero of=/dev/nvme0n1 bs=4096 count=1 oflag=direct"
    reserves = (
        f"connect {NQN} --hostid={HOST_ID}; "
        "checked nvme resv-register /dev/nvme0n1 --nrkey=0x11 --rrega=0 --cptpl=0; "
        f"checked nvme resv-acquire /dev/nvme0n1 --crkey=0x11 --rtype={WRITE_EXCLUSIVE_REGISTRANTS_ONLY} --racqa=0; "
        f"checked {write}; nvme resv-report /dev/nvme0n1 --eds -o json"
    )
    said = "\n".join(machine.run(NVME.script(server, reserves)))
    report = json.loads(said[said.index("{") :])
    assert (report["rtype"], report["regctl"]) == (WRITE_EXCLUSIVE_REGISTRANTS_ONLY, 1)
    (registrant,) = report["regctlext"]
    assert (registrant["rkey"], registrant["rcsts"], registrant["hostid"]) == (0x11, 1, HOST_ID.replace("-", ""))

    keys = struct.pack("<QQ", 0, 0x22)
    with Controller(f"nvme-tcp://127.0.0.1:{server.port('nvme-tcp')}/{NQN}?ns=1") as other:
        assert other.io.run(REGISTER, 1, struct.pack("<I", 0), keys)[0] == 0
        action = 2 | WRITE_EXCLUSIVE_REGISTRANTS_ONLY << 8
        assert other.io.run(ACQUIRE, 1, struct.pack("<I", action), struct.pack("<QQ", 0x22, 0x11))[0] == 0

    refused = (
        f"refuses {write}; checked dd if=/dev/nvme0n1 of=/dev/null bs=4096 count=1 iflag=direct; "
        "checked nvme resv-register /dev/nvme0n1 --nrkey=0x11 --rrega=0 --cptpl=0; "
        f"checked {write}; checked nvme resv-register /dev/nvme0n1 --crkey=0x11 --rrega=1; "
        f"refuses {write}; disconnect {NQN}"
    )
    machine.run(NVME.script(server, refused))
