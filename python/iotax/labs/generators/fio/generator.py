"""fio as a generator."""

from __future__ import annotations

from collections.abc import Sequence

from iotax.labs.base import CheckItem, Outcome, Progress, TrialFailed
from iotax.labs.generators.base import Generator, Job
from iotax.labs.generators.fio.job import Target, verifies
from iotax.labs.generators.fio.program import Fio, NoFio, find_fio, run_fio, run_layout, target_of
from iotax.study import Settings
from iotax.study.model import Load


class FioGenerator(Generator):
    """A thread for each worker, all on the processors of the load."""

    name = "fio"
    foreign = True

    def check(self, asked: Sequence[Settings], driver: str) -> list[CheckItem]:
        try:
            fio = find_fio()
            for protocol in dict.fromkeys(each.endpoint.protocol for each in asked):
                target_of(fio, protocol, "", driver=driver)
        except NoFio as missing:
            return [CheckItem("error", "fio", str(missing))]
        return [CheckItem("ok", "fio", f"{fio.version} ({fio.path})")]

    def threads(self, load: Load) -> int:
        return load.workers

    def needs(self, settings: Settings) -> str:
        """What it verifies."""
        return f"fio's, {settings.load.accesses()}, {settings.load.workers} workers" if verifies(settings) else ""

    def leaves(self, settings: Settings) -> str:
        return "fio's" if settings.load.writes else ""

    def lay_out(self, job: Job, progress: Progress) -> None:
        fio, target = _found(job)
        run_layout(fio, job.settings, target, progress)

    def run(self, job: Job, progress: Progress) -> Outcome:
        fio, target = _found(job)
        return run_fio(
            fio,
            job.settings,
            target,
            endpoint=job.endpoint,
            seed=job.seed,
            cpus=job.cpus,
            watch_pids=job.watch_pids,
            progress=progress,
        )


def _found(job: Job) -> tuple[Fio, Target]:
    try:
        fio = find_fio()
        return fio, target_of(fio, job.settings.endpoint.protocol, job.reached, driver=job.driver)
    except NoFio as missing:
        raise TrialFailed(str(missing)) from missing


FIO = FioGenerator()
