"""How the guest's kernel clients connect to iotax's servers, with functions of the scripts under guest/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from .machine import Server

IQN = "iqn.2026-11.io.iotax:v0"
NQN = "nqn.2026-11.io.iotax:v0"
SIZE_BYTES = 64 << 20
Serve: TypeAlias = Callable[..., Server]


@dataclass(frozen=True)
class Client:
    """One kernel client. After `up`, $DATA is the volume: a disk, or a file on a mount."""

    protocol: str
    functions: str
    up: str
    data: str
    down: str
    version: str = ""
    """Version of the protocol, where its server supports several."""

    def script(self, server: Server, text: str) -> str:
        version = f"VERSION={self.version}; " if self.version else ""
        return f"PORT={server.port(self.protocol)}; {version}. /test/{self.functions}; {text}"

    def attached(self, server: Server, text: str) -> str:
        """A script that connects, runs `text` with $DATA, and disconnects."""
        return self.script(server, f"{self.up}; DATA=$(ls {self.data}); {text}; {self.down}")


ISCSI = Client("iscsi", "iscsi.sh", f"iscsid_up; login {IQN}", "/dev/sd?", f"logout {IQN}")
NVME = Client("nvme-tcp", "nvme.sh", f"connect {NQN} -i 4", "/dev/nvme?n1", f"disconnect {NQN}")
NFS = Client("nfs3", "nfs.sh", "mount_nfs v0", "$M/data", "unmount_nfs")
CLIENTS = (ISCSI, NVME, NFS)
NFS41 = Client("nfs4.1", "nfs.sh", "mount_nfs v0", "$M/data", "unmount_nfs", "4.1")
NFS42 = Client("nfs4.1", "nfs.sh", "mount_nfs v0", "$M/data", "unmount_nfs", "4.2")
NFS_DISK = Client("nfs3", "nfs.sh", "mount_nfs v0; attach", "/dev/loop0", "detach; unmount_nfs")
"""The volume's file as a block device."""
