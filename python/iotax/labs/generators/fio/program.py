"""The program fio on this machine: finds it, checks what it can reach, and runs it."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from iotax.labs.base import Outcome, Progress, Step, TrialFailed
from iotax.labs.generators.fio import meter
from iotax.labs.generators.fio.job import Target, check_job, layout_job, run_job, verifies
from iotax.labs.generators.fio.output import read_output, result_of
from iotax.labs.proc import SETPRIV, ending_with_us
from iotax.study.model import Settings

_SILENCE_S = 45.0
"""Time that fio may take beyond its runtime, including its start and its output."""
_PASS_BYTES_PER_S = 20 << 20
"""Slower than this over the whole working set, fio counts as hung."""
_POLL_S = 0.02
_EDGE = 0.1
"""Share of the window at either end that the CPU readings leave out: fio does not say when exactly it begins."""
_LEAVE = "or leave it to iotax: `design: {exclude: [{protocol: …, generator: fio}]}`"


@dataclass(frozen=True)
class Fio:
    path: Path
    version: str
    engines: frozenset[str]


class NoFio(Exception):  # noqa: N818 - an outcome, not a bug
    """fio is missing or cannot reach the endpoint; says what to do."""


@functools.cache
def find_fio() -> Fio:
    """$IOTAX_FIO, else the one on PATH. Raises NoFio."""
    named = os.environ.get("IOTAX_FIO") or shutil.which("fio")
    if not named:
        raise NoFio("fio is not installed: `apt install fio`, or name the program in IOTAX_FIO")
    if shutil.which(SETPRIV) is None:
        raise NoFio(f"{SETPRIV} is not there: install it with `apt-get install util-linux`")
    try:
        version = subprocess.run([named, "--version"], capture_output=True, text=True, timeout=30, check=True)
        engines = subprocess.run([named, "--enghelp"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoFio(f"{named} does not run: {error}") from None
    return Fio(Path(named), version.stdout.strip(), frozenset(engines.stdout.split()))


def target_of(fio: Fio, protocol: str, endpoint: str, *, driver: str) -> Target:
    """How this fio reaches an endpoint. Raises NoFio."""
    match protocol:
        case "local":
            return _file(fio, endpoint.removeprefix("local:"), driver)
        case "iscsi":
            _need(fio, "libiscsi")
            return Target("libiscsi", (f"filename={escaped(endpoint)}",))
        case "nfs3" | "nfs4.1":
            raise NoFio(
                "fio's NFS engine runs in child processes, whose CPU escapes, and crashes on reads with current "
                f"libnfs: mount the export and name a file on it, {_LEAVE}"
            )
        case _:
            raise NoFio(
                f"fio has no engine for {protocol}: attach it through the kernel and name the block device, {_LEAVE}"
            )


def run_fio(
    fio: Fio,
    settings: Settings,
    target: Target,
    *,
    endpoint: str,
    seed: int,
    cpus: list[int],
    watch_pids: dict[str, int],
    progress: Progress,
) -> Outcome:
    """One trial's load. Raises TrialFailed."""
    load = settings.load
    job = run_job(settings, target, seed=seed, cpus=cpus)
    started_unix_ns = time.time_ns() + load.warmup
    with _Process(fio, job) as process:
        began_ns = time.monotonic_ns()
        pids = {"initiator": process.pid, **watch_pids}
        first_ns, last_ns = (began_ns + load.warmup + round(load.runtime * at) for at in (_EDGE, 1 - _EDGE))
        process.wait_until(first_ns)
        first = meter.read(pids)
        process.wait_until(last_ns)
        last = meter.read(pids)
        output = read_output(process.finish(began_ns + load.warmup + load.runtime + round(_SILENCE_S * 1e9)))
    cpu = meter.between(first, last, pids, window_ns=load.runtime)
    checked_bytes = None
    if verifies(settings):
        progress(Step("fio verifies"))
        passed = _run_pass(fio, settings, check_job(settings, target))
        checked_bytes = sum(each["read"]["io_bytes"] for each in passed["jobs"])
    result = result_of(
        output,
        settings,
        engine=target.engine,
        endpoint=endpoint,
        cpu=cpu,
        cpu_window_ns=last.at_ns - first.at_ns,
        checked_bytes=checked_bytes,
        started_unix_ns=started_unix_ns,
    )
    if result.ios and cpu.initiator is not None and not cpu.initiator.busy_ns:
        raise TrialFailed("fio did nothing while its CPU was read: it began late; ask for a longer `runtime:`")
    return Outcome(result, None, process.log)


def run_layout(fio: Fio, settings: Settings, target: Target, progress: Progress) -> None:
    """Writes the data to verify later. Raises TrialFailed."""
    progress(Step("fio writes what it will verify"))
    _run_pass(fio, settings, layout_job(settings, target))


def _run_pass(fio: Fio, settings: Settings, job: str) -> dict[str, Any]:
    within_s = _SILENCE_S + settings.working_set_bytes / _PASS_BYTES_PER_S
    with _Process(fio, job) as process:
        return read_output(process.finish(time.monotonic_ns() + round(within_s * 1e9)))


class _Process:
    """fio with its job on standard input, in a process group that is ended with it. It cannot outlive this process."""

    def __init__(self, fio: Fio, job: str) -> None:
        self.log = ""
        # fio leaves a state file in its folder if data are wrong.
        self._folder = tempfile.TemporaryDirectory(prefix="iotax-fio-")
        self._running = subprocess.Popen(
            ending_with_us([fio.path, "--output-format=json+", "-"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._folder.name,
            start_new_session=True,
        )
        pipe: IO[str] | None = self._running.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):
            pipe.write(job)
            pipe.close()
        self._running.stdin = None

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)
        for pipe in (self._running.stdout, self._running.stderr):
            if pipe is not None:
                pipe.close()
        self._running.wait()
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        return self._running.pid

    def wait_until(self, at_ns: int) -> None:
        """Returns early where fio ends."""
        while self._running.poll() is None and (left_ns := at_ns - time.monotonic_ns()) > 0:
            time.sleep(min(_POLL_S, left_ns / 1e9))

    def finish(self, deadline_ns: int) -> str:
        """fio's output. Raises TrialFailed if it failed or did not end."""
        try:
            output, self.log = self._running.communicate(timeout=max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9))
        except subprocess.TimeoutExpired:
            raise TrialFailed("fio did not end in time and was ended") from None
        if self._running.returncode:
            lines = (self.log + output).splitlines()
            said = [line for word in ("verify", "fio:") for line in lines if word in line]
            raise TrialFailed(f"fio failed: {said[0] if said else f'exit status {self._running.returncode}'}", self.log)
        return output


def _file(fio: Fio, path: str, driver: str) -> Target:
    engine = "io_uring" if driver != "epoll" and "io_uring" in fio.engines and _io_uring_allowed() else "libaio"
    return Target(engine, (f"filename={escaped(path)}", f"direct={int(_takes_direct(path))}"))


def _need(fio: Fio, engine: str) -> None:
    if engine not in fio.engines:
        raise NoFio(
            f"{fio.version} ({fio.path}) was built without its engine {engine}: name another in IOTAX_FIO, {_LEAVE}"
        )


def escaped(name: str) -> str:
    """fio splits names at colons."""
    return name.replace("\\", "\\\\").replace(":", "\\:")


def _io_uring_allowed() -> bool:
    with contextlib.suppress(OSError, ValueError):
        return int(Path("/proc/sys/kernel/io_uring_disabled").read_text(encoding="ascii")) == 0
    return True


def _takes_direct(path: str) -> bool:
    """Whether the file system gives unbuffered I/O."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True
