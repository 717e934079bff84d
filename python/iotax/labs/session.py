"""The engine's session: trials measured in turns, from its document to an outcome for each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from iotax.engine import Engine, EngineError
from iotax.labs.base import Outcome, Progress, TrialFailed
from iotax.labs.load import CONNECT_S, SILENCE_S, malformed, sample_of
from iotax.trial import Connected, TrialResult


def session_document(
    loads: Mapping[str, dict[str, Any]], rounds: Sequence[Sequence[int]], *, settle_ns: int, slice_ns: int
) -> dict[str, Any]:
    """`loads`: trial id → the engine's `run` task for it; `rounds`: their places, in the order of measuring."""
    return {
        "loads": [{"id": name, "load": load} for name, load in loads.items()],
        "rounds": rounds,
        "settle_ns": settle_ns,
        "slice_ns": slice_ns,
    }


def run_session(program: Path, document: dict[str, Any], progress: Progress) -> dict[str, Outcome]:
    """Trial id → what came of it. Raises TrialFailed: a session that fails has no results."""
    ids = [load["id"] for load in document["loads"]]
    slices = sum(len(each) for each in document["rounds"])
    turns_s = slices * (document["settle_ns"] + document["slice_ns"]) / 1e9
    connected: dict[str, Connected] = {}
    results: dict[str, TrialResult] = {}
    reason = kind = ""
    try:
        with Engine(program, "session", document) as engine:
            deadline_s = time.monotonic() + CONNECT_S
            while len(results) < len(ids):
                event = engine.event(deadline_s)
                if event["event"] == "connected":
                    connected[event["id"]] = Connected.model_validate(event)
                    # All stand: slices come, each with what it takes to begin.
                    deadline_s = time.monotonic() + (2 * turns_s if len(connected) == len(ids) else 0) + SILENCE_S
                elif event["event"] == "sample":
                    progress(sample_of(event))
                elif event["event"] == "result":
                    results[event["id"]] = TrialResult.model_validate(event)
        silent = [name for name, result in results.items() if not result.ios and not result.idle]
        if silent:
            reason = f"no I/O completed within the slices of {', '.join(silent)}"
    except EngineError as error:
        if error.kind == "missing":
            raise TrialFailed(str(error), kind=error.kind) from error
        reason, kind = str(error), error.kind
    except ValidationError as error:
        reason = malformed(error)
    # Only now, with the process ended, is its log whole.
    if reason:
        raise TrialFailed(reason, engine.log, kind=kind)
    return {name: Outcome(results[name], connected.get(name), engine.log) for name in ids}
