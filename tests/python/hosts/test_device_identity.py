"""What distinguishes a host's device from another one that may have its name tomorrow; tested with a fake sysfs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

from iotax.labs.hosts.paths import attached_of

from .fake_host import FakeHost
from .test_kernel_paths import SCRIPT, host

__all__ = ["host"]


@pytest.fixture(autouse=True)
def _devices_can_be_made() -> None:
    if os.geteuid() != 0:
        pytest.skip("device nodes need root")


def node(host: FakeHost, name: str) -> Path:
    """A block device node; nothing opens it."""
    path = host.folder / "dev" / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(8, 200))
    return path


def disk(host: FakeHost, name: str, where: str, **says: str) -> None:
    """A disk with this name at a place on the bus, with its attributes and one partition."""
    place = host.folder / "sys/devices" / where / name
    (place / "device").mkdir(parents=True)
    part = place / f"{name}1"
    part.mkdir()
    for path, text in {"dev": "8:0", **{each.replace("__", "/"): value for each, value in says.items()}}.items():
        (place / path).write_text(f"{text}\n")
    for path, text in {"dev": "8:1", "partition": "1", "start": "2048"}.items():
        (part / path).write_text(f"{text}\n")
    links = host.folder / "sys/class/block"
    links.mkdir(parents=True, exist_ok=True)
    for each in (place, part):
        (links / each.name).unlink(missing_ok=True)
        (links / each.name).symlink_to(each)


def identity(host: FakeHost, name: str) -> str:
    done = host.run(SCRIPT, "up", "local", str(node(host, name)))
    assert done.returncode == 0, done.stderr
    return attached_of("h1", done.stdout).identity


def test_a_disk_is_known_by_its_own_name_wherever_it_comes_up(host: FakeHost) -> None:
    disk(host, "sda", "bus1", device__wwid="naa.600a0980", diskseq="7")
    disk(host, "sdb", "bus2", device__wwid="naa.600a0981", diskseq="8")
    assert (identity(host, "sda"), identity(host, "sdb")) == ("device/wwid naa.600a0980", "device/wwid naa.600a0981")
    disk(host, "sdb", "again1", device__wwid="naa.600a0980", diskseq="9")
    disk(host, "sda", "again2", device__wwid="naa.600a0981", diskseq="10")
    assert (identity(host, "sda"), identity(host, "sdb")) == ("device/wwid naa.600a0981", "device/wwid naa.600a0980")


def test_a_partition_is_known_by_its_disk(host: FakeHost) -> None:
    disk(host, "sda", "bus1", device__wwid="naa.600a0980")
    disk(host, "nvme0n1", "bus2", wwid="eui.0025")
    assert identity(host, "sda1") == "device/wwid naa.600a0980 partition 1 from 2048"
    disk(host, "sda", "bus3", device__wwid="naa.600a0981")
    assert identity(host, "sda1") == "device/wwid naa.600a0981 partition 1 from 2048"
    assert identity(host, "nvme0n11") == "wwid eui.0025 partition 1 from 2048"


def test_a_disk_without_a_name_of_its_own_is_known_by_when_it_came(host: FakeHost) -> None:
    disk(host, "vda", "bus1", diskseq="7")
    assert identity(host, "vda") == "8:0 sequence 7"
    assert identity(host, "vda1") == "8:0 sequence 7 partition 1 from 2048"
    disk(host, "vdb", "bus2", serial="scratch-1", diskseq="8")
    assert identity(host, "vdb") == "serial scratch-1"
    # Kernels before 5.15 have no disk sequence number.
    disk(host, "vdc", "bus3")
    assert identity(host, "vdc") == "8:0"
