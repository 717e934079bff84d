"""A running QEMU's monitor: commands in, answers and events out (QEMU Machine Protocol)."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1 << 16
_ANSWER_BYTES_MAX = 8 << 20


class QmpError(Exception):
    """QEMU refused a command; the message is its own."""


class QmpLost(Exception):  # noqa: N818 - an outcome, not a bug
    """QEMU ended, or sent nothing until the deadline."""


class Qmp:
    """One monitor, connected."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        """Raises QmpLost if nobody answers."""
        self._buffer = bytearray()
        self._events: list[dict[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_s)
        deadline_s = time.monotonic() + timeout_s
        try:
            self._socket.connect(str(path))
            self._next(deadline_s)  # the greeting
            self.execute("qmp_capabilities", timeout_s=timeout_s)
        except OSError as error:
            self.close()
            raise QmpLost(f"QEMU's monitor does not answer: {error.strerror or error}") from error
        except QmpLost:
            self.close()
            raise

    def execute(self, command: str, arguments: dict[str, Any] | None = None, *, timeout_s: float) -> Any:
        """The result of the command. Raises QmpError and QmpLost."""
        deadline_s = time.monotonic() + timeout_s
        try:
            self._socket.sendall(json.dumps({"execute": command, "arguments": arguments or {}}).encode() + b"\n")
        except OSError as error:
            raise QmpLost("QEMU closed its monitor") from error
        while True:
            said = self._next(deadline_s)
            if "event" in said:
                self._events.append(said)
            elif "error" in said:
                raise QmpError(str(said["error"].get("desc", said["error"])))
            elif "return" in said:
                return said["return"]

    def unplug(self, device: str, *, timeout_s: float) -> None:
        """Asks the guest to let go of a device, and waits until it has. Raises QmpError and QmpLost."""
        deadline_s = time.monotonic() + timeout_s
        self.execute("device_del", {"id": device}, timeout_s=timeout_s)
        while True:
            for event in self._events:
                if event["event"] == "DEVICE_DELETED" and event["data"].get("device") == device:
                    self._events.remove(event)
                    return
            said = self._next(deadline_s)
            if "event" in said:
                self._events.append(said)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def _next(self, deadline_s: float) -> dict[str, Any]:
        while (end := self._buffer.find(b"\n")) < 0:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise QmpLost("QEMU's monitor did not answer in time")
            if len(self._buffer) > _ANSWER_BYTES_MAX:
                raise QmpLost("QEMU's monitor sent a line without end")
            self._socket.settimeout(left_s)
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except TimeoutError as error:
                raise QmpLost("QEMU's monitor did not answer in time") from error
            except OSError as error:
                raise QmpLost("QEMU's monitor broke") from error
            if not data:
                raise QmpLost("QEMU closed its monitor")
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            return json.loads(line)
        except ValueError as error:
            raise QmpLost(f"QEMU's monitor wrote no JSON: {line[:80]!r}") from error
