"""The engine's session: trials measured in turns, from its document to an outcome for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iotax.labs.base import Outcome, Progress
from iotax.labs.outcomes import CONNECT_S, SILENCE_S, Timeouts, outcomes_of


def session_document(
    loads: Mapping[str, dict[str, Any]],
    rounds: Sequence[Sequence[int]],
    *,
    lead_in_ns: int,
    settle_ns: int,
    slice_ns: int,
) -> dict[str, Any]:
    """`loads`: trial id → the engine's `run` task for it; `rounds`: their places, in the order of measuring."""
    return {
        "loads": [{"id": name, "load": load} for name, load in loads.items()],
        "rounds": rounds,
        "lead_in_ns": lead_in_ns,
        "settle_ns": settle_ns,
        "slice_ns": slice_ns,
    }


def run_session(program: Path, document: dict[str, Any], progress: Progress) -> dict[str, Outcome]:
    """Trial id → result. Raises TrialFailed: a session that fails has no results."""
    slices = sum(len(each) for each in document["rounds"])
    turns_s = (document["lead_in_ns"] + slices * (document["settle_ns"] + document["slice_ns"])) / 1e9
    ids = [load["id"] for load in document["loads"]]
    timeouts = Timeouts(2 * turns_s, CONNECT_S, SILENCE_S)
    return outcomes_of(program, "session", document, progress, timeouts=timeouts, loads=ids)
