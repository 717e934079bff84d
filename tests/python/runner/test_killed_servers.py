"""What a killed server leaves behind: the next one works, and the user has nothing to clean up."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_process import events, ready, started
from iotax.labs.held import Held
from waits import wait_for

MIB = 1 << 20


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("losetup") is None:
        pytest.skip("loop devices need root and losetup")
    with (tmp_path / "disk").open("wb") as file:
        file.truncate(4 * MIB)
    done = subprocess.run(
        ["losetup", "--find", "--show", tmp_path / "disk"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no loop device: {done.stderr.strip()}")
    yield Path(done.stdout.strip())
    subprocess.run(["losetup", "--detach", done.stdout.strip()], check=False)


def document(path: Path, driver: str = "epoll", **volume: Any) -> dict[str, Any]:
    return {
        "volumes": [{"name": "v0", "media": "file", "path": str(path), "size_bytes": 4 * MIB} | volume],
        "exports": [{"protocol": "iscsi", "listen": "127.0.0.1:0", "volume": "v0"}],
        "driver": driver,
    }


def killed(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGKILL)
    server.wait(timeout=120)
    for pipe in (server.stdin, server.stdout):
        assert pipe
        pipe.close()


@pytest.mark.parametrize("driver", ["epoll", "io_uring"])
def test_a_device_is_free_for_the_server_after_one_that_was_killed(
    real_engine: Path, device: Path, driver: str
) -> None:
    """io_uring releases its files some time after the process has ended."""
    for _ in range(20):
        server = started(real_engine, "serve", document(device, driver))
        ready(server)
        killed(server)


@pytest.mark.parametrize("driver", ["epoll", "io_uring"])
def test_a_device_is_free_for_a_study_after_a_load_that_was_killed(
    real_engine: Path, device: Path, driver: str
) -> None:
    run = {"task": "run", "endpoint": f"local:{device}", "driver": driver, "workers": 2, "outstanding": 4}
    run |= {"block_size_bytes": 4096, "working_set_bytes": MIB, "runtime_ns": 10**10, "verify": False}
    for _ in range(5):
        load = started(real_engine, "load", run)
        assert load.stdout
        while json.loads(load.stdout.readline())["event"] != "sample":
            pass
        killed(load)
        held = Held(device, writes=True)
        held.close()


def fill_killed_at(real_engine: Path, path: Path, size_bytes: int, held_bytes: int) -> None:
    """Kills a server after it has written this many bytes of its pattern to its new file."""
    server = started(real_engine, "serve", document(path, size_bytes=size_bytes, fill="pattern"))
    wait_for(lambda: path.exists() and pattern_ends(path) >= held_bytes, "the fill")
    killed(server)


def pattern_ends(path: Path) -> int:
    """Where the pattern ends. Its blocks never start with zeros, and it is written in order."""
    with path.open("rb") as file:
        begin, end = 0, path.stat().st_size // 512
        while begin < end:
            middle = (begin + end) // 2
            file.seek(middle * 512)
            begin, end = (middle + 1, end) if any(file.read(512)) else (begin, middle)
    return begin * 512


@pytest.mark.parametrize("held_bytes", [0, 1, 3 * MIB, 40 * MIB])
def test_a_file_volume_goes_on_after_a_server_that_was_killed_while_it_filled_it(
    real_engine: Path, tmp_path: Path, held_bytes: int
) -> None:
    path, size_bytes = tmp_path / "volume", 256 * MIB
    fill_killed_at(real_engine, path, size_bytes, held_bytes)
    assert pattern_ends(path) < size_bytes, "the fill was over"
    [checked] = [
        event
        for event in events(real_engine, {"task": "check", "endpoint": f"local:{path}", "volume_bytes": size_bytes})
        if event["event"] == "checked"
    ]
    assert checked["holds"] in ("zeros", "pattern")
    assert checked.get("held") is None
    with started(real_engine, "serve", document(path, size_bytes=size_bytes, fill="pattern")) as server:
        ready(server)
        assert server.stdin
        server.stdin.close()
    assert pattern_ends(path) == size_bytes
