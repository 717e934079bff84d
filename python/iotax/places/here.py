"""This machine: commands are children of ours, each in a session of its own.

A Ctrl-C of the terminal reaches only us, and we end a child's whole group. Should we be killed, a child sees its
standard input close and ends by itself.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import Callable

from iotax.engine import EngineError
from iotax.places.agent import Group, group, started
from iotax.places.base import COMMAND_S, Binary, Event, Place, last_words
from iotax.places.piped import STOP_S, Piped

_LINE_BYTES_MAX = 64 << 20
"""A result with full histograms is about 100 KiB; what is longer than this is no result."""
_KEPT_BYTES = 64 << 20
"""Of what a command prints; of more, its end."""


class Here(Place):
    @property
    def name(self) -> str:
        return "this machine"

    async def install(self, binary: Binary) -> str:
        return shlex.quote(str(binary.path))

    async def start(self, command: str, document: Event, *, on_log: Callable[[str], None] | None = None) -> Child:
        try:
            process = group(f"exec {command}")
        except OSError as error:
            raise EngineError("missing", f"sh cannot be started: {error.strerror}") from error
        try:
            await process.connect(_LINE_BYTES_MAX)
        except BaseException:
            process.end()
            process.let_go()
            raise
        child = Child(command, process, document.get("lease_ns"), on_log)
        child.send(document)
        return child

    async def run(self, command: str, *, given: str = "", within_s: float = COMMAND_S) -> str:
        child = await started(command, keep_bytes=_KEPT_BYTES)
        if isinstance(child, str):
            raise EngineError("missing", child)
        try:
            child.write(given.encode())
            child.close_input()
            async with asyncio.timeout(within_s):
                await child.closed()
                status = await child.process.wait()
        except TimeoutError:
            raise EngineError("lost", f"{command.split(maxsplit=1)[0]}: no answer in time") from None
        finally:
            child.kill()
            child.process.let_go()
        output, said = bytes(child.output), bytes(child.errors)
        if status:
            message = last_words(command, (said or output).decode(errors="replace"), status)
            raise EngineError("io", message)
        return output.decode(errors="replace")


HERE = Here()


class Child(Piped):
    def __init__(
        self, command: str, process: Group, lease_ns: int | None, on_log: Callable[[str], None] | None
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        about = f"the {shlex.split(command)[-1]} process"
        super().__init__(about, process.stdout, process.stderr, lease_ns=lease_ns, on_log=on_log)
        self._process, self._entry = process, process.stdin
        self._stopped = False

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
            await self._exit(STOP_S)
        finally:
            self._process.end()

    def _let_go(self) -> None:
        self._process.let_go()
