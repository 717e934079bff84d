"""Unauthenticated peers at a real server's ports: the resources they can use, and what is reported about them."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import struct
import subprocess
import threading
import zlib
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine_process import ready, started
from raw_iscsi import Session, cdb_16
from raw_nvme import DISCOVERY, Queue
from waits import wait_for

from .conftest import ENGINE, guarded

Load = Callable[..., list[dict[str, Any]]]
Serve = Callable[[dict[str, Any]], dict[str, Any]]

MEBIBYTE = 1 << 20
# Buffers that a thread keeps for peers that do not read, plus all other memory of a server.
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
                wait_for(lambda count=count: status(process)["connections"] == count, f"{count} connections")
        wait_for(lambda: status(process)["connections"] == 0, "all to be gone")


def command(opcode: int, cid: int, sgl: tuple[int, int], **dwords: int) -> bytearray:
    """A submission queue entry; `sgl` is the length and type of its data."""
    entry = bytearray(64)
    struct.pack_into("<BBH", entry, 0, opcode, 0x40, cid)
    struct.pack_into("<I3xB", entry, 32, *sgl)
    for name, value in dwords.items():
        struct.pack_into("<I", entry, 4 * int(name.removeprefix("dword")), value)
    return entry


def capsule(entry: bytearray, data: bytes = b"") -> bytes:
    return struct.pack("<BBBBI", 4, 0, 72, 72 if data else 0, 72 + len(data)) + entry + data


def discovering(address: tuple[str, int]) -> socket.socket:
    """A connection whose admin queue of a discovery controller is enabled."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.settimeout(60)
    peer.connect(address)
    peer.sendall(struct.pack("<BBBBI", 0, 0, 128, 0, 128) + bytes(120))
    peer.recv(128, socket.MSG_WAITALL)
    # Connect: queue 0 with 32 entries, keep-alive of 10 min; then CC.EN by Property Set.
    connect = command(0x7F, 0, (1024, 0x01), dword1=1, dword11=31, dword12=600_000)
    host = bytes(range(16)) + struct.pack("<H", 0xFFFF) + bytes(238)
    host += DISCOVERY.ljust(256, b"\0") + b"nqn.2026-11.x:stranger".ljust(256, b"\0")
    enable = command(0x7F, 1, (0, 0x5A), dword1=0, dword11=0x14, dword12=0x460001)
    for request in (capsule(connect, host.ljust(1024, b"\0")), capsule(enable)):
        peer.sendall(request)
        assert peer.recv(24, socket.MSG_WAITALL)[22:] == b"\0\0"
    return peer


def log_page(cid: int) -> bytes:
    """Get Log Page for 1 MiB of the discovery log."""
    dwords = MEBIBYTE // 4 - 1
    return capsule(command(0x02, cid, (MEBIBYTE, 0x5A), dword10=0x70 | (dwords & 0xFFFF) << 16, dword11=dwords >> 16))


def test_memory_for_strangers_who_ask_and_do_not_read_is_bounded() -> None:
    with server("nvme-tcp") as (process, address), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(discovering(address)) for _ in range(40)]
        pages = b"".join(log_page(cid) for cid in range(1, 1800))
        for peer in peers:
            # As many as the server accepts: it stops reading while its answers wait.
            peer.settimeout(1)
            with contextlib.suppress(TimeoutError):
                peer.sendall(pages)
        assert status(process)["max_rss_bytes"] < KEPT_MAX
        # A peer that connects now is served.
        with discovering(address) as reader:
            reader.sendall(log_page(7))
            left = MEBIBYTE + 24
            while left:
                left -= len(reader.recv(left)) or pytest.fail("the server closed the connection")


FFDHE8192 = 5
_CONTROLLER_BUSY = 0x0181
"""A status after which the host may retry."""


def queue(endpoint: str, source: str = "", subsystem: bytes = b"") -> Queue:
    _, _, address, unit = endpoint.split("/")
    host, port = address.rsplit(":", 1)
    return Queue((host, int(port)), subsystem or unit.split("?")[0].encode(), source)


@pytest.fixture
def secret(tmp_path: Path) -> dict[str, str]:
    key = bytes(range(32))
    path = tmp_path / "secret"
    path.write_text(f"DHHC-1:00:{base64.b64encode(key + zlib.crc32(key).to_bytes(4, 'little')).decode()}:")
    return {"secret_file": str(path)}


def test_the_rightful_host_comes_in_while_strangers_connects_stand(
    serve: Serve, load: Load, secret: dict[str, str]
) -> None:
    """More strangers than a subsystem has controllers, all from the address of the real host."""
    endpoint = serve(guarded("nvme-tcp", dhchap=secret))["portals"][0]["endpoint"]
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stranger = queue(endpoint)
            stranger.open()
            stack.callback(stranger.close)
            status, result = stranger.try_connect(0, 0xFFFF)
            assert status == 0 and result >> 16, "it is to prove itself first"
        told = load({"task": "check", "endpoint": endpoint, "options": {"dhchap": secret}})[-1]
        assert told["event"] == "checked", told


def test_strangers_of_one_address_lock_nobody_else_out_of_discovery(serve: Serve) -> None:
    endpoint = serve(guarded("nvme-tcp"))["portals"][0]["endpoint"]
    with contextlib.ExitStack() as stack:

        def discover(source: str) -> int:
            discovery = queue(endpoint, source, DISCOVERY)
            discovery.open()
            stack.callback(discovery.close)
            return discovery.try_connect(0, 0xFFFF)[0]

        came_in = [discover("127.0.0.1") for _ in range(300)]
        assert came_in.count(0) == 64 and set(came_in[64:]) == {_CONTROLLER_BUSY}
        assert discover("127.0.0.2") == 0


def test_reads_go_on_while_strangers_have_the_largest_group_calculated(serve: Serve, secret: dict[str, str]) -> None:
    """Sixteen strangers, each with its own address. One thread handles them and the reads."""
    guard = guarded("nvme-tcp", dhchap=secret)
    open_to_all = {"protocol": "iscsi", "listen": "127.0.0.1:0", "volume": "v0"}
    portals = serve(guard | {"exports": [*guard["exports"], open_to_all], "threads": 1})["portals"]
    ended = threading.Event()
    calculated = []

    def stranger(number: int) -> None:
        while not ended.is_set():
            asker = queue(portals[0]["endpoint"], f"127.0.1.{number}")
            asker.open()
            assert asker.try_connect(0, 0xFFFF)[0] == 0
            calculated.append(asker.negotiate(FFDHE8192))
            asker.close()

    with ThreadPoolExecutor(16) as strangers, Session(portals[1]["endpoint"]) as reader:
        asking = [strangers.submit(stranger, number) for number in range(1, 17)]
        try:
            before = len(calculated)
            reads = 0
            while len(calculated) < before + 16:
                assert reader.run(cdb_16(0x88, 0, 8 * (reads % 1000), 8)) == 0
                reads += 1
        finally:
            ended.set()
    for each in asking:
        each.result()
    assert set(calculated) == {0}, "each has its answer"
    assert reads > 16, f"{reads} reads while 16 values were calculated"
