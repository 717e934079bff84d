"""A server survives a failing standard error and peers that hold connections, and frees its resources at its end."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine_process import events, ready, started
from raw_iscsi import Session, cdb_10

WRONG = b"\xff" * 512


@contextmanager
def served(engine: Path, volume: dict[str, Any], stderr: int | None = None) -> Iterator[dict[str, str]]:
    """Endpoints of a volume by protocol."""
    protocols = ["nfs3", "iscsi", "nvme-tcp"]
    document = {
        "volumes": [{"name": "v0", "size_bytes": 64 << 20} | volume],
        "exports": [{"protocol": each, "listen": "127.0.0.1:0", "volume": "v0"} for each in protocols],
    }
    with started(engine, "serve", document, stderr) as server:
        portals = ready(server)["portals"]
        yield {portal["protocol"]: portal["endpoint"] for portal in portals}
        assert server.poll() is None, "the server ended"
        assert server.stdin
        server.stdin.close()
        assert server.wait(timeout=120) == 0


def wrong_pdus(endpoints: dict[str, str], count: int) -> None:
    for endpoint in endpoints.values():
        host, port = endpoint.split("/")[2].rsplit(":", 1)
        for _ in range(count):
            with socket.create_connection((host, int(port)), timeout=30) as peer:
                peer.sendall(WRONG)
                try:
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(4096):
                        pass
                except OSError:
                    pass


def serves(endpoints: dict[str, str]) -> bool:
    with Session(endpoints["iscsi"]) as session:
        return session.run(cdb_10(0x2A, 0, 0, 1), bytes(512)) == 0


def test_wrong_pdus_do_not_end_a_server_whose_standard_error_is_full(real_engine: Path) -> None:
    with Path("/dev/full").open("wb") as full, served(real_engine, {"media": "memory"}, full.fileno()) as endpoints:
        wrong_pdus(endpoints, 20)
        assert serves(endpoints)


def test_wrong_pdus_do_not_stop_a_server_whose_standard_error_nobody_reads(real_engine: Path) -> None:
    read_end, unread = os.pipe()
    fcntl.fcntl(unread, fcntl.F_SETPIPE_SZ, 4096)
    with served(real_engine, {"media": "memory"}, unread) as endpoints:
        wrong_pdus(endpoints, 100)
        assert serves(endpoints)
    os.close(read_end)
    os.close(unread)


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "buffered"])
def test_sessions_that_hold_writes_without_data_hold_nobody_up(real_engine: Path, tmp_path: Path, direct: bool) -> None:
    volume = {"media": "file", "path": str(tmp_path / "volume"), "direct": direct}
    with served(real_engine, volume) as endpoints, ExitStack() as stack:
        for _ in range(3):
            holder = stack.enter_context(Session(endpoints["iscsi"], immediate=False))
            for index in range(128):
                holder.send(cdb_10(0x2A, 0, 2048 * (index % 32), 2048), announced=1 << 20)
        begun = time.monotonic()
        for size in (512, 4096, 64 << 10):
            with Session(endpoints["iscsi"]) as session:
                for _ in range(10):
                    assert session.run(cdb_10(0x2A, 0, 0, size // 512), bytes(size)) == 0, f"{size} bytes"
        assert time.monotonic() - begun < 30
        stack.close()
        assert serves(endpoints)


@pytest.fixture
def block_device(tmp_path: Path) -> Iterator[str]:
    losetup = shutil.which("losetup", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if losetup is None or os.geteuid() != 0:
        pytest.skip("no right to make a loop device")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    made = subprocess.run([losetup, "--find", "--show", str(image)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no loop device: {made.stderr}")
    device = made.stdout.strip()
    yield device
    subprocess.run([losetup, "--detach", device], check=True)


def test_block_device_is_free_as_soon_as_a_load_on_it_has_ended(real_engine: Path, block_device: str) -> None:
    document = {
        "task": "run",
        "endpoint": f"local:{block_device}",
        "workers": 1,
        "outstanding": 8,
        "block_size_bytes": 4096,
        "read_percent": 0,
        "random_percent": 100,
        "warmup_ns": 0,
        "runtime_ns": 10_000_000,
        "sample_ns": 5_000_000,
        "seed": 1,
        "driver": "io_uring",
        "options": {},
        "destroy": f"local:{block_device}",
    }
    for run in range(20):
        said = events(real_engine, document)
        if "io_uring cannot be used" in str(said):
            pytest.skip("io_uring is refused here")
        assert said[-1]["event"] == "result", f"run {run}: {said[-1]}"
