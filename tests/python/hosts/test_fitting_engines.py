"""Whether a host can run the engine is determined before anything is copied to it."""

from __future__ import annotations

import asyncio
import struct
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("asyncssh", reason="the extra `hosts` is not installed")

import asyncssh

from iotax.places import Binary, HostFault
from iotax.places.fits import Needs, needs_of
from iotax.places.ssh import SshHost
from iotax.study.hosts import Host

LOADER = "/lib64/ld-linux-x86-64.so.2"
GLIBC = Needs("x86_64", LOADER, (2, 34))


def program(path: Path, machine: int, loader: str = "", calls: str = "") -> Path:
    """An ELF file with this machine type and loader (System V gABI 4.1)."""
    headers = 1 if loader else 0
    content = struct.pack("<4s5B7x", b"\x7fELF", 2, 1, 1, 0, 0)
    content += struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, headers, 64, 0, 0)
    if loader:
        content += struct.pack("<IIQQQQQQ", 3, 4, 120, 0, 0, len(loader) + 1, len(loader) + 1, 1)
        content += loader.encode() + b"\0"
    path.write_bytes(content + calls.encode())
    return path


def test_a_program_says_what_it_asks_for(tmp_path: Path, real_engine: Path) -> None:
    calls = "read\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0"
    assert needs_of(program(tmp_path / "a", 62, LOADER, calls)) == GLIBC
    assert needs_of(program(tmp_path / "b", 183)) == Needs("aarch64")
    # A static program may contain these words, but needs no loader.
    assert needs_of(program(tmp_path / "c", 62, calls=calls)) == Needs("x86_64")
    (tmp_path / "script").write_text("#!/bin/sh\n")
    assert needs_of(tmp_path / "script") == Needs("")
    # The engine was built here and so it runs here.
    needs = needs_of(real_engine)
    said = subprocess.run(["sh", "-c", needs.question], capture_output=True, text=True, check=True).stdout
    assert needs.machine == said.split()[0]
    assert needs.obstacle(said) == ""


@pytest.mark.parametrize(
    ("needs", "said", "obstacle"),
    [
        (GLIBC, "x86_64\nglibc 2.36\nthere\n", ""),
        (GLIBC, "x86_64\nglibc 2.34\nthere\n", ""),
        (GLIBC, "x86_64\nunknown\nthere\n", ""),
        (GLIBC, "aarch64\nglibc 2.36\nmissing\n", "for x86_64, and this host is aarch64"),
        (GLIBC, "x86_64\nglibc 2.28\nthere\n", "asks for glibc 2.34, and this host has 2.28"),
        (GLIBC, "x86_64\nunknown\nmissing\n", f"asks for {LOADER}, which this host has not"),
        (Needs("x86_64"), "x86_64\nunknown\n", ""),
        (Needs("x86_64"), "x86_64\nglibc 2.5\n", ""),
        (Needs("aarch64"), "x86_64\nglibc 2.36\n", "for aarch64, and this host is x86_64"),
        (Needs(""), "x86_64\nunknown\n", ""),
    ],
)
def test_a_host_that_lacks_what_it_asks_for_is_told_what(needs: Needs, said: str, obstacle: str) -> None:
    found = needs.obstacle(said)
    assert obstacle in found
    assert bool(found) == bool(obstacle)


class Old(SshHost):
    """A host with an older C library. `copied`: the engine is already there, as in a home folder that hosts share."""

    def __init__(self, copied: str = "") -> None:
        super().__init__(Host(name="h1"), asyncio.Semaphore(1))
        self.copied, self.told = copied, list[str]()

    async def _reach(self) -> None:
        """Does nothing: this class replaces the connection."""

    async def run(self, command: str, *, given: str = "", within_s: float = 0.0) -> str:
        self.told.append(command)
        if "sha256sum" in command:
            return self.copied
        if "--version" in command:
            raise HostFault("h1", "engine failed: version `GLIBC_2.34' not found", "io")
        return "x86_64\nglibc 2.28\nthere\n" if "uname" in command else ""


def test_nothing_is_copied_to_a_host_that_cannot_run_it(tmp_path: Path) -> None:
    binary = Binary(program(tmp_path / "engine", 62, LOADER, "GLIBC_2.34"))
    place = Old()
    with pytest.raises(
        HostFault, match=r"^h1: the engine asks for glibc 2.34, and this host has 2.28; .*engine-static"
    ):
        asyncio.run(place.install(binary))
    assert not any("mkdir" in command for command in place.told)


def test_a_copy_that_another_host_put_there_is_judged_too(tmp_path: Path) -> None:
    binary = Binary(program(tmp_path / "engine", 62, LOADER, "GLIBC_2.34"))
    with pytest.raises(HostFault, match=r"^h1: the engine asks for glibc 2.34, and this host has 2.28"):
        asyncio.run(Old(copied=binary.digest).install(binary))
    static = Binary(program(tmp_path / "static", 62))
    with pytest.raises(HostFault, match=r"^h1: the copied engine does not run there: engine failed: version"):
        asyncio.run(Old(copied=static.digest).install(static))


class _Anyone(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        del username
        return False


class _Reached(SshHost):
    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        super().__init__(Host(name="h1"), asyncio.Semaphore(1))
        self._reached = connection

    async def connection(self) -> asyncssh.SSHClientConnection:
        return self._reached


def test_a_host_without_sftp_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "engine").write_bytes(b"engine")

    async def put() -> None:
        key = asyncssh.generate_private_key("ssh-ed25519")
        server = await asyncssh.create_server(_Anyone, "127.0.0.1", 0, server_host_keys=[key])
        asked = {"known_hosts": None, "username": "x", "config": None, "client_keys": None}
        async with server, asyncssh.connect("127.0.0.1", server.get_port(), **asked) as connection:
            await _Reached(connection)._put(Binary(tmp_path / "engine"), "there")

    with pytest.raises(OSError, match="its SSH server has no SFTP; add `Subsystem sftp internal-sftp` to sshd_config"):
        asyncio.run(put())
