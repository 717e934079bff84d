"""Peers that have proved nothing, at the ports of a real server: what they can take, and what is told of them."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import time
from collections.abc import Generator
from typing import Any

import pytest

from engine_process import ready, started

from .conftest import ENGINE

DISCOVERY = b"nqn.2014-08.org.nvmexpress.discovery"
MEBIBYTE = 1 << 20
# What a thread keeps in all for peers that do not read, and more for all else that a server is.
KEPT_MAX = (256 + 150) * MEBIBYTE


@contextlib.contextmanager
def server(protocol: str) -> Generator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    document = {
        "volumes": [{"name": "v0", "media": "memory", "size_bytes": 8 << 20}],
        "exports": [{"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}],
    }
    with started(ENGINE, "serve", document) as process:
        try:
            host, _, port = ready(process)["portals"][0]["address"].rpartition(":")
            yield process, (host, int(port))
        finally:
            process.kill()


def status(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdin
    assert process.stdout
    process.stdin.write('{"command":"status"}\n')
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_status_tells_the_connections_of_now() -> None:
    with server("nfs3") as (process, address):
        assert status(process)["connections"] == 0
        with contextlib.ExitStack() as stack:
            for count in (1, 2, 3):
                stack.enter_context(socket.create_connection(address))
                time.sleep(0.2)
                assert status(process)["connections"] == count
        time.sleep(0.2)
        assert status(process)["connections"] == 0


def command(opcode: int, cid: int, sgl: tuple[int, int], **dwords: int) -> bytearray:
    """A submission queue entry; `sgl` is length and type of its data."""
    entry = bytearray(64)
    struct.pack_into("<BBH", entry, 0, opcode, 0x40, cid)
    struct.pack_into("<I3xB", entry, 32, *sgl)
    for name, value in dwords.items():
        struct.pack_into("<I", entry, 4 * int(name.removeprefix("dword")), value)
    return entry


def capsule(entry: bytearray, data: bytes = b"") -> bytes:
    return struct.pack("<BBBBI", 4, 0, 72, 72 if data else 0, 72 + len(data)) + entry + data


def discovering(address: tuple[str, int]) -> socket.socket:
    """An admin queue of a discovery controller, enabled."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.settimeout(20)
    peer.connect(address)
    peer.sendall(struct.pack("<BBBBI", 0, 0, 128, 0, 128) + bytes(120))
    peer.recv(128, socket.MSG_WAITALL)
    # Connect: queue 0 of 32 entries, keep-alive of 10 min; then CC.EN by Property Set.
    connect = command(0x7F, 0, (1024, 0x01), dword1=1, dword11=31, dword12=600_000)
    host = bytes(range(16)) + struct.pack("<H", 0xFFFF) + bytes(238)
    host += DISCOVERY.ljust(256, b"\0") + b"nqn.2026-11.x:stranger".ljust(256, b"\0")
    enable = command(0x7F, 1, (0, 0x5A), dword1=0, dword11=0x14, dword12=0x460001)
    for request in (capsule(connect, host.ljust(1024, b"\0")), capsule(enable)):
        peer.sendall(request)
        assert peer.recv(24, socket.MSG_WAITALL)[22:] == b"\0\0"
    return peer


def log_page(cid: int) -> bytes:
    """Get Log Page of 1 MiB of the discovery log."""
    dwords = MEBIBYTE // 4 - 1
    return capsule(command(0x02, cid, (MEBIBYTE, 0x5A), dword10=0x70 | (dwords & 0xFFFF) << 16, dword11=dwords >> 16))


@pytest.mark.timeout(120)
def test_memory_for_strangers_who_ask_and_do_not_read_is_bounded() -> None:
    with server("nvme-tcp") as (process, address), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(discovering(address)) for _ in range(40)]
        pages = b"".join(log_page(cid) for cid in range(1, 1800))
        for peer in peers:
            # As many as the server takes: it does not read on while its answers wait.
            peer.settimeout(1)
            with contextlib.suppress(TimeoutError):
                peer.sendall(pages)
        assert status(process)["max_rss_bytes"] < KEPT_MAX
        # Who comes then is served.
        with discovering(address) as reader:
            reader.sendall(log_page(7))
            left = MEBIBYTE + 24
            while left:
                left -= len(reader.recv(left)) or pytest.fail("the server closed the connection")
