"""Other programs as children: pinned, waited for, ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from bench import clocks
from bench.load import Timing
from bench.sample import Usage

_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_STOP_S = 5.0


class UnavailableError(Exception):
    """A peer is not there, or did not come up; the message says why."""


class FailedError(UnavailableError):
    """A program that is there failed this time, or did not end; the next may succeed."""


def program(name: str, package: str) -> str:
    """The path of an installed program."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise UnavailableError(f"{name} is not installed (Debian package {package})")
    return found


def named(variable: str, what: str) -> Path:
    """The path that an environment variable gives."""
    value = os.environ.get(variable)
    if not value:
        raise UnavailableError(f"{variable} is not set: the path of {what}")
    path = Path(value)
    if not path.exists():
        raise UnavailableError(f"{variable} names {value}, which is not there")
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def run(*command: str | Path, seconds: float = 30) -> str:
    """Runs a command to its end and gives what it wrote. Raises FailedError where it failed."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise FailedError(f"{name} did not end within {seconds:g} s") from None
    if done.returncode:
        raise FailedError(f"{name} failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


@contextlib.contextmanager
def running(
    command: Sequence[str | Path], *, cpu: int, log: Path, pipe: bool = False, kill: bool = False
) -> Generator[subprocess.Popen[str]]:
    """A child pinned to `cpu`, its output in `log` (or, with `pipe`, to be read), ended with its whole group and its
    descendants."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            ["taskset", "--cpu-list", str(cpu), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipe else file,
            stderr=file,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # Some leave the group (fio's jobs), and once their parent is gone nobody knows whose they were.
        family = _held(clocks.descendants(process.pid))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for held in family:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(held, signal.SIGKILL)
            os.close(held)


def _held(processes: Sequence[int]) -> list[int]:
    """Descriptors of those that still run: a number may be another's by the time that it is used."""
    found = []
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            found.append(os.pidfd_open(process))
    return found


def wait_for_end(process: subprocess.Popen[str], name: str, seconds: float) -> None:
    """Raises FailedError where it does not end by itself."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise FailedError(f"{name} did not end within {seconds:g} s") from None


def wait_for_port(process: subprocess.Popen[str], port: int, log: Path, seconds: float = 20.0) -> None:
    """Until somebody listens there. Raises UnavailableError where nobody does."""

    wait_until(lambda: listens(port), process, log, f"{log.stem} does not listen", seconds)


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def wait_until(
    ready: Callable[[], bool], process: subprocess.Popen[str], log: Path, what: str, seconds: float = 20.0
) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        # One that has ended is asked once more: its last words may have come after the first look.
        has_ended = process.poll() is not None
        if (has_ended and not ready()) or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
            raise UnavailableError(f"{what}: {' '.join(said)}")
        time.sleep(0.05)


def measure_window(initiator: int, target: int | None, timing: Timing) -> Usage:
    """Waits out the warm-up and gives what was spent in the window after it."""
    time.sleep(timing.warmup_s)
    before = clocks.read(initiator, target)
    time.sleep(timing.window_s)
    return clocks.usage(before, clocks.read(initiator, target))


@contextlib.contextmanager
def parked(process: int) -> Generator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """A process stopped while it is not measured: one that polls would take a core from the others."""

    def signal_group(number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, number)

    @contextlib.contextmanager
    def awake() -> Generator[None]:
        signal_group(signal.SIGCONT)
        try:
            yield
        finally:
            signal_group(signal.SIGSTOP)

    signal_group(signal.SIGSTOP)
    try:
        yield awake
    finally:
        signal_group(signal.SIGCONT)
