"""Linux's NFSv4.1 and 4.2 client with iotax's server."""

from __future__ import annotations

import pytest

from .clients import NFS41, NFS42, SIZE_BYTES, Client, Serve
from .machine import KernelMachine

VERSIONS = pytest.mark.parametrize("client", [pytest.param(NFS41, marks=pytest.mark.long), NFS42], ids=["4.1", "4.2"])


@VERSIONS
@pytest.mark.parametrize("options", ["nconnect=4", pytest.param("sync", marks=pytest.mark.long)])
def test_files_keep_every_byte_however_they_are_mounted(
    serve: Serve, machine: KernelMachine, client: Client, options: str
) -> None:
    server = serve("nfs4.1", SIZE_BYTES)
    machine.run(
        client.script(
            server,
            f"mount_nfs v0 {options}; exercise $M/exercised 13 400 1000000; "
            "fio volume $M/data --size=4m --rw=randwrite --bs=512-64k; "
            "fio direct $M/data --size=4m --rw=randwrite --bs=4k-128k --direct=1 --iodepth=16; unmount_nfs",
        ),
        300,
    )


def test_files_are_copied_compared_and_still_right_after_another_mount(serve: Serve, machine: KernelMachine) -> None:
    server = serve("nfs4.1", SIZE_BYTES)
    script = "mount_nfs v0; copy_and_compare $M 8; unmount_nfs; mount_nfs v0; compare $M; unmount_nfs"
    machine.run(NFS41.script(server, script), 300)


@pytest.mark.long
def test_a_large_directory_is_listed_whole(serve: Serve, machine: KernelMachine) -> None:
    server = serve("nfs4.1", SIZE_BYTES)
    said = machine.run(NFS41.script(server, "mount_nfs v0; large_directory 1500; calls READDIR; unmount_nfs"), 300)
    assert sum(int(line.split()[1]) for line in said if line.startswith("READDIR")) > 3, (
        said
    )  # too large for one READDIR reply


@VERSIONS
def test_names_and_attributes_are_what_a_file_system_makes_of_them(
    serve: Serve, machine: KernelMachine, client: Client
) -> None:
    server = serve("nfs4.1", SIZE_BYTES)
    machine.run(client.script(server, "mount_nfs v0; names; unmount_nfs"))


def test_holes_and_truncations_read_as_zeros(serve: Serve, machine: KernelMachine) -> None:
    server = serve("nfs4.1", SIZE_BYTES)
    machine.run(NFS41.script(server, "mount_nfs v0; contents; unmount_nfs"))


def test_holes_are_made_and_found_and_room_is_kept(serve: Serve, machine: KernelMachine) -> None:
    server = serve("nfs4.1", SIZE_BYTES)
    said = machine.run(NFS42.script(server, "mount_nfs v0; holes; unmount_nfs"))
    calls = dict(line.split() for line in said if line.split()[0] in ("SEEK", "ALLOCATE", "DEALLOCATE"))
    assert int(calls["SEEK"]) >= 2
    assert int(calls["ALLOCATE"]) >= 3
    assert int(calls["DEALLOCATE"]) >= 3


def test_the_root_shows_the_exports(serve: Serve, machine: KernelMachine) -> None:
    server = serve("nfs4.1", SIZE_BYTES)
    machine.run(
        NFS41.script(
            server, 'mount_nfs ""; [ "$(ls $M)" = v0 ] || die "$(ls $M)"; cmp -n 8 $M/v0/data $M/v0/data; unmount_nfs'
        )
    )


def test_whoever_has_a_lock_keeps_others_out_until_it_goes(serve: Serve, machine: KernelMachine) -> None:
    """For `flock` Linux requests a lock of the whole file. Mounts without a common cache have different lock owners, so
    the server decides between them."""
    server = serve("nfs4.1", SIZE_BYTES)
    script = (
        "mount_nfs v0 nosharecache; ONE=$M/data; M=/mnt/other; mount_nfs v0 nosharecache; OTHER=$M/data; "
        "refuses flock -x $ONE flock -n -x $OTHER true; refuses flock -x $ONE flock -n -s $OTHER true; "
        "checked flock -s $ONE flock -n -s $OTHER true; checked flock -n -x $OTHER true; "
        "mkfifo /run/go; flock -x $ONE sh -c 'read go </run/go' & "
        'until_true 30 sh -c "! flock -n -x $OTHER true" || die "it is never taken"; '
        "flock -x $OTHER touch /run/got & [ ! -e /run/got ] || die taken; echo go >/run/go; "
        'until_true 60 [ -e /run/got ] || die "nobody who waits gets it"; wait; calls LOCK; calls LOCKU; unmount_nfs; '
        "M=${ONE%/data}; unmount_nfs"
    )
    said = dict(line.split() for line in machine.run(NFS41.script(server, script), 120) if line.startswith("LOCK"))
    assert int(said["LOCK"]) >= int(said["LOCKU"]) >= 6
