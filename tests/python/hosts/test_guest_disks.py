"""A guest's disk by its serial number: the script on a fake host, and what the lab makes of its answer."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.paths import Attached, Paths
from iotax.labs.hosts.volumes import Volumes
from iotax.places import Binary, HostFault
from iotax.places.host import HostPlace
from iotax.places.waiting import wait_for
from iotax.study import Settings
from iotax.study.rules import broken_rules

from .fake_host import FakeHost
from .test_kernel_paths import SCRIPT, host, study

__all__ = ["host"]

FINDS = Path(str(resources.files("iotax.labs.hosts") / "remote" / "guest_disk.sh"))
LONG = "datastore-over-nfs-number-01"


def find(host: FakeHost, serial: str) -> subprocess.CompletedProcess[str]:
    return host.run(SCRIPT, "with", str(FINDS), "guest_disk", serial)


def found(host: FakeHost, serial: str) -> str:
    done = find(host, serial)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().removeprefix("DEVICE=")


def refused(host: FakeHost, serial: str) -> tuple[str, str]:
    """Kind and message."""
    done = find(host, serial)
    assert (done.returncode, done.stdout) == (1, "")
    kind, _, message = done.stderr.strip().partition(" ")
    return kind, message


def page_80h(host: FakeHost, disk: str, serial: str) -> None:
    place = host.write(f"block/{disk}/device/vpd_pg80", "")
    place.write_bytes(bytes([0, 0x80, 0, len(serial)]) + serial.encode())


def guest(host: FakeHost) -> None:
    """A disk of each kind, and devices that are not disks."""
    host.write("block/vda/size", "1")
    host.write("block/vdb/serial", "nfs01")
    page_80h(host, "sdc", "  iscsi01 ")
    host.write("block/nvme1n1/device/serial", "nvme01              ")
    host.write("block/nvme1c1n1/device/serial", "nvme01")
    for name in ("loop0", "zram0", "sr0", "dm-0"):
        host.write(f"block/{name}/serial", "nfs01")


@pytest.mark.parametrize(
    ("serial", "device"), [("nfs01", "/dev/vdb"), ("iscsi01", "/dev/sdc"), ("nvme01", "/dev/nvme1n1")]
)
def test_a_disk_is_found_by_its_serial_number_whatever_its_bus(host: FakeHost, serial: str, device: str) -> None:
    guest(host)
    assert found(host, serial) == device
    # Nothing runs as root, and nothing is written into a journal.
    assert (host.log, host.journal) == ([], [])


def test_a_disk_that_gets_another_name_after_a_boot_is_found_again(host: FakeHost) -> None:
    guest(host)
    (host.folder / "sys/block/vdb").rename(host.folder / "sys/block/vdz")
    host.write("block/vdb/serial", "other")
    assert found(host, "nfs01") == "/dev/vdz"


def test_what_udev_found_counts_for_a_disk_whose_kernel_reports_no_serial_number(host: FakeHost) -> None:
    host.write("block/sdd/dev", "8:48")
    udev = host.folder / "sys/udev"
    udev.mkdir()
    (udev / "b8:48").write_text("E:ID_SERIAL=USB_Stick_usb01-0:0\nE:ID_SERIAL_SHORT=usb01\n")
    words = ["/bin/sh", SCRIPT, "with", FINDS, "guest_disk", "usb01"]
    environment = host.environment | {"UDEV": str(udev)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "DEVICE=/dev/sdd\n"


def test_paths_that_multipath_joins_are_one_disk(host: FakeHost) -> None:
    for name in ("sdq", "sdr"):
        page_80h(host, name, "lun7")
        host.multipath(name)
    assert found(host, "lun7") == "/dev/dm-3"


def test_without_such_a_disk_the_disks_and_the_remedies_are_listed(host: FakeHost) -> None:
    guest(host)
    kind, message = refused(host, "nfs02")
    assert kind == "not_found"
    assert "no disk of this host has the serial number nfs02" in message
    assert "its disks: nvme1n1 nvme01, sdc iscsi01, vda without a serial number, vdb nfs01." in message
    for remedy in ("<serial>nfs02</serial> in the disk of libvirt", "serial=nfs02 in Proxmox", "serial: nfs02 in the"):
        assert remedy in message


def test_two_disks_with_one_serial_number_are_refused_by_their_names(host: FakeHost) -> None:
    guest(host)
    page_80h(host, "sde", "nfs01")
    kind, message = refused(host, "nfs01")
    assert kind == "usage"
    assert "several disks of this host have the serial number nfs01: sde vdb. Give each disk its own" in message


def test_a_serial_number_that_the_hypervisor_cut_off_is_explained(host: FakeHost) -> None:
    host.write("block/vdb/serial", LONG[:20])
    kind, message = refused(host, LONG)
    assert kind == "usage"
    assert f"{LONG} has 28 characters, but virtio-blk and NVMe disks keep only 20: vdb has {LONG[:20]}" in message
    assert f"write guest-disk://{LONG[:20]}" in message


@pytest.mark.parametrize("serial", ["$(touch made)", "`touch made`", "'; touch made; '", "a b*", "-n", "x\\c", "*"])
def test_a_serial_number_is_never_run_nor_expanded(host: FakeHost, serial: str) -> None:
    guest(host)
    words = shlex.join(["sh", str(SCRIPT), "with", str(FINDS), "guest_disk", serial])
    done = subprocess.run(
        ["/bin/sh", "-c", words], env=host.environment, cwd=host.folder, capture_output=True, text=True, check=False
    )
    assert done.stderr.startswith("not_found no disk of this host")
    assert not (host.folder / "made").exists()


def test_what_a_disk_says_stays_one_short_line(host: FakeHost) -> None:
    host.write("block/vdb/serial", "\x1b[31mred\\n\\cDEVICE=/dev/sda\nusage nothing")
    host.write("block/vdc/serial", "9" * 4000)
    for number in range(30):
        host.write(f"block/vdx{number:02}/serial", f"number{number}")
    _, message = refused(host, "nfs01")
    assert "vdb [31mredncDEVICE=/dev/sda, vdc " in message
    assert message.isprintable()
    assert " and 12 more." in message
    assert len(message) < 1500


def test_a_serial_number_may_have_the_number_of_the_initiator() -> None:
    given = study("guest-disk://nfs-{client}")
    assert list(broken_rules(given)) == []
    endpoint = given.endpoints()["a"]
    assert (endpoint.protocol, endpoint.uri, endpoint.guest_disk) == ("local", "guest-disk://nfs-{client}", True)


class Answering:
    """A host that answers the script with `said`."""

    def __init__(self, said: str, name: str = "h1") -> None:
        self.name, self._said = name, said
        self.ran: list[str] = []

    async def run(self, command: str, *, given: str = "", within_s: float = 0.0) -> str:
        del given, within_s
        self.ran.append(command)
        if "guest_disk" in command:
            return self._said
        device = command.rpartition(" ")[2]
        return f"DEVICE={device}\nID=serial nfs01\n" if " up " in command else ""


class Kept(Paths):
    """Paths without the process that holds a host."""

    async def _keep(self, place: HostPlace) -> None:
        del place


def up(place: Answering, uri: str) -> Attached:
    return wait_for(Kept(Binary(Path("engine"))).up(cast(HostPlace, place), uri, settings(uri)))


def settings(uri: str) -> Settings:
    return study(uri).settings({"protocol": "a"})


def test_the_device_is_used_as_if_the_study_named_it() -> None:
    place, uri = Answering("DEVICE=/dev/vdb\n"), "guest-disk://nfs01"
    attached = up(place, uri)
    assert (attached.endpoint, attached.needs_root) == ("local:/dev/vdb", True)
    assert place.ran[-2].endswith(" guest_disk nfs01")
    assert place.ran[-1].endswith(" up local /dev/vdb")


@pytest.mark.parametrize("said", ["", "DEVICE=/etc/passwd", "DEVICE=/dev/../etc/passwd", "DEVICE=/dev/a b", "X\nY"])
def test_an_answer_that_names_no_device_is_refused(said: str) -> None:
    place, uri = Answering(said), "guest-disk://nfs01"
    with pytest.raises(HostFault, match="the host's answer names no device"):
        up(place, uri)
    assert not any(" up " in command for command in place.ran)


def volumes(uri: str, identities: Mapping[str, str]) -> tuple[Volumes, Settings]:
    of = settings(uri)
    places = [cast(HostPlace, Answering("", name)) for name in identities]
    made = Volumes([of], places, set(), Binary(Path("engine")), frozenset(), cast(Any, None), together=False)
    made._identities |= {(name, uri): identity for name, identity in identities.items()}
    return made, of


@pytest.mark.parametrize(
    ("one", "other", "owners", "warned"),
    [
        # virtio-blk, and NVMe and ATA disks of QEMU: two guests may have disks with the same name.
        ("serial nfs01", "serial nfs01", [0, 1], True),
        ("wwid nvme.1b36-6e66-51-1", "wwid nvme.1b36-6e66-51-1", [0, 1], True),
        ("device/wwid t10.ATA QEMU nfs01", "device/wwid t10.ATA QEMU nfs01", [0, 1], True),
        ("device/wwid naa.6001", "device/wwid naa.6002", [0, 1], True),
        # One LUN that is passed to both guests.
        ("device/wwid naa.6001", "device/wwid naa.6001", [0], False),
        ("wwid eui.0025", "wwid eui.0025", [0], False),
    ],
)
def test_hosts_whose_disks_share_a_serial_number_are_warned_unless_it_is_one_disk(
    one: str, other: str, owners: list[int], warned: bool
) -> None:
    made, of = volumes("guest-disk://nfs01", {"h1": one, "h2": other})
    assert made._owners(of) == owners
    said = [(each.kind, each.message) for each in made._alike(of, [0, 1])]
    assert [kind for kind, _ in said] == ["warning"] * warned
    for _, message in said:
        assert re.match(
            r"h1 and h2 each have a disk with this serial number; each host loads only its own part", message
        )
        assert "give each its own serial number and write {client}" in message
    numbered, of = volumes("guest-disk://nfs0{client}", {"h1": one, "h2": other})
    assert numbered._alike(of, [0, 1]) == []
