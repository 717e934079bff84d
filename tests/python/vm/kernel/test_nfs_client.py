"""Linux's NFSv3 client with iotax's server."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import pytest

from .clients import NFS, SIZE_BYTES, Serve
from .machine import KernelMachine


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("nconnect=4", marks=pytest.mark.long),
        "rsize=4096,wsize=4096",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("", "sync", "rsize=1048576,wsize=1048576", "noac")),
    ],
)
def test_files_keep_every_byte_however_they_are_mounted(serve: Serve, machine: KernelMachine, options: str) -> None:
    server = serve("nfs3", SIZE_BYTES)
    machine.run(
        NFS.script(
            server,
            f"mount_nfs v0 {options}; exercise $M/exercised 13 400 1000000; "
            "fio volume $M/data --size=4m --rw=randwrite --bs=512-64k; "
            "fio direct $M/data --size=4m --rw=randwrite --bs=4k-128k --direct=1 --iodepth=16; unmount_nfs",
        ),
        300,
    )


@pytest.mark.long
def test_files_are_copied_compared_and_still_right_after_another_mount(serve: Serve, machine: KernelMachine) -> None:
    server = serve("nfs3", SIZE_BYTES)
    machine.run(
        NFS.script(server, "mount_nfs v0; copy_and_compare $M 8; unmount_nfs; mount_nfs v0; compare $M; unmount_nfs"),
        300,
    )


@pytest.mark.parametrize("files", [1500, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_large_directory_is_listed_whole(serve: Serve, machine: KernelMachine, files: int) -> None:
    server = serve("nfs3", SIZE_BYTES)
    script = f"mount_nfs v0; large_directory {files}; calls READDIR; calls READDIRPLUS; unmount_nfs"
    said = machine.run(NFS.script(server, script), 300)
    assert sum(int(line.split()[1]) for line in said) > 3, said  # too large for one READDIR reply


def test_names_and_attributes_are_what_a_file_system_makes_of_them(serve: Serve, machine: KernelMachine) -> None:
    server = serve("nfs3", SIZE_BYTES)
    machine.run(NFS.script(server, "mount_nfs v0; names; unmount_nfs"))


def test_holes_and_truncations_read_as_zeros(serve: Serve, machine: KernelMachine) -> None:
    server = serve("nfs3", SIZE_BYTES)
    machine.run(NFS.script(server, "mount_nfs v0; contents; unmount_nfs"))


def test_what_was_unstable_when_the_server_crashed_is_sent_again(
    serve: Serve, machine: KernelMachine, tmp_path: Path
) -> None:
    """The crash loses everything that no COMMIT had made stable: the test restores the volume's earlier content."""
    size_bytes, wsize_bytes = 4 << 20, 64 << 10
    # Every operation takes 4 s, which leaves time between the last WRITE's reply and the COMMIT's.
    server = serve("nfs3", SIZE_BYTES, delay_ns=4_000_000_000)
    writes = size_bytes // wsize_bytes
    machine.run(NFS.script(server, f"mount_nfs v0 wsize={wsize_bytes}; write_slowly {size_bytes >> 20}"))
    machine.run(NFS.script(server, f'until_true 60 uncommitted {writes} || die "$(calls WRITE) $(calls COMMIT)"'))
    server.kill()
    with (tmp_path / "volume").open("r+b") as volume:
        assert any(volume.read(size_bytes))
        volume.seek(0)
        volume.write(bytes(size_bytes))
    time.sleep(2)
    server.start()
    machine.run("until_true 100 test -s /run/dd.status || die stuck; is 0 $(cat /run/dd.status) dd", 120)
    said = machine.run(NFS.script(server, "calls WRITE; calls COMMIT; sha256sum <$WRITTEN"))
    assert int(said[0].split()[1]) >= 2 * writes
    assert int(said[1].split()[1]) >= 1
    assert hashlib.sha256((tmp_path / "volume").read_bytes()[:size_bytes]).hexdigest() == said[2].split()[0]
    machine.run(NFS.script(server, "unmount_nfs"))
