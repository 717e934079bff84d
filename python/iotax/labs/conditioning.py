"""Loads that bring a volume into a steady state: a trial's, except for what they write and where."""

from __future__ import annotations

from dataclasses import replace

from iotax.labs.base import Worked
from iotax.study import Settings
from iotax.study.model import Load
from iotax.trial import TrialResult


def filling(settings: Settings, size_bytes: int) -> Settings:
    """Time to fill all of it."""
    return replace(settings, load=Load().model_copy(update={"working_set": size_bytes}))


def overwriting(settings: Settings, size_bytes: int) -> Settings:
    """One round of random writes over all of it, with data that reads can verify later."""
    asked = settings.precondition
    assert asked is not None, "what is preconditioned"
    load = {
        "block_size": asked.block_size,
        "read": 0.0,
        "workers": asked.workers,
        "outstanding": asked.outstanding,
        "working_set": size_bytes,
        "warmup": 0,
        "runtime": asked.round,
    }
    return replace(settings, load=Load().model_copy(update=load))


def worked(results: list[TrialResult]) -> Worked:
    """Total of all that overwrote at the same time."""
    return Worked(
        sum(each.read.bytes + each.write.bytes for each in results),
        sum(each.ios * 1e9 / each.window.duration_ns for each in results),
    )
