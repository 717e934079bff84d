"""The engine as a process: a document in, JSON lines out (docs/reference/engine.md).

Two threads read the child's output and its log, so that the caller can wait with a deadline and Ctrl-C is heard. The
child has a session of its own: a Ctrl-C of the terminal reaches only us, and we end the child's whole group. Should we
be killed, the child sees its standard input close and ends by itself.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

LINE_BYTES_MAX = 64 << 20
"""A result with full histograms is about 100 KiB; what is longer than this is no result."""
LOG_LINES_MAX = 200
LOG_LINE_BYTES_MAX = 2_000
STOP_S = 3.0
"""How long an engine may take to end after its standard input closed."""


class EngineError(Exception):
    """The engine reported an error, died, fell silent, or spoke nonsense.

    `kind` is one of the engine's own kinds, or `died`, `silent`, `malformed`, `missing`.
    """

    def __init__(self, kind: str, message: str, where: str = "", log: str = "") -> None:
        self.kind, self.message, self.where, self.log = kind, message, where, log
        super().__init__(f"{message} ({where})" if where else message)


def find_engine() -> Path:
    """$IOTAX_ENGINE, else the checkout's release build, else the one installed beside Python, else the one on PATH."""
    if named := os.environ.get("IOTAX_ENGINE"):
        if not os.access(named, os.X_OK):
            raise EngineError("missing", f"IOTAX_ENGINE names {named}, which is no program")
        return Path(named)
    checkout = Path(__file__).resolve().parents[2]
    candidates = [Path(sys.executable).parent / "iotax-engine"]
    if (checkout / "Cargo.toml").is_file():
        candidates.insert(0, checkout / "target" / "release" / "iotax-engine")
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    if found := shutil.which("iotax-engine"):
        return Path(found)
    raise EngineError(
        "missing",
        "iotax-engine is not there: build it with `cargo build --release -p iotax-engine`, or name it in IOTAX_ENGINE",
    )


def engine_version(program: Path) -> str:
    """What the program says of itself; empty when it does not."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


class Engine:
    """One running engine process. `on_log` hears each line of its standard error, on a thread of its own."""

    def __init__(
        self,
        program: Path,
        command: str,
        document: dict[str, Any],
        *,
        on_log: Callable[[str], None] | None = None,
    ) -> None:
        self._command, self._on_log = command, on_log
        self._events: queue.Queue[dict[str, Any] | EngineError | None] = queue.Queue()
        self._log: collections.deque[str] = collections.deque(maxlen=LOG_LINES_MAX)
        try:
            self._process = subprocess.Popen(
                [program, command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError("missing", f"{program} cannot be started: {error.strerror}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin = self._process.stdin
        self._threads = [
            threading.Thread(target=self._read_events, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_log, args=(self._process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self.send(document)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """The last lines of its standard error."""
        return "\n".join(self._log)

    def alive(self, wait_s: float = 0.0) -> bool:
        """Whether it goes on; `wait_s` is granted to one that was killed, until the system has ended it."""
        if wait_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
        return self._process.poll() is None

    def send(self, document: dict[str, Any]) -> None:
        """One line in. A child that is gone is noticed by the next `event`, which knows why."""
        with contextlib.suppress(OSError):
            self._stdin.write(json.dumps(document).encode() + b"\n")
            self._stdin.flush()

    def event(self, deadline_s: float) -> dict[str, Any]:
        """The next line, by `deadline_s` on the monotonic clock.

        Raises EngineError for an error line, for the end of the process, and for silence.
        """
        try:
            event = self._events.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            raise EngineError(
                "silent", f"the {self._command} process fell silent and was ended", log=self.log
            ) from None
        if event is None:
            self._events.put(None)
            raise EngineError("died", self.ending(), log=self.log)
        if isinstance(event, EngineError):
            raise EngineError(event.kind, event.message, event.where, self.log)
        return event

    def expect(self, name: str, deadline_s: float) -> dict[str, Any]:
        """The next event of that name; others are passed over, as a reader of this interface must."""
        while True:
            event = self.event(deadline_s)
            if event["event"] == name:
                return event

    def close(self) -> None:
        """Ends the process: asked first, then by force, with whatever it started."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for thread in self._threads:
                thread.join(STOP_S)
            for pipe in (self._process.stdout, self._process.stderr):
                assert pipe is not None
                pipe.close()

    def ending(self) -> str:
        """How a process that stopped speaking came to its end."""
        self._threads[1].join(STOP_S)  # the reason may stand in its last words
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            return f"the {self._command} process closed its output without ending"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"the {self._command} process was ended by {signal.Signals(-code).name}"
        return f"the {self._command} process ended with exit code {code} before its work was done"

    def _read_events(self, pipe: IO[bytes]) -> None:
        while line := pipe.readline(LINE_BYTES_MAX):
            try:
                self._events.put(event_of(line))
            except EngineError as error:
                self._events.put(error)
        self._events.put(None)

    def _read_log(self, pipe: IO[bytes]) -> None:
        while line := pipe.readline(LOG_LINE_BYTES_MAX):
            text = line.decode(errors="replace").rstrip("\n")
            self._log.append(text)
            if self._on_log is not None:
                self._on_log(text)


def event_of(line: bytes) -> dict[str, Any]:
    """What a line says, whatever process or host it came from. Raises EngineError for an error line, and for none."""
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        quoted = line[:80].decode(errors="replace").strip()
        raise EngineError("malformed", f"the engine wrote a line that is no event: {quoted!r}")
    if event["event"] == "error":
        raise EngineError(
            str(event.get("kind", "internal")), str(event.get("message", "")), str(event.get("where", ""))
        )
    return event
