"""iotax's engine as a generator."""

from __future__ import annotations

from collections.abc import Sequence

from iotax.labs.base import CheckItem, Outcome, Progress, TrialFailed
from iotax.labs.generators.base import Generator, Job
from iotax.labs.load import run_document, run_load
from iotax.study import Settings
from iotax.study.model import Load


class Iotax(Generator):
    name = "iotax"
    foreign = False

    def check(self, asked: Sequence[Settings], driver: str) -> list[CheckItem]:
        """The lab would not be here without it."""
        del asked, driver
        return []

    def threads(self, load: Load) -> int:
        return load.threads

    def run(self, job: Job, progress: Progress) -> Outcome:
        outcome = run_load(job.program, document(job), progress, starts=job.starts)
        if outcome.result.database is not None and not outcome.result.database.checkpoints:
            raise TrialFailed(
                "no checkpoint ended within the window; say a longer `runtime:` or a shorter `checkpoint:`"
            )
        return outcome


def document(job: Job) -> dict[str, object]:
    """The engine's task for it."""
    return run_document(
        job.settings,
        job.endpoint,
        seed=job.seed,
        driver=job.driver,
        cpus=job.cpus,
        watch_pids=job.watch_pids,
        permission=job.permission,
        events=job.events,
    )


IOTAX = Iotax()
