"""Virtual disks of QEMU by their serial numbers, on a real kernel: virtio-blk, SCSI and NVMe."""

from __future__ import annotations

import base64
import contextlib
import gzip
import shlex
import tempfile
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.paths import attached_of
from iotax.labs.vm import accelerator
from iotax.labs.vm.guests import BOOT_S, Guest, StepFailed
from iotax.labs.vm.image import build
from iotax.labs.vm.qemu import Machine, require_qemu
from vm.needed import require

pytestmark = pytest.mark.long

LONG = "datastore-over-nfs-number-01"
DISKS = {
    # The first disk has no serial number, so names of devices do not follow the order of the others.
    "plain": "virtio-blk-pci",
    "nfs01": "virtio-blk-pci,serial=nfs01",
    "iscsi01": "scsi-hd,bus=scsi.0,serial=iscsi01",
    "nvme01": "nvme,serial=nvme01",
    "cut": f"virtio-blk-pci,serial={LONG[:20]}",
    "twice": "virtio-blk-pci,serial=twice",
    "again": "scsi-hd,bus=scsi.0,serial=twice",
}


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    image = build(require(), lambda _: None)
    kind, _ = accelerator.choose(image, "auto", require_qemu())
    devices = ["-device", "virtio-scsi-pci,id=scsi"]
    for name, device in DISKS.items():
        devices += ["-blockdev", f"driver=null-co,node-name={name},size=8388608,read-zeroes=on"]
        devices += ["-device", f"{device},drive={name}"]
    machine = Machine("initiator", memory_bytes=512 << 20, accelerator=kind, devices=tuple(devices))
    with tempfile.TemporaryDirectory(prefix="iotax-vm-") as folder:
        running = Guest(machine, image, Path(folder))
        with contextlib.closing(running):
            running.boot(time.monotonic() + 2 * BOOT_S)
            for name in ("paths.sh", "guest_disk.sh"):
                script = (resources.files("iotax.labs.hosts") / "remote" / name).read_bytes()
                packed = base64.b64encode(gzip.compress(script)).decode()
                running.run(f"echo {packed} | base64 -d | gunzip >/run/{name}")
            # The image has no util-linux; nothing else runs here that a lock would keep away.
            running.run("ln -s /bin/true /usr/bin/flock")
            shown = "ls /sys/block/vdd /sys/block/sdb /sys/block/nvme0n1"
            running.run(f"load virtio_blk virtio_scsi sd_mod nvme; until_true 30 sh -c '{shown}' >/dev/null 2>&1")
            yield running


def script(guest: Guest, *words: str) -> list[str]:
    return guest.run(f"HOME=/root sh /run/paths.sh {shlex.join(words)}")


def find(guest: Guest, serial: str) -> str:
    [said] = script(guest, "with", "/run/guest_disk.sh", "guest_disk", serial)
    return said.removeprefix("DEVICE=")


@pytest.mark.parametrize(
    ("serial", "kind", "identity"),
    [("nfs01", "/dev/vd", "serial nfs01"), ("iscsi01", "/dev/sd", "8"), ("nvme01", "/dev/nvme0n1", "wwid nvme")],
)
def test_a_virtual_disk_is_found_by_the_serial_number_that_qemu_gives_it(
    guest: Guest, serial: str, kind: str, identity: str
) -> None:
    device = find(guest, serial)
    assert device.startswith(kind)
    attached = attached_of("h1", "\n".join(script(guest, "up", "local", device)))
    assert (attached.device, attached.identity.partition(".")[0].partition(":")[0]) == (device, identity)


def test_disks_that_fit_not_at_all_twice_or_in_part_are_refused(guest: Guest) -> None:
    for serial, said in {
        "nfs02": "no disk of this host has the serial number nfs02; its disks: nvme0n1 nvme01, sd",
        "twice": "several disks of this host have the serial number twice: sd",
        LONG: f"virtio-blk and NVMe disks keep only 20: vd. has {LONG[:20]}",
    }.items():
        with pytest.raises(StepFailed, match=said):
            find(guest, serial)
