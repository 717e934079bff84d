"""What a write that was answered leaves on stable storage, proven by the system calls that were made until then.

A kill of the server proves nothing, for it keeps the page cache.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.process import UnavailableError, program
from engine_process import ready, started
from raw_iscsi import Session, cdb_10, cdb_16

FUA = 0x08
_CALLS = "pwrite64,pwritev,pwritev2,write,fallocate,fsync,fdatasync,sync_file_range,io_uring_enter,io_submit"


@dataclass(frozen=True)
class Command:
    name: str
    has_fua: bool
    cdb: bytes
    data: bytes


def commands(flags: int, block: int) -> list[Command]:
    """Every command of ours that changes blocks of `block` bytes; `flags` go into those that have a FUA bit."""
    one = b"\1" * block
    compare_and_write = struct.pack(">BBQ3sBBB", 0x89, flags, 64, bytes(3), 1, 0, 0)
    descriptors = struct.pack(">HH4xQI4x", 22, 16, 8, 8)
    return [
        Command("WRITE(10)", True, cdb_10(0x2A, flags, 0, 1), one),
        Command("WRITE(16)", True, cdb_16(0x8A, flags, 1, 1), one),
        Command("ORWRITE(16)", True, cdb_16(0x8B, flags, 2, 1), one),
        Command("COMPARE AND WRITE", True, compare_and_write, bytes(2 * block)),
        Command("WRITE SAME(10)", False, cdb_10(0x41, 0, 128, 16), one),
        Command("WRITE SAME(16) of zeros", False, cdb_16(0x93, 0, 128, 16), bytes(block)),
        Command("WRITE SAME(16) with UNMAP and NDOB", False, cdb_16(0x93, 0x09, 128, 16), b""),
        Command("UNMAP", False, struct.pack(">B6xHx", 0x42, len(descriptors)), descriptors),
    ]


@dataclass
class Traced:
    endpoint: str
    path: str | None
    trace: Path
    seen: int = 0

    def calls(self) -> list[str]:
        """Calls on the volume's file since this was asked, by name and flags."""
        lines = self.trace.read_text().splitlines()
        new, self.seen = lines[self.seen :], len(lines)
        if self.path is None:
            return []
        return [line for line in new if self.path in line and "= -1 " not in line]


@pytest.fixture
def traced(request: pytest.FixtureRequest, real_engine: Path, tmp_path: Path) -> Iterator[Traced]:
    try:
        strace = program("strace", "strace")
    except UnavailableError as reason:
        if os.environ.get("CI") == "true":
            pytest.fail(str(reason))
        pytest.skip(str(reason))
    media, direct = request.param
    trace = tmp_path / "trace"
    wrapper = tmp_path / "engine"
    # `-y` names the files behind descriptors.
    wrapper.write_text(f'#!/bin/sh\nexec {strace} -f -y -e trace={_CALLS} -o {trace} {real_engine} "$@"\n')
    wrapper.chmod(0o755)
    volume = {"name": "v0", "media": media, "size_bytes": 4 << 20}
    if media == "file":
        volume |= {"path": str(tmp_path / "volume"), "direct": direct}
    document = {
        "volumes": [volume],
        "exports": [{"protocol": "iscsi", "listen": "127.0.0.1:0", "volume": "v0"}],
        # The calls that io_uring makes are not to be seen; both drivers do what one and the same operation says.
        "driver": "epoll",
    }
    with started(wrapper, "serve", document) as server:
        endpoint = ready(server)["portals"][0]["endpoint"]
        yield Traced(endpoint, volume.get("path"), trace)
        assert server.stdin
        server.stdin.close()
        server.wait(timeout=30)


def is_durable(calls: list[str]) -> bool:
    """Whether nothing that was changed could be lost after these calls."""
    volatile = False
    for call in calls:
        if re.search(r"\b(fsync|fdatasync)\(", call):
            volatile = False
        elif "RWF_DSYNC" not in call and "RWF_SYNC" not in call:
            volatile = True
    return not volatile


_FILES = [("file", False), ("file", True)]


@pytest.mark.parametrize("traced", _FILES, indirect=True, ids=["buffered", "direct"])
@pytest.mark.parametrize("has_cache", [True, False], ids=["WCE=1", "WCE=0"])
def test_files_hold_what_was_written_with_fua_or_without_a_cache(traced: Traced, has_cache: bool) -> None:
    with Session(traced.endpoint) as session:
        block = 512
        if not has_cache:
            # MODE SELECT(6) of the caching page; what the cache held is flushed by it.
            assert session.run(bytes([0x15, 0x10, 0, 0, 24, 0]), bytes(4) + bytes([0x08, 18]) + bytes(18)) == 0
            assert any("fdatasync(" in call for call in traced.calls())
        for flags in (0, FUA):
            for command in commands(flags, block):
                traced.calls()
                assert session.run(command.cdb, command.data) == 0, command.name
                calls = traced.calls()
                assert calls, f"{command.name} changed nothing"
                expected = not has_cache or (command.has_fua and flags == FUA)
                assert is_durable(calls) == expected, f"{command.name}, flags {flags:#x}: {calls}"
        assert session.run(cdb_10(0x35, 0, 0, 0)) == 0
        assert any("fdatasync(" in call for call in traced.calls()), "SYNCHRONIZE CACHE"


@pytest.mark.parametrize("traced", [("memory", True), ("null", True)], indirect=True, ids=["memory", "null"])
def test_memory_and_null_answer_all_of_it_without_a_file(traced: Traced) -> None:
    with Session(traced.endpoint) as session:
        for command in commands(FUA, 512):
            assert session.run(command.cdb, command.data) == 0, command.name
    assert not re.search(r"(fsync|fdatasync|fallocate)\(", traced.trace.read_text())
