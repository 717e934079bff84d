"""What is on stable storage after the reply to a command.

Killing the server proves nothing, because the page cache survives. With epoll, the system calls show the order of
writes and flushes of a volume. io_uring's operations cannot be traced; the kernel's count of flushes covers both
drivers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import write_commands
from engine_process import ready, started
from needed import program
from raw_iscsi import Session
from raw_nfs import Client
from raw_nvme import Controller
from write_commands import Command

_CALLS = "pwrite64,pwritev,pwritev2,write,pread64,preadv,fallocate,fsync,fdatasync,sync_file_range"
SIZE = 4 << 20


@contextmanager
def served(engine: Path, volume: dict[str, object], driver: str) -> Iterator[dict[str, str]]:
    """Endpoints of a volume by protocol."""
    document = {
        "volumes": [{"name": "v0", "size_bytes": SIZE} | volume],
        "exports": [
            {"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}
            for protocol in ("iscsi", "nvme-tcp", "nfs3")
        ],
        "driver": driver,
    }
    with started(engine, "serve", document) as server:
        event = ready(server)
        assert event["driver"] == driver
        yield {portal["protocol"]: portal["endpoint"] for portal in event["portals"]}
        assert server.stdin
        server.stdin.close()
        server.wait(timeout=120)


@contextmanager
def commands(endpoints: dict[str, str]) -> Iterator[Iterable[Command]]:
    """Every command of every protocol; those of iSCSI with a write cache and then without."""
    with ExitStack() as opened:
        nvme = opened.enter_context(Controller(endpoints["nvme-tcp"]))
        nfs = opened.enter_context(Client(endpoints["nfs3"]))
        session = opened.enter_context(Session(endpoints["iscsi"]))
        yield [
            *write_commands.of_nvme(nvme),
            *write_commands.of_nfs(nfs),
            *write_commands.of_iscsi(session),
            write_commands.turn_the_cache_off(session),
            *write_commands.of_iscsi(session, has_cache=False),
        ]


@dataclass
class Traced:
    endpoints: dict[str, str]
    path: str
    trace: Path
    seen: int = 0

    def calls(self) -> list[str]:
        """Successful calls on the volume's file since the last call of this method, with names and flags."""
        lines = self.trace.read_text().splitlines()
        new, self.seen = lines[self.seen :], len(lines)
        return [line for line in new if self.path in line and "= -1 " not in line]


@pytest.fixture
def traced(request: pytest.FixtureRequest, real_engine: Path, tmp_path: Path) -> Iterator[Traced]:
    strace = program("strace")
    media, direct = request.param
    trace = tmp_path / "trace"
    wrapper = tmp_path / "engine"
    # `-y` prints the files behind descriptors.
    wrapper.write_text(f'#!/bin/sh\nexec {strace} -f -y -e trace={_CALLS} -o {trace} {real_engine} "$@"\n')
    wrapper.chmod(0o755)
    path = tmp_path / "volume"
    volume = {"media": media} | ({"path": str(path), "direct": direct} if media == "file" else {})
    with served(wrapper, volume, "epoll") as endpoints:
        yield Traced(endpoints, str(path), trace)


def is_volatile(calls: list[str]) -> bool:
    """Whether a change could still be lost after these calls."""
    volatile = False
    for call in calls:
        if re.search(r"\b(fsync|fdatasync)\(", call):
            volatile = False
        elif re.search(r"\b(pwrite\w*|write|fallocate)\(", call) and not re.search("RWF_D?SYNC", call):
            volatile = True
    return volatile


def is_flushed_first(calls: list[str]) -> bool:
    """Whether a flush precedes every read."""
    names = [match[1] for call in calls if (match := re.search(r"\b(fdatasync|fsync|pread\w*)\(", call))]
    return bool(names) and names[0] in ("fdatasync", "fsync")


@pytest.mark.parametrize("traced", [("file", False), ("file", True)], indirect=True, ids=["buffered", "direct"])
def test_nothing_durable_is_answered_before_it_is_on_the_file_s_storage(traced: Traced) -> None:
    with commands(traced.endpoints) as every:
        for command in every:
            traced.calls()
            assert command.run(), command.name
            calls = traced.calls()
            if command.kind == "change":
                assert any(re.search(r"\b(pwrite\w*|fallocate)\(", call) for call in calls), f"{command.name}: {calls}"
                assert is_volatile(calls) is not command.durable, f"{command.name}: {calls}"
            elif command.kind == "read":
                assert is_flushed_first(calls) is command.durable, f"{command.name}: {calls}"
            else:
                assert any("fdatasync(" in call for call in calls), f"{command.name}: {calls}"


@pytest.mark.parametrize("traced", [("memory", True), ("null", True)], indirect=True, ids=["memory", "null"])
def test_memory_and_null_answer_all_of_it_without_a_file(traced: Traced) -> None:
    with commands(traced.endpoints) as every:
        done = {command.name for command in every if command.run()}
        assert any("FUA" in name for name in done)
        assert any("Flush" in name for name in done)
    assert not re.search(r"(fsync|fdatasync|fallocate)\(", traced.trace.read_text())


@dataclass(frozen=True)
class Disk:
    """A loop device, and a file on a file system on another loop device, which a flush of the file flushes."""

    device: Path
    file: Path
    beneath: Path


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    if os.geteuid() != 0 or shutil.which("losetup") is None or shutil.which("mkfs.ext4") is None:
        pytest.skip("loop devices need root, losetup and mkfs.ext4")
    folder = tmp_path_factory.mktemp("disks")
    with ExitStack() as undo:

        def loop(name: str, size_bytes: int) -> Path:
            with (folder / name).open("wb") as file:
                file.truncate(size_bytes)
            done = subprocess.run(
                ["losetup", "--find", "--show", folder / name], capture_output=True, text=True, check=False
            )
            if done.returncode:
                pytest.skip(f"no loop device: {done.stderr.strip()}")
            device = done.stdout.strip()
            undo.callback(subprocess.run, ["losetup", "--detach", device], check=False)
            return Path(device)

        device, beneath, at = loop("plain", SIZE), loop("beneath", 32 << 20), folder / "mounted"
        # A journal would send flushes of its own.
        quiet = ["-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=0"]
        subprocess.run(["mkfs.ext4", *quiet, beneath], check=True, capture_output=True)
        at.mkdir()
        done = subprocess.run(["mount", beneath, at], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        undo.callback(subprocess.run, ["umount", at], check=False)
        yield Disk(device, at / "volume", beneath)


def flushes(device: Path) -> int:
    """Flushes that a block device has completed (Documentation/block/stat.rst)."""
    return int(Path("/sys/block", device.name, "stat").read_text().split()[15])


@pytest.mark.parametrize("driver", ["epoll", "io_uring"])
@pytest.mark.parametrize("direct", [False, True], ids=["buffered", "direct"])
@pytest.mark.parametrize("media", ["file", "device"])
def test_a_disk_is_flushed_for_what_is_durable_and_for_nothing_else(
    real_engine: Path, disk: Disk, media: str, direct: bool, driver: str
) -> None:
    path, counted = (disk.file, disk.beneath) if media == "file" else (disk.device, disk.device)
    volume = {"media": "file", "path": str(path), "direct": direct, "destroy": str(path)}
    with served(real_engine, volume, driver) as endpoints, commands(endpoints) as every:
        for command in every:
            before = flushes(counted)
            assert command.run(), command.name
            assert (flushes(counted) > before) is command.durable, command.name
    disk.file.unlink(missing_ok=True)
