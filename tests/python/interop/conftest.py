"""Other people's programs, and the engine as a process, for tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
ENGINE = Path(os.environ.get("IOTAX_ENGINE", ROOT / "target" / "release" / "iotax-engine"))
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def program(name: str, package: str) -> str:
    """The path of another project's program; skips the test where it is missing, fails it where CI=true."""
    found = shutil.which(name, path=PATH)
    if found is None:
        reason = f"{name} is not installed (Debian package {package})"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


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
