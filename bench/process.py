"""Other programs as child processes: started on a core, waited for, ended."""

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
    """A peer is not installed or did not start; the message has the reason."""


class FailedError(UnavailableError):
    """An installed program failed or did not end this time; the next run may succeed."""


def program(name: str, package: str) -> str:
    """The path of an installed program."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise UnavailableError(f"{name} is not installed (Debian package {package})")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def run(*command: str | Path, seconds: float = 30) -> str:
    """Runs a command to its end and returns its output. Raises FailedError if it failed."""
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
    """Runs a child pinned to `cpu`, with its output in `log` or, with `pipe`, in a pipe. At the end, its process group
    and its descendants are ended."""
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
        # Some descendants leave the group (fio's jobs). Once their parent is gone, they can no longer be found.
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
    """pidfds of the processes that still run, because a process id may be reused before it is signalled."""
    found = []
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            found.append(os.pidfd_open(process))
    return found


def wait_for_end(process: subprocess.Popen[str], name: str, seconds: float) -> None:
    """Raises FailedError if the process does not end by itself."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise FailedError(f"{name} did not end within {seconds:g} s") from None


def wait_for_port(process: subprocess.Popen[str], port: int, log: Path, seconds: float = 20.0) -> None:
    """Waits until a server listens on the port. Raises UnavailableError if none does."""

    wait_until(lambda: listens(port), process, log, f"{log.stem} does not listen", seconds)


def listens(port: int) -> bool:
    """Whether a server accepts connections on the port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def wait_until(
    ready: Callable[[], bool], process: subprocess.Popen[str], log: Path, what: str, seconds: float = 20.0
) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        # Check a process that has ended once more: its last output may have come after the first check.
        has_ended = process.poll() is not None
        if (has_ended and not ready()) or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
            raise UnavailableError(f"{what}: {' '.join(said)}")
        time.sleep(0.05)


def measure_window(initiator: int, target: int | None, timing: Timing) -> Usage:
    """Waits for the warm-up, and returns the usage in the window after it."""
    time.sleep(timing.warmup_s)
    before = clocks.read(initiator, target)
    time.sleep(timing.window_s)
    return clocks.usage(before, clocks.read(initiator, target))


@contextlib.contextmanager
def parked(process: int) -> Generator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """Stops a process while it is not measured; a polling process would take a core from the others."""

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
