"""A study of imported results into a notebook."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from iotax.imports.study import Kept
from iotax.notebook import Writer
from iotax.study.imported import ImportedStudy


def write(
    writer: Writer, study: ImportedStudy, kept: Sequence[Kept], *, label: str, environment: dict[str, Any]
) -> tuple[int, int]:
    """(run, how many results are new). A campaign that went on is added to the run that holds its beginning; anything
    else is a run of its own, beside those that are there."""
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
    session = writer.begin_session(run, environment, time.time_ns())
    writer.add_results(session, run, [each.trial for each in fresh], [each.result for each in fresh])
    return run, len(fresh)


def _beginning(writer: Writer, study: ImportedStudy, kept: Sequence[Kept], label: str) -> int | None:
    """The latest run of this name and label, where all that it holds is among these results; None where not."""
    results = {each.trial.id: each.result for each in kept}
    for each in reversed(writer.runs()):
        if (each.name, each.label) != (study.name, label):
            continue
        there = writer.study(each.id)
        same = isinstance(there, ImportedStudy) and list(there.imported.factors) == list(study.imported.factors)
        if same and all(results.get(one.trial.id) == one.result for one in writer.attempts(each.id)):
            return each.id
        return None
    return None
