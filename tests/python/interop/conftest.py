"""Other people's programs, and the engine as a process, for tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parents[3]
ENGINE = Path(os.environ.get("IOTAX_ENGINE", ROOT / "target" / "release" / "iotax-engine"))
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def program(name: str, package: str) -> str:
    """The path of another project's program; skips the test where it is missing, fails it where CI=true."""
    return shutil.which(name, path=PATH) or missing(f"{name} is not installed", package)


def missing(what: str, package: str) -> NoReturn:
    """Skips the test, or fails it where CI=true."""
    reason = f"{what} (Debian package {package})"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def guarded(protocol: str, **group: Any) -> dict[str, Any]:
    """A server's document with one volume, for a group of this machine's initiators."""
    return {
        "volumes": [{"name": "v0", "media": "memory", "size_bytes": 8 << 20, "fill": "pattern", "seed": 3}],
        "exports": [{"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0", "groups": ["lab"]}],
        "groups": [{"name": "lab", "initiators": ["127.0.0.0/8"], **group}],
    }


def all_that_is_said(document: dict[str, Any], loads: Callable[[str], list[dict[str, Any]]]) -> bytes:
    """What a server writes, to its end, and what loads on its first endpoint write: events and logs."""
    said = b""
    with subprocess.Popen(
        [ENGINE, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        assert server.stdin and server.stdout
        server.stdin.write(json.dumps(document).encode() + b"\n")
        server.stdin.flush()
        ready = server.stdout.readline()
        for run in loads(json.loads(ready)["portals"][0]["endpoint"]):
            with subprocess.Popen(
                [ENGINE, "load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            ) as process:
                assert process.stdin and process.stdout
                process.stdin.write(json.dumps(run).encode() + b"\n")
                process.stdin.flush()
                events = process.stdout.read()
            assert b'"event"' in events, "an engine whose input ends says nothing"
            said += events
        rest, log = server.communicate(b"not a command: \n", timeout=10)
    return said + ready + rest + log


@pytest.fixture
def load() -> Callable[..., list[dict[str, Any]]]:
    """Runs `iotax-engine load` to its end and gives its events."""

    def run(document: dict[str, Any]) -> list[dict[str, Any]]:
        with subprocess.Popen([ENGINE, "load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin and process.stdout
            process.stdin.write(json.dumps(document) + "\n")
            process.stdin.flush()
            events = [json.loads(line) for line in process.stdout]
        return events

    return run


@pytest.fixture
def serve() -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """Starts `iotax-engine serve`, gives its `ready` event, stops it after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(document: dict[str, Any]) -> dict[str, Any]:
        process = subprocess.Popen([ENGINE, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(document) + "\n")
        process.stdin.flush()
        event = json.loads(process.stdout.readline())
        assert event["event"] == "ready", event
        return event

    yield start
    for process in started:
        assert process.stdin and process.stdout
        process.stdin.close()
        assert process.wait(timeout=10) == 0
        process.stdout.close()
