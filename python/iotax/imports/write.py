"""A study of imported results into a notebook."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from iotax.imports.study import Kept, Read
from iotax.notebook import Writer
from iotax.records import CpuUse
from iotax.study.imported import ImportedStudy
from iotax.trial import TrialResult


def write(writer: Writer, read: Read, *, label: str, environment: dict[str, Any]) -> tuple[int, int]:
    """(run, how many results are new). A campaign that went on is added to the run that holds its beginning; anything
    else is a run of its own, beside those that are there."""
    study, kept, backgrounds = read.study, read.kept, read.backgrounds
    run = _beginning(writer, study, kept, label)
    fresh = list(kept)
    if run is None:
        run = writer.begin(study, study.source, label, [])
    else:
        there = {trial.id for trial in writer.trials(run)}
        fresh = [each for each in kept if each.trial.id not in there]
        if not fresh:
            return run, 0
        writer.extend(run, study, study.source, [])
        known = {each.started_unix_ns for each in writer.backgrounds(run)}
        backgrounds = [each for each in backgrounds if each.started_unix_ns not in known]
    session = writer.begin_session(run, environment, time.time_ns())
    writer.add_results(session, run, [each.trial for each in fresh], [each.result for each in fresh])
    for each in backgrounds:
        writer.add_background(session, run, each)
    return run, len(fresh)


def _beginning(writer: Writer, study: ImportedStudy, kept: Sequence[Kept], label: str) -> int | None:
    """The latest run of this name and label, where all that it holds is among these results; None if not."""
    results = {each.trial.id: _but_for_idle(each.result) for each in kept}
    for each in reversed(writer.runs()):
        if (each.name, each.label) != (study.name, label):
            continue
        there = writer.study(each.id)
        same = isinstance(there, ImportedStudy) and list(there.imported.factors) == list(study.imported.factors)
        if same and all(
            one.result is not None and results.get(one.trial.id) == _but_for_idle(one.result)
            for one in writer.attempts(each.id)
        ):
            return each.id
        return None
    return None


def _but_for_idle(result: TrialResult) -> TrialResult:
    """More runs leave more time between them: what machines do without load is known better then, and no other run."""
    parts = [part.model_copy(update={"background_ns": None}) for part in result.cpu]
    return result.model_copy(update={"cpu": CpuUse(parts)})
