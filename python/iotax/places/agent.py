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
import subprocess
import threading
from pathlib import Path
from typing import IO

_KEPT_BYTES_MAX = 8 << 20
"""Bytes kept of each pipe until they are fetched; a child that writes more waits."""
_PART_BYTES = 64 << 10
_REAPED_S = 0.2
"""A process that was killed is gone sooner, unless the machine is very busy or the kernel holds it."""


class HostAgent:
    """Commands of one worker. They run in the home of its user, as at a login."""

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._numbers = itertools.count(1)

    def __del__(self) -> None:
        """Its user is gone: what it started must end, too."""
        for child in self._children.values():
            child.signal()

    async def pid(self) -> int:
        """Process id of the worker."""
        return os.getpid()

    async def put(self, path: str, part: bytes, new: bool) -> str:
        """Appends to a file, which is made anew if `new`; returns the error, empty if there is none."""
        try:
            with (Path.home() / path).open("wb" if new else "ab") as file:
                file.write(part)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    async def ask(
        self, command: str, given: bytes, within_s: float, keep_bytes: int | None, together: bool
    ) -> tuple[int | None, bytes, bytes] | str:
        """Exit status (below 0 a signal; None if it did not end in time), output and standard error of a command;
        `together` puts both into the output, of which the last `keep_bytes` are kept. A text is the reason why it
        cannot start."""
        child = await started(command, Path.home(), together=together, keep_bytes=keep_bytes)
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
        child = await started(command, Path.home())
        return child if isinstance(child, str) else self.keep(child)

    def keep(self, child: Child) -> int:
        """For `write`, `read` and `end`, by this number."""
        number = next(self._numbers)
        self._children[number] = child
        return number

    async def write(self, number: int, data: bytes) -> None:
        """Writes to its standard input. `read` reports a child that has ended."""
        if (child := self._children.get(number)) is not None:
            child.write(data)

    async def close_input(self, number: int) -> None:
        if (child := self._children.get(number)) is not None:
            child.close_input()

    async def read(self, number: int, within_s: float) -> tuple[bytes, bytes, int | None, bool]:
        """Its new output, once there is some or it has ended: output, standard error, exit status (None while it runs)
        and whether both pipes are closed, so that nothing more comes."""
        child = self._children.get(number)
        if child is None:
            return b"", b"", -signal.SIGKILL, True
        return await child.news(within_s)

    async def end(self, number: int) -> None:
        """Kills it, with everything that it started."""
        if (child := self._children.pop(number, None)) is not None:
            child.kill()


class Group:
    """A process that leads its own group, and its pipes. It is reaped only when the group is ended: until then no other
    process can get its number, and the signal reaches what it started."""

    def __init__(self, running: subprocess.Popen[bytes]) -> None:
        self._running = running
        self._ended = False
        self._transports: list[asyncio.BaseTransport] = []
        self.stdin: asyncio.WriteTransport | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None

    async def connect(self, limit_bytes: int) -> None:
        """Writes to its pipes; a line has at most this many bytes."""
        loop = asyncio.get_running_loop()
        self.stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self._running.stdin)
        self._transports.append(self.stdin)
        self.stdout = await self._reader(self._running.stdout, limit_bytes)
        if self._running.stderr is not None:
            self.stderr = await self._reader(self._running.stderr, limit_bytes)

    async def _reader(self, pipe: IO[bytes] | None, limit_bytes: int) -> asyncio.StreamReader:
        found = asyncio.StreamReader(limit_bytes)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(found), pipe
        )
        self._transports.append(transport)
        return found

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, below 0 a signal; None while it runs."""
        if self._ended:
            # One that is not reaped yet was killed all the same.
            return -signal.SIGKILL if self._running.returncode is None else self._running.returncode
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    async def wait(self, within_s: float | None = None) -> int | None:
        """Its status; None if it still runs after this time."""
        if self.returncode is None:
            over = asyncio.Event()
            descriptor = os.pidfd_open(self.pid)
            loop = asyncio.get_running_loop()
            loop.add_reader(descriptor, over.set)
            try:
                async with asyncio.timeout(within_s):
                    await over.wait()
            except TimeoutError:
                pass
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        return self.returncode

    def end(self) -> None:
        """Kills it, with everything that it started. Once: its number may be another's afterwards."""
        if self._ended:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._ended = True
        try:
            self._running.wait(_REAPED_S)
        except subprocess.TimeoutExpired:
            # The loop must go on: it keeps other hosts' leases.
            threading.Thread(target=self._running.wait, daemon=True).start()

    def let_go(self) -> None:
        """Closes its pipes."""
        for each in self._transports:
            if isinstance(each, asyncio.WriteTransport) or not each.is_closing():
                each.close()


class Child:
    def __init__(self, process: Group, keep_bytes: int | None) -> None:
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
        self.process.end()

    def let_go(self) -> None:
        """Closes its pipes, which what it started may still hold."""
        self.process.let_go()

    def kill(self) -> None:
        """Ends it and lets go of it."""
        self.signal()
        for each in self._reading:
            each.cancel()
        self.let_go()

    @property
    def status(self) -> int | None:
        """Exit status, below 0 a signal; None while it runs."""
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


def group(command: str, folder: Path | None = None, *, together: bool = False) -> Group:
    """A shell's command, whose pipes are not connected yet. Raises OSError."""
    return Group(
        subprocess.Popen(
            ["sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if together else subprocess.PIPE,
            cwd=folder,
            start_new_session=True,
        )
    )


async def started(
    command: str, folder: Path | None = None, *, together: bool = False, keep_bytes: int | None = None
) -> Child | str:
    """The same, connected. A text is the reason why it cannot start."""
    try:
        made = group(command, folder, together=together)
    except OSError as error:
        return f"sh cannot be started: {error.strerror}"
    try:
        await made.connect(_PART_BYTES)
    except BaseException:
        made.end()
        made.let_go()
        raise
    return Child(made, keep_bytes)
