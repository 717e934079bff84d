"""The real engine, run as docs/reference/engine.md says: a document on standard input, events on standard output."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Literal


def started(
    engine: Path,
    command: Literal["load", "serve", "session", "simulate", "perform"],
    document: dict[str, Any],
    stderr: int | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Starts the engine and sends the document. Standard input stays open, since closing it ends the engine."""
    process = subprocess.Popen(
        [engine, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, env=env
    )
    assert process.stdin
    process.stdin.write(json.dumps(document) + "\n")
    process.stdin.flush()
    return process


def events(
    engine: Path, document: dict[str, Any], command: Literal["load", "session", "simulate"] = "load"
) -> list[dict[str, Any]]:
    """All events of a task, until it ends."""
    with started(engine, command, document) as process:
        assert process.stdout
        return [json.loads(line) for line in process.stdout]


def completed(engine: Path, document: dict[str, Any]) -> dict[str, Any]:
    """The last event of a load. If a busy machine completed no I/O in the window, of a load with a longer one."""
    last = events(engine, document)[-1]
    if last["event"] == "result" and not last["read"]["ios"] + last["write"]["ios"]:
        last = events(engine, document | {"runtime_ns": 20_000_000_000})[-1]
    return last


def ready(server: subprocess.Popen[str]) -> dict[str, Any]:
    assert server.stdout
    event = json.loads(server.stdout.readline())
    assert event["event"] == "ready", event
    return event
