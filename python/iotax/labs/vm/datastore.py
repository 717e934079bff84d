"""A volume attached by a hypervisor: QEMU's own initiator reaches the target, the guest sees a disk.

The target is the same kernel's, in the same storage guest, as for an initiator in the guest: what differs is only who
initiates. QEMU's initiators speak TCP from this host, so a port of 127.0.0.1 is forwarded to the storage guest through
a second network card, which nothing else uses and from which the guest can reach nothing.

Where QEMU has no initiator, the guest's kernel reaches the target, and QEMU's storage daemon stands above it in the
same guest, as it would on a hypervisor's host (`above`).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iotax.labs.vm import recipe
from iotax.labs.vm.fault import VmFault
from iotax.labs.vm.guests import Guest, Guests, Role, StepFailed
from iotax.labs.vm.qmp import QmpError, QmpLost
from iotax.labs.vm.topology import facts_of
from iotax.study import Settings
from iotax.study.model import Topology
from iotax.study.topology import OF_A_DATASTORE

_IQN = "iqn.2026-11.io.iotax:kernel"
_INITIATOR_IQN = "iqn.2026-11.io.iotax:hypervisor"
_HOST = "127.0.0.1"
_TARGET = "10.0.0.1"
_ISCSI_PORT = 3260
_NFS_PORTS = (111, 2049, 20048)
"""Port mapper, nfsd, mountd. QEMU's NFS client asks the port mapper at its own port and takes no other."""
_TIMEOUT_S = 60.0
_TRIES = 3
_SAID = {
    "blockdev-add": "QEMU's initiator",
    "blockdev-del": "QEMU's initiator does not let go",
    "device_add": "QEMU adds no device",
    "netdev_add": "QEMU forwards no port",
    "object-add": "QEMU starts no I/O thread",
    "object-del": "QEMU's I/O thread does not end",
}

DRIVERS = {"iscsi": "iscsi", "nfs3": "nfs"}
"""Protocol → QEMU's block driver that initiates it."""

_NO_DRIVER = {
    "nfs4.1": "QEMU's NFS client speaks version 3 only",
    "iser": "Debian's QEMU has its iSCSI initiator for TCP",
    "nvme-tcp": "QEMU has no NVMe/TCP initiator (its nvme:// drives a PCI device of the host)",
    "nvme-rdma": "QEMU has no NVMe/RDMA initiator",
    "fcp": "QEMU has no Fibre Channel initiator; an HBA's LUN would come as a block device of the host",
    "fcp-loop": "QEMU has no Fibre Channel initiator, and a loop within a kernel ends there",
    "fc-nvme": "QEMU has no Fibre Channel initiator; an HBA's namespace would come as a block device of the host",
    "local": "a volume without a protocol is reached within the storage guest",
}


@dataclass(frozen=True)
class _Disk:
    """QEMU's devices of a controller and its disk, the disk's name in the guest, and the property for its queues."""

    controller: str
    disk: str
    pattern: str
    queues: str = ""


_DISKS = {
    "virtio-blk": _Disk("", "virtio-blk-pci", "/dev/vd?", "num-queues"),
    "virtio-scsi": _Disk("virtio-scsi-pci", "scsi-hd", "/dev/sd?", "num_queues"),
    "pvscsi": _Disk("pvscsi", "scsi-hd", "/dev/sd?"),
    "nvme": _Disk("", "nvme", "/dev/nvme?n1", "max_ioqpairs"),
}


def obstacle(settings: Settings, guests: int, unavailable: Mapping[str, str]) -> str | None:
    """Why the hypervisor cannot attach this volume; None if it can, or if the guest's kernel attaches it."""
    protocol, controller = settings.endpoint.protocol, settings.topology.attach
    if not settings.topology.by_hypervisor:
        return None
    reason = None
    if protocol not in DRIVERS:
        reason = _NO_DRIVER[protocol]
    elif settings.connection.data_digest:
        reason = "QEMU's initiators have no data digest"
    elif guests == 1:
        reason = "it needs `guests: 2`, for a hypervisor cannot initiate into its own guest"
    elif shaped := _shaped(settings.topology):
        reason = f"`{shaped}` shapes the way of the guest's own initiator; the hypervisor's does not go there"
    elif controller in unavailable:
        reason = f"{controller}: {unavailable[controller]}"
    return f"{protocol} is not available as a datastore: {reason}" if reason else None


def _shaped(topology: Topology) -> str | None:
    """A setting of the guest's link or initiator that is not at its default."""
    usual = Topology()
    fields = (name for name in Topology.model_fields if name not in OF_A_DATASTORE)
    return next((name for name in fields if getattr(topology, name) != getattr(usual, name)), None)


def ports_taken(settings: Settings) -> str | None:
    """Why the target's ports cannot be forwarded from this host; None if they can, or need not be."""
    fixed = settings.endpoint.protocol == "nfs3" and settings.topology.by_hypervisor
    for port in _NFS_PORTS if fixed else ():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError as error:
                return (
                    f"QEMU's NFS client wants port {port} of {_HOST} ({error.strerror}); run iotax in a network of "
                    "its own: unshare -rn sh -c 'ip link set lo up; iotax run STUDY'"
                )
    return None


def above(guest: Guest, environment: str, path: str) -> tuple[str, int]:
    """A virtual disk above the path of the guest's own initiator: its path, and the process that serves it. Raises
    VmFault and StepFailed."""
    said = guest.run(f"{environment}. /lab/controllers.sh; vduse_up {path}")
    daemon, disk = (line.partition("=")[2] for line in said[-2:])
    return disk, int(daemon)


def watched(daemon: int | None) -> dict[str, int]:
    """What the engine reads besides itself: the process that serves the disk is the target of its own machine."""
    return {} if daemon is None else {"target": daemon}


def away_from(guest: Guest) -> None:
    """Takes that disk away. Raises VmFault and StepFailed."""
    guest.run(". /lab/controllers.sh; vduse_down")


class Datastore:
    """One disk at a time, plugged into the running initiator guest."""

    def __init__(self, guests: Guests) -> None:
        self._guests = guests
        self._forwarded: dict[str, int] = {}
        self._plugged: list[str] = []
        self._opened = self._has_thread = False

    def attach(self, settings: Settings, environment: str) -> tuple[str, dict[str, str]]:
        """The disk's path in the guest, and facts of it; the target is up. Raises VmFault and StepFailed."""
        controller = settings.topology.attach
        guest, disk = self._guests["initiator"], _DISKS[controller]
        port = self._forward(settings)
        self._command("initiator", "blockdev-add", _block_node(port, settings))
        self._opened = True
        thread = {}
        if settings.topology.iothread:
            self._command("initiator", "object-add", {"qom-type": "iothread", "id": "thread"})
            self._has_thread, thread = True, {"iothread": "thread"}
        own = thread | ({disk.queues: settings.topology.disk_queues} if settings.topology.disk_queues else {})
        if disk.controller:
            self._plug({"driver": disk.controller, "id": "controller"} | own)
            self._plug({"driver": disk.disk, "id": "disk", "drive": "volume", "bus": "controller.0"})
        else:
            serial = {"serial": "iotax"} if disk.disk == "nvme" else {}
            self._plug({"driver": disk.disk, "id": "disk", "drive": "volume"} | serial | own)
        modules = " ".join(recipe.CONTROLLERS[controller].modules)
        said = guest.run(f"{environment}. /lab/controllers.sh; disk_up '{modules}' '{disk.pattern}'")
        return next(line.removeprefix("DEVICE=") for line in said if line.startswith("DEVICE=")), facts_of(said)

    def detach(self) -> None:
        """Takes the disk from the running guest. Raises VmFault and StepFailed."""
        while self._plugged:
            self._unplug(self._plugged.pop())
        if self._opened:
            self._command("initiator", "blockdev-del", {"node-name": "volume"})
            self._opened = False
        if self._has_thread:
            self._command("initiator", "object-del", {"id": "thread"})
            self._has_thread = False

    def _plug(self, device: dict[str, Any]) -> None:
        self._command("initiator", "device_add", device)
        self._plugged.append(device["id"])

    def _unplug(self, device: str) -> None:
        try:
            self._guests["initiator"].monitor.unplug(device, timeout_s=_TIMEOUT_S)
        except QmpError as error:
            raise StepFailed(0, f"QEMU removes no device: {error}") from error
        except QmpLost as lost:
            raise VmFault("initiator guest", f"the {device} cannot be unplugged: {lost}") from lost

    def _forward(self, settings: Settings) -> int:
        """The port of this host that leads to the storage guest's target."""
        protocol = settings.endpoint.protocol
        if protocol not in self._forwarded:
            if taken := ports_taken(settings):
                raise StepFailed(0, taken)
            network, card = 8 + len(self._forwarded), f"forward-{protocol}"
            user = {"type": "user", "id": card, "net": f"10.0.{network}.0/24", "restrict": True, "ipv6": False}
            if protocol == "nfs3":
                here = self._ports_to(user, {port: port for port in _NFS_PORTS})
            else:
                here = self._free_port_to(user, _ISCSI_PORT)
            device = {"driver": "virtio-net-pci", "netdev": card, "id": card, "mac": f"52:54:00:00:01:{network:02x}"}
            self._command("storage", "device_add", device | {"romfile": ""})
            self._guests["storage"].run(f". /lab/controllers.sh; forwarding_up {device['mac']} 10.0.{network}.15")
            self._forwarded[protocol] = here
        return self._forwarded[protocol]

    def _free_port_to(self, user: dict[str, Any], there: int) -> int:
        """Another process may take a port that was free."""
        for _ in range(_TRIES):
            with contextlib.suppress(StepFailed):
                return self._ports_to(user, {_free_port(): there})
        return self._ports_to(user, {_free_port(): there})

    def _ports_to(self, user: dict[str, Any], ports: dict[int, int]) -> int:
        """Forwards ports of this machine to the storage guest; returns the first."""
        forwards = [{"str": f"tcp:{_HOST}:{here}-{_TARGET}:{there}"} for here, there in ports.items()]
        self._command("storage", "netdev_add", user | {"hostfwd": forwards})
        return next(iter(ports))

    def _command(self, role: Role, command: str, arguments: dict[str, Any]) -> None:
        try:
            self._guests[role].monitor.execute(command, arguments, timeout_s=_TIMEOUT_S)
        except QmpError as error:
            raise StepFailed(0, f"{_SAID[command]}: {error}") from error
        except QmpLost as lost:
            raise VmFault(f"{role} guest", str(lost)) from lost


def _block_node(port: int, settings: Settings) -> dict[str, Any]:
    """QEMU's initiator, without a cache of its own."""
    protocol = settings.endpoint.protocol
    node: dict[str, Any] = {"driver": DRIVERS[protocol], "node-name": "volume", "cache": {"direct": True}}
    if protocol == "nfs3":
        return node | {"server": {"type": "inet", "host": _HOST}, "path": "/volume/data"}
    return node | {
        "transport": "tcp",
        "portal": f"{_HOST}:{port}",
        "target": _IQN,
        "lun": 0,
        "initiator-name": _INITIATOR_IQN,
        "header-digest": "crc32c" if settings.connection.header_digest else "none",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return probe.getsockname()[1]
