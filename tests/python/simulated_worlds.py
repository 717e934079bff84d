"""Studies of the simulated lab, and the documents that they send to the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from iotax.labs.sim.lab import simulate_document
from iotax.study import Study
from iotax.study.read import read_study
from iotax.study.source import StudyError


def read_world(base: dict[str, Any], sim: dict[str, Any], folder: Path = Path(), **more: Any) -> Study:
    """The study `base` with the lab settings `sim`, changed by `more`."""
    told = base | {"lab": {"sim": {"costs": "esxi-7"} | sim}} | more
    return read_study("study.yaml", yaml.safe_dump(told, sort_keys=False), folder)


def document(study: Study, **treatment: Any) -> dict[str, Any]:
    """The engine's document for a treatment; all costs are 0."""
    costs = dict.fromkeys(("wake_ns", "turn_ns", "send_ns", "io_ns", "kib_ns", "kib_sent_ns", "segment_ns"), 0)
    return simulate_document(study, study.settings(treatment), 1, {"initiator": costs, "target": costs})


def is_refused(base: dict[str, Any], sim: dict[str, Any], more: dict[str, Any], reason: str) -> None:
    """Asserts that the study is refused with its line and this reason."""
    with pytest.raises(StudyError) as refused:
        read_world(base, sim, **more)
    assert reason in str(refused.value)
    assert "study.yaml:" in str(refused.value)
