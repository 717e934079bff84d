"""fio as a generator."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from iotax.labs.base import CheckItem, Outcome, Progress, TrialFailed
from iotax.labs.generators.base import Generator, HostJob, Job, said_of
from iotax.labs.generators.fio.histograms import directions, step_ms
from iotax.labs.generators.fio.job import Target, groups, logged_job, run_job, verifies
from iotax.labs.generators.fio.output import raise_errors, read_output, result_from, result_of
from iotax.labs.generators.fio.program import Fio, NoFio, escaped, find_fio, run_fio, run_layout, target_of
from iotax.records import CpuUse
from iotax.study import Settings
from iotax.study.model import Load
from iotax.trial import TrialResult, Window

_GUEST_ENGINE = "io_uring"


class FioGenerator(Generator):
    """A thread for each worker, all on the processors of the load."""

    name = "fio"
    foreign = True
    guest_program = ("fio", "fio")
    host_script = (resources.files("iotax.labs.generators.fio") / "fio.sh").read_text(encoding="utf-8")

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
        """Directions that it verifies."""
        return f"fio's, {settings.load.accesses()}, {settings.load.workers} workers" if verifies(settings) else ""

    def leaves(self, settings: Settings) -> str:
        return "fio's" if settings.load.writes else ""

    def lay_out(self, job: Job, progress: Progress) -> None:
        fio, target = _found(job)
        run_layout(fio, job.settings, target, progress)

    def guest_job(self, settings: Settings, path: str, *, direct: bool, seed: int) -> str:
        target = Target(_GUEST_ENGINE, (f"filename={path}", f"direct={int(direct)}"))
        return run_job(settings, target, seed=seed, cpus=[])

    def guest_result(
        self, output: str, settings: Settings, *, endpoint: str, cpu_window_ns: int, started_unix_ns: int
    ) -> TrialResult:
        return result_of(
            read_output(output),
            settings,
            engine=_GUEST_ENGINE,
            endpoint=endpoint,
            cpu=CpuUse([]),
            cpu_window_ns=cpu_window_ns,
            checked_bytes=None,
            started_unix_ns=started_unix_ns,
        )

    def host_job(self, job: HostJob) -> tuple[str, ...]:
        target = Target(job.found["ENGINE"], (f"filename={escaped(job.path)}", f"direct={job.found['DIRECT']}"))
        text = logged_job(
            job.settings,
            target,
            seed=job.seed,
            offset_bytes=job.offset_bytes,
            step_ms=step_ms(job.settings.load.runtime),
            longest_s=job.longest_s,
        )
        return (text,)

    def host_result(
        self,
        said: Sequence[str],
        settings: Settings,
        *,
        endpoint: str,
        cpu: CpuUse,
        window: Window,
    ) -> TrialResult:
        output = read_output("\n".join(said_of(said, "JSON")))
        raise_errors(output)
        begin_ms, end_ms = window.start_unix_ns / 1e6, (window.start_unix_ns + window.duration_ns) / 1e6
        return result_from(
            directions(said_of(said, "ROW"), groups(settings), begin_ms, end_ms),
            settings,
            version=str(output["fio version"]),
            engine=str(output["jobs"][0]["job options"].get("ioengine") or output["global options"]["ioengine"]),
            endpoint=endpoint,
            cpu=cpu,
            cpu_window_ns=window.duration_ns,
            checked_bytes=None,
            window=window,
        )

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
