"""Four gibibytes of files over each protocol, copied by the kernel and compared with nothing left in a cache."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .machine import KernelMachine, Server

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

VOLUME_BYTES = 10 << 30
FILES_MIB = 4096
PROTOCOLS = {
    "iscsi": ("iscsi.sh", "iscsid_up; login iqn.2026-11.io.iotax:v0", "logout iqn.2026-11.io.iotax:v0"),
    "nvme-tcp": ("nvme.sh", "connect nqn.2026-11.io.iotax:v0", "disconnect nqn.2026-11.io.iotax:v0"),
    "nfs3": ("nfs.sh", "mount_nfs v0; attach; _device=/dev/loop0", "detach; unmount_nfs"),
}


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_four_gibibytes_of_files_are_copied_right(
    serve: Callable[..., Server], machine: KernelMachine, protocol: str, kind: str
) -> None:
    script, up, down = PROTOCOLS[protocol]
    server = serve(protocol, VOLUME_BYTES)
    here = f"PORT={server.port(protocol)}; . /test/{script}; {up}; "
    machine.run(f"{here} file_system_holds {kind} $_device {FILES_MIB}; {down}", 3400)
