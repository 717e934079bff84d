"""The engine as a program: where it is, and what its lines say (docs/reference/engine.md)."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any


class EngineError(Exception):
    """The engine reported an error, died, fell silent, or spoke nonsense.

    `kind` is one of the engine's own kinds, or `died`, `silent`, `malformed`, `missing`.
    """

    def __init__(self, kind: str, message: str, where: str = "", log: str = "") -> None:
        self.kind, self.message, self.where, self.log = kind, message, where, log
        super().__init__(f"{message} ({where})" if where else message)


def find_engine() -> Path:
    """$IOTAX_ENGINE, else the checkout's release build, else the one installed beside Python, else the one on PATH."""
    if named := os.environ.get("IOTAX_ENGINE"):
        return _program("IOTAX_ENGINE", named)
    checkout = Path(__file__).resolve().parents[2]
    candidates = [Path(sys.executable).parent / "iotax-engine"]
    if (checkout / "Cargo.toml").is_file():
        candidates.insert(0, checkout / "target" / "release" / "iotax-engine")
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    if found := shutil.which("iotax-engine"):
        return Path(found)
    raise EngineError(
        "missing",
        "iotax-engine is not there: build it with `cargo build --release -p iotax-engine`, or name it in IOTAX_ENGINE",
    )


def find_host_engine() -> Path:
    """What is copied to hosts: $IOTAX_HOST_ENGINE, else the form of `find_engine`'s that asks for no C library, as long
    as it is of the same build, else that one itself."""
    if named := os.environ.get("IOTAX_HOST_ENGINE"):
        return _program("IOTAX_HOST_ENGINE", named)
    program = find_engine()
    installed = program.with_name("iotax-engine-static")
    if program.parent == Path(sys.executable).parent and os.access(installed, os.X_OK):
        return installed
    built = Path(__file__).resolve().parents[2] / "target" / "static" / "iotax-engine"
    other_form_of = built.with_suffix(".of")
    if os.access(built, os.X_OK) and other_form_of.is_file():
        digest = hashlib.sha256(program.read_bytes()).hexdigest()
        if other_form_of.read_text(encoding="ascii").strip() == digest:
            return built
    return program


def engine_version(program: Path) -> str:
    """What the program says of itself; empty when it does not."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


@functools.cache
def counter_rate_hz(program: Path) -> int | None:
    """How fast this machine's time stamp counter runs; None if it has none, or the engine does not say."""
    try:
        done = subprocess.run([program, "clock"], capture_output=True, text=True, timeout=30, check=True)
        rate_hz = json.loads(done.stdout)["counter_rate_hz"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return None
    return rate_hz if isinstance(rate_hz, int) else None


def event_of(line: bytes) -> dict[str, Any]:
    """What a line says, whatever process or host it came from. Raises EngineError for an error line, and for none."""
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        quoted = line[:80].decode(errors="replace").strip()
        raise EngineError("malformed", f"the engine wrote a line that is not an event: {quoted!r}")
    if event["event"] == "error":
        raise EngineError(
            str(event.get("kind", "internal")), str(event.get("message", "")), str(event.get("where", ""))
        )
    return event


def _program(variable: str, named: str) -> Path:
    if not os.access(named, os.X_OK):
        raise EngineError("missing", f"{variable} names {named}, which is not a program")
    return Path(named)
