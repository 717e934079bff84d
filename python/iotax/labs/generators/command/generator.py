"""A command of the user's as a generator: started when the window is, its result read as by `iotax import`.

The command's own measurement must cover the window in which hosts are observed; its counts are then scaled to that
window's length. CPU belongs to the window alone, so both describe the same load as long as that is steady.
"""

from __future__ import annotations

import math
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path, PurePosixPath

from iotax.imports.formats import FORMATS, Format
from iotax.imports.measured import Measured
from iotax.imports.naming import PatternError
from iotax.imports.problems import Notes, Unreadable
from iotax.imports.table import given_columns
from iotax.labs.base import TrialFailed
from iotax.labs.generators.base import Elsewhere, HostJob, said_of
from iotax.records import CpuUse
from iotax.study import Settings
from iotax.study.command import Command
from iotax.trial import Checks, Direction, TrialResult, Window

_TOLERANCE = 0.02
"""Share of the window by which the command's measurement may miss its ends."""


class CommandGenerator(Elsewhere):
    name = "command"
    foreign = True
    released = True
    elsewhere = "a command loads paths of hosts; say `lab: {hosts: …}`"
    host_script = (resources.files("iotax.labs.generators.command") / "command.sh").read_text(encoding="utf-8")

    def host_job(self, job: HostJob) -> tuple[str, ...]:
        command = _command(job.settings)
        return command.filled(_values(job)), command.result

    def host_result(
        self,
        said: Sequence[str],
        settings: Settings,
        *,
        endpoint: str,
        cpu: CpuUse,
        window: Window,
    ) -> TrialResult:
        measured = _read(_command(settings), said_of(said, "RESULT"))
        try:
            [ran_s] = map(float, said_of(said, "RAN"))
        except ValueError:
            raise TrialFailed("the host did not say how long the command ran") from None
        _covers(measured, settings, 1e9 * ran_s)
        return result_of(measured, settings, endpoint=endpoint, cpu=cpu, window=window)


COMMAND = CommandGenerator()


def result_of(measured: Measured, settings: Settings, *, endpoint: str, cpu: CpuUse, window: Window) -> TrialResult:
    """What the command measured, as it would be of the window alone. Raises TrialFailed if it counts no I/Os."""
    if measured.unit != "I/O":
        raise TrialFailed(f"the command's result counts {measured.unit}s, not I/Os; import it with `iotax import`")
    share, load = window.duration_ns / measured.duration_ns, settings.load
    used = set(_command(settings).used())
    of_window = replace(
        measured,
        read=scaled(measured.read, share),
        write=scaled(measured.write, share),
        sync=None if measured.sync is None else scaled(measured.sync, share),
        duration_ns=window.duration_ns,
        workers=load.workers if "workers" in used else measured.workers,
        per_worker=load.outstanding if "outstanding" in used else measured.per_worker,
        rate_iops=load.rate_iops,
        series=(),
        cpu=(),
    )
    checks = Checks(errors=measured.errors, cpu_window_ns=window.duration_ns, clock=measured.program)
    return of_window.result([]).model_copy(
        update={"endpoint": endpoint, "window": window, "cpu": cpu, "checks": checks}
    )


def scaled(direction: Direction, share: float) -> Direction:
    """So many of these I/Os; their latencies stay."""
    counts, before, after = [], 0, 0
    for value, count in direction.histogram.counts:
        before += count
        part = round(before * share) - after
        after += part
        if part:
            counts.append((value, part))
    return direction.model_copy(
        update={
            "ios": round(direction.ios * share),
            "bytes": round(direction.bytes * share),
            "latency_sum_ns": round(direction.latency_sum_ns * share),
            "histogram": direction.histogram.model_copy(update={"counts": counts}),
        }
    )


def _command(settings: Settings) -> Command:
    assert settings.load.command is not None, "the rules require it"
    return settings.load.command


def _values(job: HostJob) -> dict[str, object]:
    """What the command's placeholders stand for."""
    load = job.settings.load
    access = load.accesses()[0]
    return {
        "device": shlex.quote(job.path),
        "seconds": math.ceil((load.warmup + load.runtime) / 1e9),
        "warmup": f"{load.warmup / 1e9:g}",
        "runtime": f"{load.runtime / 1e9:g}",
        "block_size": access.block_size,
        "read": f"{access.read:g}",
        "random": f"{access.random:g}",
        "outstanding": load.outstanding,
        "workers": load.workers,
        "threads": load.threads,
        "rate_iops": "" if load.rate_iops is None else f"{load.rate_iops:g}",
        "size": load.working_set,
        "offset": job.offset_bytes,
        "client": job.client,
        "seed": job.seed,
    }


def _read(command: Command, lines: Sequence[str]) -> Measured:
    """The one run that the result holds. Raises TrialFailed."""
    name = PurePosixPath(command.result).name or "standard output"
    with tempfile.TemporaryDirectory(prefix="iotax-result-") as folder:
        path = Path(folder, name)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        try:
            found = _format(command).read(path, Notes())
        except (Unreadable, PatternError) as problem:
            said = str(problem).replace(str(path), name)
            raise TrialFailed(f"the command's result: {said}", "\n".join(lines)[-2000:]) from None
    if len(found) != 1:
        raise TrialFailed(f"the command's result holds {len(found)} runs, and a trial is one", "\n".join(lines)[-2000:])
    return found[0]


def _format(command: Command) -> Format:
    found = FORMATS[command.format]
    if command.columns is None:
        return found
    return replace(found, columns=given_columns([f"{name}={title}" for name, title in command.columns.items()]))


def _covers(measured: Measured, settings: Settings, ran_ns: float) -> None:
    """Raises TrialFailed if the command may have measured another time than the window."""
    load, tolerance_ns = settings.load, _TOLERANCE * settings.load.runtime
    if (short_ns := load.warmup + load.runtime - ran_ns) > tolerance_ns:
        raise TrialFailed(
            f"the command ended {short_ns / 1e9:.1f} s before the window did; let it run for {{seconds}} s"
        )
    if (late_ns := ran_ns - measured.duration_ns - load.warmup) > tolerance_ns:
        raise TrialFailed(
            f"the command ran for {ran_ns / 1e9:.1f} s and measured {measured.duration_ns / 1e9:.1f} s of them, so it "
            f"may have begun {late_ns / 1e9:.1f} s after the window did; give it a longer `warmup:`, or let it "
            "measure all {seconds} s"
        )
