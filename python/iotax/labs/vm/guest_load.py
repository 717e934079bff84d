"""The engine within a guest: a document in, its events out, over the control port."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from typing import Any

from iotax.engine import EngineError, event_of
from iotax.labs.vm.guests import Guest, StepFailed
from iotax.labs.vm.image import ENGINE

_START_S = 45.0
_SILENCE_S = 45.0
"""How long an emulated engine on a busy host may say nothing."""

Event = dict[str, Any]


def run_engine(guest: Guest, document: dict[str, Any], each: Callable[[Event], None]) -> None:
    """Runs one `load` task to its end. Raises EngineError, and VmFault when the guest is lost."""
    # A pipe that this shell holds open at both ends: the engine ends when its input does.
    script = (
        "rm -f /run/document; mkfifo /run/document; exec 4<>/run/document; "
        f"printf '%s\\n' {shlex.quote(json.dumps(document))} >&4; {ENGINE} load <&4"
    )
    quiet_ns = document.get("warmup_ns", 0) + document.get("runtime_ns", 0)
    deadline_s = time.monotonic() + _START_S + quiet_ns / 1e9

    def hear(line: str) -> None:
        nonlocal deadline_s
        deadline_s = max(deadline_s, time.monotonic() + _SILENCE_S)
        each(event_of(line.encode()))

    try:
        guest.stream(script, hear, lambda: deadline_s)
    except StepFailed as failed:
        raise EngineError("died", f"the engine in the {guest.role} guest ended: {failed}") from failed


def fill(guest: Guest, path: str, working_set_bytes: int, step: Callable[[float], None]) -> None:
    """Writes the pattern over a file of the guest's own. Raises EngineError."""
    endpoint = f"local:{path}"
    document = {"task": "fill", "endpoint": endpoint, "working_set_bytes": working_set_bytes, "destroy": endpoint}

    def each(event: Event) -> None:
        if event["event"] == "progress" and event.get("total_bytes"):
            step(event["done_bytes"] / event["total_bytes"])

    run_engine(guest, document, each)
