"""The host's end of a guest's control port: a script in, its lines and its exit status out.

The port is a device of its own: nothing of this runs over the network under test.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path

_LINE_BYTES_MAX = 64 << 20
_CHUNK_BYTES = 1 << 16
_RETRY_S = 0.05
_INPUT_BYTES_MAX = 32 << 10
_NUDGE_S = 3.0
_EMPTY = b"0 \n"


class AgentLost(Exception):  # noqa: N818 - an outcome, not a bug
    """The guest ended, or said nothing until the deadline."""


class StepFailed(Exception):  # noqa: N818 - an outcome, not a bug
    """A script in the guest ended with another status than 0; the message is what it said."""

    def __init__(self, status: int, said: str) -> None:
        self.status, self.said = status, said
        super().__init__(said.strip() or f"exit status {status}")


class Agent:
    """One guest's control port."""

    def __init__(self, path: Path, deadline_s: float) -> None:
        """Waits for QEMU to listen. Raises AgentLost."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._selector = selectors.DefaultSelector()
        self._buffer = bytearray()
        self._numbers = itertools.count(1)
        while True:
            try:
                self._socket.connect(str(path))
                break
            except OSError as error:
                if time.monotonic() > deadline_s:
                    self.close()
                    raise AgentLost("QEMU opened no control port") from error
                time.sleep(_RETRY_S)
        self._selector.register(self._socket, selectors.EVENT_READ)

    def ready(self, deadline_s: float) -> str:
        """Waits for the guest to be up; its kernel's release. Raises AgentLost."""
        while True:
            line = self._line(deadline_s)
            if line.startswith("@ready "):
                return line.removeprefix("@ready ")

    def start(self, script: str) -> str:
        """Sends a script; its number, to be given to `lines`."""
        number = str(next(self._numbers))
        encoded = base64.b64encode(script.encode()).decode()
        if len(encoded) > _INPUT_BYTES_MAX:
            raise ValueError("the script is too long for the control port")
        try:
            self._socket.sendall(f"{number} {encoded}\n".encode())
        except OSError as error:
            raise AgentLost("the control port is closed") from error
        return number

    def lines(self, number: str, each: Callable[[str], None], deadline_s: Callable[[], float]) -> None:
        """Hands on every line of a script to its end. Raises StepFailed and AgentLost."""
        while True:
            line = self._line(deadline_s())
            if line.startswith("@end "):
                _, ended, status, *said = line.split(" ")
                if ended != number:
                    continue
                if int(status):
                    raise StepFailed(int(status), base64.b64decode(said[0] if said else "").decode(errors="replace"))
                return
            if line:
                each(line)

    def run(self, script: str, timeout_s: float) -> list[str]:
        """Runs a script to its end; its lines. Raises StepFailed and AgentLost."""
        found: list[str] = []
        deadline_s = time.monotonic() + timeout_s
        self.lines(self.start(script), found.append, lambda: deadline_s)
        return found

    def counters(self, deadline_s: float) -> str:
        """A `COUNTERS` line. Raises AgentLost."""
        try:
            self._socket.sendall(b"0 @counters\n")
        except OSError as error:
            raise AgentLost("the control port is closed") from error
        while True:
            line = self._line(deadline_s)
            if line.startswith("COUNTERS "):
                return line

    def close(self) -> None:
        self._selector.close()
        with contextlib.suppress(OSError):
            self._socket.close()

    def _nudge(self) -> None:
        """An empty script, which the guest passes over. Its interrupt wakes a processor that lost a timer.

        Seen with -icount: a guest that sleeps on and on, with work to do.
        """
        with contextlib.suppress(OSError):
            self._socket.send(_EMPTY, socket.MSG_DONTWAIT)

    def _line(self, deadline_s: float) -> str:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _LINE_BYTES_MAX:
                raise AgentLost("the guest sent a line without end")
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise AgentLost("no answer in time")
            if not self._selector.select(min(left_s, _NUDGE_S)):
                self._nudge()
                continue
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except OSError as error:
                raise AgentLost("the control port broke") from error
            if not data:
                raise AgentLost("the control port was closed")
            self._buffer += data
        line = self._buffer[:end].decode(errors="replace").rstrip("\r")
        del self._buffer[: end + 1]
        return line
