"""Stops a process and lets it continue, even if the process that stopped it is gone.

A second process is armed first: it sends SIGCONT as soon as its pipe closes, which happens when iotax ends in any way,
or when a stop outlasts its lease. It runs this file with only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_ARMED = b"armed\n"
_STOPS, _GOES_ON = b"s", b"g"
"""Commands to the second process."""
_ARM_S = 30.0
_END_S = 30.0


class Freezer:
    """Stops one process. Raises OSError if it is gone before it is stopped."""

    def __init__(self, pid: int, lease_s: float) -> None:
        """`lease_s`: how long it may stand still at a time, should we hang."""
        command = [sys.executable, "-I", "-S", str(Path(__file__)), str(pid), str(lease_s)]
        self._process = os.pidfd_open(pid)
        try:
            # A session of its own: no interrupt from a terminal reaches it.
            self._guard = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
            )
        except OSError:
            os.close(self._process)
            raise
        try:
            self._wait_until_armed()
        except BaseException:
            self.close()
            raise

    def _wait_until_armed(self) -> None:
        out = self._guard.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], _ARM_S)
        if not ready or out.readline() != _ARMED:
            raise OSError("the process that would undo the event did not come up")

    def begin(self) -> None:
        """Raises OSError as well if the stop could not be undone: nothing is stopped then."""
        self._tell(_STOPS)
        signal.pidfd_send_signal(self._process, signal.SIGSTOP)

    def end(self) -> None:
        """A process that is gone needs no undoing."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGCONT)
        with contextlib.suppress(OSError):
            self._tell(_GOES_ON)

    def _tell(self, word: bytes) -> None:
        told = self._guard.stdin
        assert told is not None
        told.write(word)

    def close(self) -> None:
        if self._process < 0:
            return
        self.end()
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._guard.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        os.close(self._process)
        self._process = -1


def _guard(pid: int, lease_s: float) -> None:
    for each in _IGNORED:
        signal.signal(each, signal.SIG_IGN)
    process = os.pidfd_open(pid)
    os.write(1, _ARMED)
    stopped = False
    while True:
        ready, _, _ = select.select([0], [], [], lease_s if stopped else None)
        # Whoever tells of an end has ended the stop, and may have started another by now.
        if ready and (told := os.read(0, 1)):
            stopped = told == _STOPS
            continue
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGCONT)
        if ready:
            return
        stopped = False


if __name__ == "__main__":
    _guard(int(sys.argv[1]), float(sys.argv[2]))
