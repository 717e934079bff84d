"""The engine as a program: where it is, and what its lines say (docs/reference/engine.md)."""

from __future__ import annotations

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
        if not os.access(named, os.X_OK):
            raise EngineError("missing", f"IOTAX_ENGINE names {named}, which is no program")
        return Path(named)
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


def engine_version(program: Path) -> str:
    """What the program says of itself; empty when it does not."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def event_of(line: bytes) -> dict[str, Any]:
    """What a line says, whatever process or host it came from. Raises EngineError for an error line, and for none."""
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        quoted = line[:80].decode(errors="replace").strip()
        raise EngineError("malformed", f"the engine wrote a line that is no event: {quoted!r}")
    if event["event"] == "error":
        raise EngineError(
            str(event.get("kind", "internal")), str(event.get("message", "")), str(event.get("where", ""))
        )
    return event
