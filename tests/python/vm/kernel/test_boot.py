"""A machine that boots from an iotax disk: boot loader, kernel and root are all read over iSCSI.

The disk starts with GRUB, whose two parts need no file system: the first sector loads those after it. Kernel and
initramfs follow at fixed sectors, which GRUB's block lists name.
"""

from __future__ import annotations

import gzip
import subprocess
import time
from pathlib import Path

import pytest

from iotax.labs.vm import accelerator
from iotax.labs.vm.cache import cache_root
from iotax.labs.vm.image import PACKED_KERNEL, Image, build
from iotax.labs.vm.packages import Store
from iotax.labs.vm.qemu import PROGRAM, require_qemu
from iotax.places.guest import Port
from iotax.places.waiting import wait_for
from needed import missing

from .clients import IQN, Serve

SECTOR_BYTES = 512
KERNEL_SECTOR = 2048
DATA_BYTES = 16 << 20
"""Space at the end of the disk to which the guest writes."""
BOOT_S = 240.0
COMMAND_LINE = "console=ttyS0 quiet mitigations=off nokaslr no5lvl panic=-1 random.trust_cpu=on rdinit=/init"


def bootable(image: Image, folder: Path) -> bytes:
    """A disk that any BIOS can boot."""
    store = Store(cache_root() / "packages")
    packages = store.fetch(["grub-pc-bin", "grub-common"])
    modules = packages["grub-pc-bin"].root / "usr/lib/grub/i386-pc"
    kernel, initramfs = (
        image.kernel.with_name(PACKED_KERNEL).read_bytes(),
        gzip.compress(image.initramfs.read_bytes(), 1),
    )
    initramfs_sector = KERNEL_SECTOR + sectors(kernel)
    settings = folder / "grub.cfg"
    settings.write_text(
        f"linux (hd0){KERNEL_SECTOR}+{sectors(kernel)} {COMMAND_LINE}\n"
        f"initrd (hd0){initramfs_sector}+{sectors(initramfs)}\nboot\n"
    )
    core = folder / "core.img"
    subprocess.run(
        [packages["grub-common"].root / "usr/bin/grub-mkimage", "-d", modules, "-O", "i386-pc", "-p", "/",
         "-c", settings, "-o", core, "biosdisk", "linux"],
        check=True,
    )  # fmt: skip
    front = (modules / "boot.img").read_bytes() + core.read_bytes()
    assert len(front) < KERNEL_SECTOR * SECTOR_BYTES
    front += bytes(KERNEL_SECTOR * SECTOR_BYTES - len(front))
    return front + padded(kernel) + padded(initramfs)


def sectors(data: bytes) -> int:
    return -(-len(data) // SECTOR_BYTES)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % SECTOR_BYTES)


@pytest.mark.long
def test_a_machine_boots_from_our_disk_and_writes_to_it(serve: Serve, engine: Path, tmp_path: Path) -> None:
    if not list(Path("/usr/lib").glob("*/qemu/block-iscsi.so")):
        missing("QEMU has no such block driver (package qemu-block-extra)")
    image = build(engine, lambda _text: None)
    disk = bootable(image, tmp_path)
    size_bytes = len(disk) + -len(disk) % (1 << 20) + DATA_BYTES
    server = serve("iscsi", size_bytes)
    endpoint = f"iscsi://127.0.0.1:{server.port('iscsi')}/{IQN}/0"
    with (tmp_path / "volume").open("r+b") as volume:
        volume.write(disk)
    chosen, _ = accelerator.choose(image, "auto", require_qemu())
    control = tmp_path / "control"
    arguments = [
        *("setpriv", "--pdeathsig", "KILL", "--", PROGRAM, "-M", "pc", "-accel", chosen),
        *("-cpu", "host" if chosen == "kvm" else "max"),
        *("-m", "768", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-serial", f"file:{tmp_path}/console", "-device", "virtio-serial-pci"),
        *("-chardev", f"socket,id=control,path={control},server=on,wait=off"),
        *("-device", "virtserialport,chardev=control,name=iotax"),
        *("-drive", f"if=none,id=disk,format=raw,cache=none,file={endpoint}"),
        *("-device", "virtio-blk-pci,drive=disk,bootindex=0"),
    ]  # fmt: skip
    with subprocess.Popen(arguments) as process:
        try:
            deadline_s = time.monotonic() + BOOT_S
            port = wait_for(Port.connect("guest", control, BOOT_S))
            assert wait_for(port.ready(deadline_s - time.monotonic())) == image.release
            at = (size_bytes - DATA_BYTES) >> 20
            said = wait_for(
                port.run(
                    "modprobe virtio_blk; . /lab/lib.sh; until_true 10 test -b /dev/vda || die 'no disk'; "
                    "yes 'written by what was booted' | head -c 1048576 >/run/said; "
                    f"dd if=/run/said of=/dev/vda bs=1M seek={at} conv=fsync 2>/dev/null; "
                    "dd if=/dev/vda bs=512 count=1 2>/dev/null | sha256sum",
                    within_s=60,
                )
            )
            wait_for(port.close())
        finally:
            process.kill()
    assert said
    written = (tmp_path / "volume").read_bytes()
    assert written[: len(disk)] == disk
    assert written[at << 20 :][: 1 << 20] == (b"written by what was booted\n" * (1 << 16))[: 1 << 20]
