"""This machine: commands are children of ours, each in a session of its own.

A Ctrl-C of the terminal reaches only us, and we end a child's whole group. Should we be killed, a child sees its
standard input close and ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from typing import IO

from iotax.engine import EngineError
from iotax.places.base import COMMAND_S, Binary, Event, Place, last_words
from iotax.places.piped import STOP_S, Piped

_LINE_BYTES_MAX = 64 << 20
"""A result with full histograms is about 100 KiB; what is longer than this is no result."""


class Here(Place):
    @property
    def name(self) -> str:
        return "this machine"

    async def install(self, binary: Binary) -> str:
        return shlex.quote(str(binary.path))

    async def start(self, command: str, document: Event, *, on_log: Callable[[str], None] | None = None) -> Child:
        try:
            process = subprocess.Popen(
                ["sh", "-c", f"exec {command}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError("missing", f"sh cannot be started: {error.strerror}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            loop = asyncio.get_running_loop()
            entry, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
            pipes = [await _reader(pipe) for pipe in (process.stdout, process.stderr)]
        except BaseException:
            _kill(process)
            raise
        child = Child(command, process, entry, pipes, document.get("lease_ns"), on_log)
        child.send(document)
        return child

    async def run(self, command: str, *, given: str = "", within_s: float = COMMAND_S) -> str:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(within_s):
                output, said = await process.communicate(given.encode())
        except TimeoutError:
            raise EngineError("lost", f"{command.split(maxsplit=1)[0]}: no answer in time") from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            message = last_words(command, (said or output).decode(errors="replace"), process.returncode)
            raise EngineError("io", message)
        return output.decode(errors="replace")


HERE = Here()


class Child(Piped):
    def __init__(
        self,
        command: str,
        process: subprocess.Popen[bytes],
        entry: asyncio.WriteTransport,
        pipes: list[tuple[asyncio.StreamReader, asyncio.BaseTransport]],
        lease_ns: int | None,
        on_log: Callable[[str], None] | None,
    ) -> None:
        (output, _), (errors, _) = pipes
        about = f"the {shlex.split(command)[-1]} process"
        super().__init__(about, output, errors, lease_ns=lease_ns, on_log=on_log)
        self._process, self._entry, self._pipes = process, entry, [transport for _, transport in pipes]
        self._stopped = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def _write(self, line: bytes) -> None:
        if not self._entry.is_closing():
            self._entry.write(line)

    async def _exit(self, within_s: float) -> int | str | None:
        if self._process.poll() is None and within_s > 0:
            ended = asyncio.Event()
            descriptor = os.pidfd_open(self._process.pid)
            loop = asyncio.get_running_loop()
            loop.add_reader(descriptor, ended.set)
            try:
                async with asyncio.timeout(within_s):
                    await ended.wait()
            except TimeoutError:
                pass
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        code = self._process.poll()
        return signal.Signals(-code).name if code is not None and code < 0 else code

    async def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        try:
            self._entry.close()
            await self._exit(STOP_S)
        finally:
            _kill(self._process)

    def _let_go(self) -> None:
        for pipe in self._pipes:
            pipe.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


async def _reader(pipe: IO[bytes]) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader(_LINE_BYTES_MAX)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    return reader, transport
