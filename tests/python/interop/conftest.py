"""Third-party programs, and the engine as a process, for tests."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_process import events, ready, started

ROOT = Path(__file__).parents[3]
ENGINE = Path(os.environ.get("IOTAX_ENGINE", ROOT / "target" / "release" / "iotax-engine"))


def guarded(protocol: str, **group: Any) -> dict[str, Any]:
    """A server's document with one volume and one group, which contains this machine's initiators."""
    return {
        "volumes": [{"name": "v0", "media": "memory", "size_bytes": 8 << 20, "fill": "pattern", "seed": 3}],
        "exports": [{"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0", "groups": ["lab"]}],
        "groups": [{"name": "lab", "initiators": ["127.0.0.0/8"], **group}],
    }


def all_that_is_said(document: dict[str, Any], loads: Callable[[str], list[dict[str, Any]]]) -> str:
    """All output of a server, and of loads on its first endpoint: events and logs."""
    said = ""
    with started(ENGINE, "serve", document, stderr=subprocess.PIPE) as server:
        assert server.stdout
        first = server.stdout.readline()
        for run in loads(json.loads(first)["portals"][0]["endpoint"]):
            with started(ENGINE, "load", run, stderr=subprocess.STDOUT) as process:
                assert process.stdout
                told = process.stdout.read()
            assert '"event"' in told, "an engine whose input ends says nothing"
            said += told
        rest, log = server.communicate("not a command: \n", timeout=180)
    return said + first + rest + log


@pytest.fixture
def load() -> Callable[..., list[dict[str, Any]]]:
    """Runs `iotax-engine load` to its end and returns its events."""
    return functools.partial(events, ENGINE)


@pytest.fixture
def serve() -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """Starts `iotax-engine serve`, returns its `ready` event, and stops it after the test."""
    servers: list[subprocess.Popen[str]] = []

    def start(document: dict[str, Any]) -> dict[str, Any]:
        servers.append(started(ENGINE, "serve", document))
        return ready(servers[-1])

    yield start
    for process in servers:
        assert process.stdin and process.stdout
        process.stdin.close()
        assert process.wait(timeout=180) == 0
        process.stdout.close()
