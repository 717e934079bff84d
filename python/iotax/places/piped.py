"""A task whose pipes are at hand, be they a child's or a channel's."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Protocol

from iotax.engine import EngineError, event_of
from iotax.places.base import Event, Task

STOP_S = 3.0
"""Time that a task may take to end after its standard input closed."""
LOG_LINES_MAX = 200
_LOG_LINE_BYTES_MAX = 2_000
_PART_BYTES = 4096
_RENEWALS = 4
"""Renewals of a lease within its time."""
_NOT_STARTED = (126, 127)
"""A shell's exit status for a command that is not there, or is none (POSIX.1-2024, XCU 2.8.2)."""


class Reader(Protocol):
    """A process of asyncio or of AsyncSSH."""

    async def readuntil(self, separator: bytes) -> bytes: ...
    async def read(self, n: int) -> bytes: ...


class Piped(Task):
    """`about` begins sentences about it: `the load process`."""

    broken: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    """Errors of broken pipes."""

    def __init__(
        self,
        about: str,
        output: Reader,
        errors: Reader,
        *,
        lease_ns: int | None = None,
        on_log: Callable[[str], None] | None = None,
    ) -> None:
        self._about, self._output, self._on_log = about, output, on_log
        self._log: collections.deque[str] = collections.deque(maxlen=LOG_LINES_MAX)
        self._logging = asyncio.create_task(self._read_log(errors))
        self._renewing = asyncio.create_task(self._renew(lease_ns / 1e9 / _RENEWALS)) if lease_ns else None

    @property
    def log(self) -> str:
        return "\n".join(self._log)

    def send_line(self, line: bytes) -> None:
        self._write(line)

    async def event(self, within_s: float) -> Event:
        try:
            async with asyncio.timeout(within_s):
                line = await self._output.readuntil(b"\n")
        except TimeoutError:
            raise self._fault(EngineError("silent", f"{self._about} fell silent and was ended")) from None
        except asyncio.IncompleteReadError as cut:
            if not cut.partial or await self._exit(STOP_S) is None:
                raise self._fault(await self._ended()) from None
            line = cut.partial
        except asyncio.LimitOverrunError:
            raise self._fault(EngineError("malformed", f"{self._about} wrote a line without end")) from None
        except self.broken as error:
            raise self._fault(EngineError("lost", f"the connection was lost: {error}")) from error
        try:
            return event_of(line)
        except EngineError as error:
            raise self._fault(error) from error

    async def alive(self, wait_s: float = 0.0) -> bool:
        return await self._exit(wait_s) is None

    async def ending(self) -> str:
        return (await self._ended()).message

    async def end(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        try:
            await self._stop()
            await self._log_read()
        finally:
            self._logging.cancel()
            self._let_go()

    @abstractmethod
    def _write(self, line: bytes) -> None:
        """Raises nothing."""

    @abstractmethod
    async def _exit(self, within_s: float) -> int | str | None:
        """The exit status, or the name of the signal that ended it; None while it runs."""

    @abstractmethod
    async def _stop(self) -> None:
        """Closes its input; kills it if it still runs after STOP_S."""

    @abstractmethod
    def _let_go(self) -> None:
        """Output of its other pipes."""

    def _fault(self, error: EngineError) -> EngineError:
        """The error for callers."""
        return EngineError(error.kind, error.message, error.where, self.log)

    async def _ended(self) -> EngineError:
        await self._log_read()  # the reason may stand in its last words
        match await self._exit(STOP_S):
            case None:
                return EngineError("died", f"{self._about} closed its output without ending")
            case str(name):
                return EngineError("died", f"{self._about} was ended by {name}")
            case int(status) if status in _NOT_STARTED:
                said = self._log[-1].rpartition(": ")[2] if self._log else "the shell does not say why"
                return EngineError("missing", f"{self._about} cannot be started: {said}")
            case status:
                return EngineError("died", f"{self._about} ended with exit code {status} before its work was done")

    async def _log_read(self) -> None:
        await asyncio.wait([self._logging], timeout=STOP_S)

    async def _read_log(self, pipe: Reader) -> None:
        rest = b""
        with contextlib.suppress(*self.broken):
            while part := await pipe.read(_PART_BYTES):
                *lines, rest = (rest + part).split(b"\n")
                if len(rest) > _LOG_LINE_BYTES_MAX:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    self._say(line)
        if rest:
            self._say(rest)

    def _say(self, line: bytes) -> None:
        text = line[:_LOG_LINE_BYTES_MAX].decode(errors="replace")
        self._log.append(text)
        if self._on_log is not None:
            self._on_log(text)

    async def _renew(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            self.send({"command": "renew"})
