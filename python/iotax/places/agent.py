"""What runs in a Dask worker on a host: commands, as children of the worker.

It is sent there as it stands, so that a worker needs no iotax: it imports nothing but Python's own library. No method
raises OSError, which is how a worker that was lost looks to its caller: what goes wrong with a command is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from pathlib import Path

_KEPT_BYTES_MAX = 8 << 20
"""Of each pipe, until they are fetched; a child that writes more waits."""
_PART_BYTES = 64 << 10


class HostAgent:
    """Of one worker. Commands run in the home of its user, as a login's do."""

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._numbers = itertools.count(1)

    def __del__(self) -> None:
        """Whoever had it is gone: what it started is not to outlive that."""
        for child in self._children.values():
            child.signal()

    async def pid(self) -> int:
        """Of the worker."""
        return os.getpid()

    async def put(self, path: str, part: bytes, new: bool) -> str:
        """Appends to a file, made anew where `new`; what went wrong, empty where nothing did."""
        try:
            with (Path.home() / path).open("wb" if new else "ab") as file:
                file.write(part)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    async def ask(
        self, command: str, given: bytes, within_s: float, keep_bytes: int | None, together: bool
    ) -> tuple[int | None, bytes, bytes] | str:
        """Exit status (below 0 a signal; None where it did not end in time), output and standard error of a command;
        `together` has both in the output, of which the last `keep_bytes` are kept. A text says why it cannot start."""
        child = await _started(command, together=together, keep_bytes=keep_bytes)
        if isinstance(child, str):
            return child
        try:
            child.write(given)
            child.close_input()
            async with asyncio.timeout(within_s):
                await child.closed()
                status = await child.process.wait()
        except TimeoutError:
            status = None
        finally:
            child.kill()
        return status, bytes(child.output), bytes(child.errors)

    async def begin(self, command: str) -> int | str:
        """Starts a command that is spoken with; its number. A text says why it cannot start."""
        child = await _started(command)
        return child if isinstance(child, str) else self.keep(child)

    def keep(self, child: Child) -> int:
        """For `write`, `read` and `end`, by this number."""
        number = next(self._numbers)
        self._children[number] = child
        return number

    async def write(self, number: int, data: bytes) -> None:
        """To its standard input. A child that has ended is noticed by `read`."""
        if (child := self._children.get(number)) is not None:
            child.write(data)

    async def close_input(self, number: int) -> None:
        if (child := self._children.get(number)) is not None:
            child.close_input()

    async def read(self, number: int, within_s: float) -> tuple[bytes, bytes, int | None, bool]:
        """What it wrote since, once there is something or it has ended: output, standard error, exit status (None where
        it goes on) and whether both pipes are closed, so that nothing more comes."""
        child = self._children.get(number)
        if child is None:
            return b"", b"", -signal.SIGKILL, True
        return await child.news(within_s)

    async def end(self, number: int) -> None:
        """By force, with whatever it started."""
        if (child := self._children.pop(number, None)) is not None:
            child.kill()


class Child:
    def __init__(self, process: asyncio.subprocess.Process, keep_bytes: int | None) -> None:
        self.process, self._keep_bytes = process, keep_bytes
        self.output, self.errors = bytearray(), bytearray()
        self._told: int | None = None
        self._changed, self._fetched = asyncio.Event(), asyncio.Event()
        pipes = [(process.stdout, self.output), (process.stderr, self.errors)]
        self._reading = [asyncio.create_task(self._read(pipe, into)) for pipe, into in pipes if pipe is not None]
        self._waiting = asyncio.create_task(self._wait())

    def write(self, data: bytes) -> None:
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(data)

    def close_input(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()

    async def closed(self) -> None:
        await asyncio.wait(self._reading)

    async def news(self, within_s: float) -> tuple[bytes, bytes, int | None, bool]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not (self.output or self.errors or self._over or self.status != self._told):
                    self._changed.clear()
                    await self._changed.wait()
        output, errors = bytes(self.output), bytes(self.errors)
        self.output.clear()
        self.errors.clear()
        self._fetched.set()
        self._told = self.status
        return output, errors, self._told, self._over

    def signal(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def kill(self) -> None:
        self.signal()
        for each in self._reading:
            each.cancel()

    @property
    def status(self) -> int | None:
        """Exit status, below 0 a signal; None where it goes on."""
        return self.process.returncode

    @property
    def _over(self) -> bool:
        return all(each.done() for each in self._reading) and self.status is not None

    async def _read(self, pipe: asyncio.StreamReader, into: bytearray) -> None:
        try:
            while part := await pipe.read(_PART_BYTES):
                into += part
                if self._keep_bytes is not None:
                    del into[: -self._keep_bytes]
                    continue
                self._changed.set()
                while len(into) > _KEPT_BYTES_MAX:
                    self._fetched.clear()
                    await self._fetched.wait()
        finally:
            asyncio.get_running_loop().call_soon(self._changed.set)  # once this is done

    async def _wait(self) -> None:
        await self.process.wait()
        self._changed.set()


async def _started(command: str, *, together: bool = False, keep_bytes: int | None = None) -> Child | str:
    try:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT if together else asyncio.subprocess.PIPE,
            cwd=Path.home(),
            start_new_session=True,
        )
    except OSError as error:
        return f"sh cannot be started: {error.strerror}"
    return Child(process, keep_bytes)
