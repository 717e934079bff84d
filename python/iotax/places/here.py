"""This machine: commands are children of ours, each in a session of its own.

A Ctrl-C of the terminal reaches only us, and we end a child's whole group. Should we be killed, a child sees its
standard input close and ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import signal
from collections.abc import Callable, Generator
from pathlib import Path

from iotax.engine import EngineError
from iotax.places.agent import Group, group, started
from iotax.places.base import COMMAND_S, Binary, Event, HostFault, Place, last_words
from iotax.places.host import ReachedHost
from iotax.places.piped import STOP_S, Piped

_LINE_BYTES_MAX = 64 << 20
"""A result with full histograms is about 100 KiB; longer lines are not results."""
_HOST_STOP_S = 60.0
"""Time that a host's script may take to end after its input closed: it may have paths to take down."""
_KEPT_BYTES = 64 << 20
"""Bytes kept of a command's output, from its end."""


class Here(Place):
    @property
    def name(self) -> str:
        return "this machine"

    async def install(self, binary: Binary) -> str:
        return shlex.quote(str(binary.path))

    async def start(self, command: str, document: Event, *, on_log: Callable[[str], None] | None = None) -> Child:
        about = f"the {shlex.split(command)[-1]} process"
        child = await _child(about, command, None, document.get("lease_ns"), on_log)
        child.send(document)
        return child

    async def run(self, command: str, *, given: str = "", within_s: float = COMMAND_S) -> str:
        return await _run(command, None, given, within_s)


HERE = Here()


class LocalHost(ReachedHost):
    """This machine as a host of a study: commands run in our home, as a login's do, and nothing needs SSH."""

    async def run(self, command: str, *, given: str = "", within_s: float = COMMAND_S) -> str:
        with self._faults():
            return await _run(command, Path.home(), given, within_s)

    async def ask(self, command: str, given: str, within_s: float, keep_bytes: int) -> tuple[int | None, str]:
        with self._faults():
            status, output, _ = await _asked(command, Path.home(), given, within_s, keep_bytes, together=True)
        return None if status is None or status < 0 else status, output.decode(errors="replace")

    async def _begin(self, command: str, lease_ns: int | None, on_log: Callable[[str], None] | None) -> Piped:
        with self._faults():
            return await _child("the engine there", command, Path.home(), lease_ns, on_log, self.name)

    async def close(self) -> None:
        self._installed = ""

    @contextlib.contextmanager
    def _faults(self) -> Generator[None]:
        """Errors raised within belong to this host."""
        try:
            yield
        except EngineError as error:
            raise HostFault(self.name, error.message, error.kind) from error

    async def _reach(self) -> None:
        pass

    async def _put(self, binary: Binary, path: str) -> None:
        await asyncio.to_thread(shutil.copyfile, binary.path, Path.home() / path)


async def _child(
    about: str,
    command: str,
    folder: Path | None,
    lease_ns: int | None,
    on_log: Callable[[str], None] | None,
    host: str = "",
) -> Child:
    """Raises EngineError."""
    try:
        process = group(f"exec {command}", folder)
    except OSError as error:
        raise EngineError("missing", f"sh cannot be started: {error.strerror}") from error
    try:
        await process.connect(_LINE_BYTES_MAX)
    except BaseException:
        process.end()
        process.let_go()
        raise
    return Child(about, process, lease_ns, on_log, host)


async def _run(command: str, folder: Path | None, given: str, within_s: float) -> str:
    """Raises EngineError."""
    try:
        status, output, said = await _asked(command, folder, given, within_s, _KEPT_BYTES, together=False)
    except TimeoutError:
        raise EngineError("lost", f"{command.split(maxsplit=1)[0]}: no answer in time") from None
    if status:
        raise EngineError("io", last_words(command, (said or output).decode(errors="replace"), status))
    return output.decode(errors="replace")


async def _asked(
    command: str, folder: Path | None, given: str, within_s: float, keep_bytes: int, *, together: bool
) -> tuple[int | None, bytes, bytes]:
    """Exit status, output and standard error. Raises EngineError if it cannot start, TimeoutError."""
    child = await started(command, folder, together=together, keep_bytes=keep_bytes)
    if isinstance(child, str):
        raise EngineError("missing", child)
    try:
        child.write(given.encode())
        child.close_input()
        async with asyncio.timeout(within_s):
            await child.closed()
            status = await child.process.wait()
    finally:
        child.kill()
    return status, bytes(child.output), bytes(child.errors)


class Child(Piped):
    def __init__(
        self,
        about: str,
        process: Group,
        lease_ns: int | None,
        on_log: Callable[[str], None] | None,
        host: str = "",
    ) -> None:
        """`host` is this machine's name if it is one of several."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        super().__init__(about, process.stdout, process.stderr, lease_ns=lease_ns, on_log=on_log)
        self._process, self._entry = process, process.stdin
        self._stopped, self._host = False, host

    @property
    def pid(self) -> int:
        return self._process.pid

    def _write(self, line: bytes) -> None:
        if not self._entry.is_closing():
            self._entry.write(line)

    async def _exit(self, within_s: float) -> int | str | None:
        code = await self._process.wait(within_s) if within_s > 0 else self._process.returncode
        return signal.Signals(-code).name if code is not None and code < 0 else code

    async def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        try:
            self._entry.close()
            await self._exit(_HOST_STOP_S if self._host else STOP_S)
        finally:
            self._process.end()

    def _fault(self, error: EngineError) -> EngineError:
        if not self._host:
            return super()._fault(error)
        return HostFault(self._host, str(error), error.kind, self.log)

    def _let_go(self) -> None:
        self._process.let_go()
