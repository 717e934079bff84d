"""A guest of the vm lab, behind its control port: a script in, its lines and its exit status out.

The port is a device of its own: nothing of this runs over the network under test. It carries one script's lines at a
time; silent scripts run beside a task: one sends to it, one ends it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from iotax.engine import EngineError, event_of
from iotax.places.base import Binary, Event, Place, Task, line_of

ENGINE = "/opt/iotax/run"
"""Path in a guest's image."""
_STEP_S = 60.0
"""Time limit of a script in an emulated guest."""
_LINE_BYTES_MAX = 64 << 20
_RETRY_S = 0.05
_INPUT_BYTES_MAX = 32 << 10
_NUDGE_S = 3.0
_EMPTY = b"0 \n"
_DOCUMENTS = "/run/documents"
"""A pipe that the task's shell holds open at both ends: a task reads on until it is ended."""
_PID = "/run/task.pid"
_STOP_S = 10.0
"""Time limit for the end of an emulated engine."""


class GuestLost(EngineError):  # noqa: N818 - an outcome, not a bug
    """The guest ended, or sent nothing until the deadline."""

    def __init__(self, message: str) -> None:
        super().__init__("lost", message)


class StepFailed(EngineError):  # noqa: N818 - an outcome, not a bug
    """A script in the guest ended with another status than 0; the message is its output."""

    def __init__(self, status: int, said: str) -> None:
        self.status, self.said = status, said
        super().__init__("io", said.strip() or f"exit status {status}")


Explain: TypeAlias = Callable[[GuestLost], Awaitable[EngineError]]


async def _as_it_is(lost: GuestLost) -> EngineError:
    return lost


class Port(Place):
    """One guest's control port. Made by `connect`.

    `explain` says more of a guest that was lost than that it was. `counts_time`: its time is that of its instructions.
    """

    def __init__(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, explain: Explain = _as_it_is
    ) -> None:
        self._name, self._reader, self._writer, self.explain = name, reader, writer, explain
        self.counts_time = False
        self._numbers = itertools.count(1)
        self._running: set[str] = set()
        """Scripts that were sent and have not ended."""

    @classmethod
    async def connect(cls, name: str, path: Path, within_s: float) -> Port:
        """Waits for QEMU to listen. Raises GuestLost."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + within_s
        while True:
            try:
                return cls(name, *await asyncio.open_unix_connection(path, limit=_LINE_BYTES_MAX))
            except OSError as error:
                if loop.time() > deadline_s:
                    raise GuestLost("QEMU opened no control port") from error
            await asyncio.sleep(_RETRY_S)

    @property
    def name(self) -> str:
        return self._name

    @property
    def leased(self) -> bool:
        return False  # whatever closes the port ends the machine

    @property
    def drifts(self) -> bool:
        return self.counts_time

    async def ready(self, within_s: float) -> str:
        """Waits for the guest to be up; its kernel's release. Raises EngineError."""
        return (await self._line_of("@ready ", within_s)).removeprefix("@ready ")

    async def install(self, binary: Binary) -> str:
        """The image was built with it."""
        del binary
        return ENGINE

    async def start(self, command: str, document: Event, *, on_log: Callable[[str], None] | None = None) -> Task:
        del on_log  # standard error of a script comes with its end
        script = (
            f"rm -f {_DOCUMENTS}; mkfifo {_DOCUMENTS}; exec 4<>{_DOCUMENTS}; {_printed(line_of(document))} >&4; "
            f"sh -c 'echo $$ >{_PID}; exec \"$@\"' task {command} <&4"
        )
        return _Script(self, await self.script(script))

    async def run(self, command: str, *, given: str = "", within_s: float = _STEP_S) -> str:
        lines: list[str] = []
        script = f"printf %s {shlex.quote(given)} | {{ {command}\n}}" if given else command
        await self.lines(script, lines.append, within_s)
        return "".join(f"{line}\n" for line in lines)

    async def lines(self, script: str, each: Callable[[str], None], within_s: float) -> None:
        """Hands on the lines of a script as they come, to its end. Raises EngineError."""
        loop = asyncio.get_running_loop()
        number, until_s = await self.script(script), loop.time() + within_s
        while (line := await self.line(number, until_s - loop.time())) is not None:
            each(line)

    async def counters(self, within_s: float) -> str:
        """A `COUNTERS` line, without starting a program. Raises EngineError."""
        await self._write(b"0 @counters\n")
        return await self._line_of("COUNTERS ", within_s)

    async def clock(self, within_s: float) -> int:
        """The guest's time, ns, without starting a program. Raises EngineError."""
        await self._write(b"0 @clock\n")
        seconds, _, micros = (await self._line_of("CLOCK ", within_s)).removeprefix("CLOCK ").partition(".")
        return int(seconds) * 1_000_000_000 + int(micros) * 1000

    async def script(self, script: str) -> str:
        """Sends a script; its number, to be given to `line`. Raises EngineError."""
        number = str(next(self._numbers))
        encoded = base64.b64encode(script.encode()).decode()
        if len(encoded) > _INPUT_BYTES_MAX:
            raise ValueError("the script is too long for the control port")
        self._running.add(number)
        await self._write(f"{number} {encoded}\n".encode())
        return number

    async def idle(self, within_s: float) -> None:
        """Waits until all scripts have ended, whatever they say. Raises EngineError."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while self._running:
            await self._line(until_s - loop.time())

    async def line(self, number: str, within_s: float) -> str | None:
        """The next line of a script, None after its last. Raises EngineError, StepFailed where the script failed."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while True:
            line = await self._line(until_s - loop.time())
            if line.startswith("@end "):
                _, ended, status, *said = line.split(" ")
                if ended != number:
                    continue
                if int(status):
                    raise StepFailed(int(status), base64.b64decode(said[0] if said else "").decode(errors="replace"))
                return None
            if line:
                return line

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _line_of(self, begins: str, within_s: float) -> str:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while not (line := await self._line(until_s - loop.time())).startswith(begins):
            pass
        return line

    async def _line(self, within_s: float) -> str:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        left_s = within_s
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, min(left_s, _NUDGE_S))):
                        line = await self._reader.readuntil(b"\n")
                        text = line.decode(errors="replace").rstrip("\r\n")
                        if text.startswith("@end "):
                            self._running.discard(text.split(" ")[1])
                        return text
                if (left_s := until_s - loop.time()) <= 0:
                    break
                # An empty script, which the guest passes over. Its interrupt wakes a processor that lost a timer: seen
                # with -icount, a guest that sleeps on and on, with work to do.
                self._writer.write(_EMPTY)
        except asyncio.IncompleteReadError:
            raise await self.explain(GuestLost("the control port was closed")) from None
        except asyncio.LimitOverrunError:
            raise await self.explain(GuestLost("the guest sent a line without end")) from None
        except OSError as error:
            raise await self.explain(GuestLost("the control port broke")) from error
        raise await self.explain(GuestLost("no answer in time"))

    async def _write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise await self.explain(GuestLost("the control port is closed")) from error


class _Script(Task):
    """A task in a guest, whose output is a script's."""

    def __init__(self, port: Port, number: str) -> None:
        self._port, self._number = port, number
        self._sending: set[asyncio.Task[str]] = set()
        self._end: EngineError | None = None

    @property
    def log(self) -> str:
        return self._end.log if self._end else ""

    async def alive(self, wait_s: float = 0.0) -> bool:
        del wait_s
        return self._end is None

    async def ending(self) -> str:
        return self._end.message if self._end else "the engine in the guest goes on"

    def send_line(self, line: bytes) -> None:
        sending = asyncio.create_task(self._port.script(f"{_printed(line)} >{_DOCUMENTS}"))
        self._sending.add(sending)
        sending.add_done_callback(self._sent)

    async def event(self, within_s: float) -> Event:
        if self._end is not None:
            raise self._end
        try:
            line = await self._port.line(self._number, within_s)
        except EngineError as error:
            failed = isinstance(error, StepFailed)
            name = self._port.name
            self._end = EngineError("died", f"the engine in the {name} ended: {error}") if failed else error
            raise self._end from error
        if line is None:
            self._end = EngineError("died", f"the engine in the {self._port.name} ended before its work was done")
            raise self._end
        return event_of(line.encode())

    async def clock(self, within_s: float) -> tuple[int, int | None]:
        # A script for the engine would be as slow as starting a program.
        return await self._port.clock(within_s), None

    async def end(self) -> None:
        if self._end is not None:
            return
        self._end = EngineError("died", f"the engine in the {self._port.name} was ended")
        with contextlib.suppress(EngineError):
            await self._port.script(f"kill $(cat {_PID})")
            # On a busy host the engine may end before the program that ends it runs, which must not hit the next one.
            await self._port.idle(_STOP_S)

    def _sent(self, sending: asyncio.Task[str]) -> None:
        """A guest that is gone is noticed by the next `event`."""
        self._sending.discard(sending)
        if not sending.cancelled():
            sending.exception()


def _printed(line: bytes) -> str:
    return f"printf '%s\\n' {shlex.quote(line.decode().rstrip())}"
