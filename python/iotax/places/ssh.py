"""A host behind SSH, with AsyncSSH: one connection for the whole study, the engine copied once, by its hash.

How a host is reached, with which user and key, follows OpenSSH's own configuration, agent and known hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import asyncssh

from iotax.engine import EngineError
from iotax.places.base import COMMAND_S, Binary, HostFault, last_words
from iotax.places.host import ReachedHost
from iotax.places.piped import STOP_S, Piped
from iotax.study.hosts import Host

CONNECT_S = 15.0
KEEPALIVE_S, KEEPALIVES = 5, 3
"""A host that is silent for so long is lost: sshd's own limits are hours."""
HANDSHAKES_MAX = 50
"""Connections opened at a time: a bastion's sshd drops more (MaxStartups)."""
_PART_BYTES = 64 << 10
"""Bytes of a command's output that are read at a time."""


class SshHost(ReachedHost):
    """The connection to one host, which is renewed if it is lost."""

    def __init__(self, host: Host, handshakes: asyncio.Semaphore) -> None:
        super().__init__(host)
        self._handshakes = handshakes
        self._connection: asyncssh.SSHClientConnection | None = None

    async def connection(self) -> asyncssh.SSHClientConnection:
        """Raises HostFault."""
        if self._connection is None or self._connection.is_closed():
            self._connection, self._installed = None, ""
            given: dict[str, Any] = {"port": self.host.port, "username": self.host.user, "tunnel": self.host.via}
            asked = {name: value for name, value in given.items() if value is not None}
            asked["host"] = self.host.address or self.host.name
            try:
                async with self._handshakes, asyncio.timeout(CONNECT_S):
                    self._connection = await asyncssh.connect(
                        **asked,
                        encryption_algs=await _ciphers(asked),
                        keepalive_interval=KEEPALIVE_S,
                        keepalive_count_max=KEEPALIVES,
                    )
            except (OSError, asyncssh.Error, TimeoutError) as error:
                raise HostFault(
                    self.name, f"no SSH connection to {asked['host']}: {_said(error)}", "unreachable"
                ) from error
        return self._connection

    async def run(self, command: str, *, given: str = "", within_s: float = COMMAND_S) -> str:
        """Standard output of a command that succeeds; `given` is its standard input. Raises HostFault."""
        connection = await self.connection()
        try:
            done = await asyncio.wait_for(connection.run(command, check=True, input=given), within_s)
        except asyncssh.ProcessError as error:
            said = str(error.stderr or error.stdout or "")
            raise HostFault(self.name, last_words(command, said, error.exit_status), "io") from error
        except (OSError, asyncssh.Error, TimeoutError) as error:
            raise HostFault(self.name, f"{command.split(maxsplit=1)[0]}: {_said(error)}") from error
        return str(done.stdout or "")

    async def ask(self, command: str, given: str, within_s: float, keep_bytes: int) -> tuple[int | None, str]:
        connection = await self.connection()
        kept = b""
        try:
            async with asyncio.timeout(within_s):
                process = await connection.create_process(command, stderr=asyncssh.STDOUT, encoding=None)
                try:
                    # A command may end before it has read anything, or all.
                    with contextlib.suppress(BrokenPipeError):
                        process.stdin.write(given.encode())
                        process.stdin.write_eof()
                    while part := await process.stdout.read(_PART_BYTES):
                        kept = (kept + part)[-keep_bytes:]
                    await process.wait_closed()
                finally:
                    process.close()
        except TimeoutError:
            raise
        except (OSError, asyncssh.Error) as error:
            raise HostFault(self.name, f"{command.split(maxsplit=1)[0]}: {_said(error)}") from error
        return process.exit_status, kept.decode(errors="replace")

    async def _reach(self) -> None:
        await self.connection()

    async def _put(self, binary: Binary, path: str) -> None:
        connection = await self.connection()
        try:
            async with connection.start_sftp_client() as sftp:
                await sftp.put(str(binary.path), path)
        except asyncssh.ChannelOpenError:
            raise OSError("its SSH server has no SFTP; add `Subsystem sftp internal-sftp` to sshd_config") from None
        except asyncssh.Error as error:
            raise OSError(_said(error)) from error

    async def _begin(self, command: str, lease_ns: int | None, on_log: Callable[[str], None] | None) -> Piped:
        return Remote(self.name, await self.process(command), lease_ns, on_log)

    async def process(self, command: str) -> asyncssh.SSHClientProcess[bytes]:
        """A command that writes other lines than the engine's. Raises HostFault."""
        connection = await self.connection()
        try:
            return await connection.create_process(f"exec {command}", encoding=None)
        except (OSError, asyncssh.Error) as error:
            raise HostFault(self.name, f"{shlex.split(command)[0]} cannot be started: {_said(error)}") from error

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._connection.wait_closed(), KEEPALIVE_S)
            self._connection = None


class Remote(Piped):
    """A task on a host."""

    broken = (OSError, asyncssh.Error)

    def __init__(
        self,
        host: str,
        process: asyncssh.SSHClientProcess[bytes],
        lease_ns: int | None,
        on_log: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__("the engine there", process.stdout, process.stderr, lease_ns=lease_ns, on_log=on_log)
        self._host, self._process = host, process

    async def alive(self, wait_s: float = 0.0) -> bool:
        return await super().alive(wait_s) and not self._process.is_closing()

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(*self.broken):
            self._process.stdin.write(line)

    async def _exit(self, within_s: float) -> int | str | None:
        with contextlib.suppress(*self.broken, TimeoutError):
            async with asyncio.timeout(within_s):
                await self._process.wait_closed()
        if self._process.exit_signal is not None:
            return f"SIG{self._process.exit_signal[0]}"
        return self._process.exit_status

    async def _ended(self) -> EngineError:
        if await self._exit(STOP_S) is None:
            return EngineError("died", "the connection was lost")
        return await super()._ended()

    async def _stop(self) -> None:
        """From then on the lease ends it."""
        with contextlib.suppress(*self.broken):
            self._process.stdin.write_eof()
        await self._exit(STOP_S)

    def _let_go(self) -> None:
        self._process.close()

    def _fault(self, error: EngineError) -> HostFault:
        return HostFault(self._host, str(error), error.kind, self.log)


async def _ciphers(asked: Mapping[str, Any]) -> list[str]:
    """For one connection. Where the user's configuration names none, AES-GCM comes first: AsyncSSH's own first choice
    takes twice the processor time for each line, and hundreds of hosts are told their start one after another."""
    wanted = {name: value for name, value in asked.items() if name != "tunnel"}
    # Read in the same way as by `connect`; no key is needed for that.
    asking = asyncssh.SSHClientConnectionOptions.construct(**wanted, config=(), client_keys=None)
    configured = (await asking).encryption_algs
    if configured == _unconfigured():
        configured = sorted(configured, key=lambda cipher: b"-gcm" not in cipher)
    return [cipher.decode() for cipher in configured]


@functools.cache
def _unconfigured() -> Sequence[bytes]:
    """AsyncSSH's own ciphers, in its order."""
    return asyncssh.SSHClientConnectionOptions(config=None, client_keys=None).encryption_algs


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0 and "Connect call" in str(error):
        # asyncio's own words are of its calls.
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
