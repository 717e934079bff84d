"""SSH to the lab's hosts, with AsyncSSH: one connection each for the whole study, the engine copied once, by its hash.

How a host is reached, as whom and with which key follows OpenSSH's own configuration, agent and known hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from iotax.study.hosts import Host
from iotax.units import format_size

CONNECT_S = 15.0
KEEPALIVE_S, KEEPALIVES = 5, 3
"""A host that is silent for so long is lost: sshd's own limits are hours."""
HANDSHAKES_MAX = 50
"""At a time: a bastion's sshd drops more (MaxStartups)."""
COMMAND_S = 20.0
_PART_BYTES = 64 << 10
"""Of a command's output, read at a time."""
FOLDER = ".cache/iotax"
"""Below the login's home."""


class HostFault(Exception):  # noqa: N818 - an outcome, not a bug
    """Something about one host."""

    def __init__(self, host: str, message: str, kind: str = "lost") -> None:
        self.host, self.message, self.kind = host, message, kind
        super().__init__(f"{host}: {message}")


@dataclass(frozen=True)
class Binary:
    """The engine that hosts run."""

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> Binary:
        return cls(path, hashlib.sha256(path.read_bytes()).hexdigest())

    @property
    def remote(self) -> str:
        return f"{FOLDER}/engine-{self.digest[:16]}"

    @property
    def as_root(self) -> str:
        """The same, for what only root may open. By its full path, as sudo's rules name it."""
        return f'$([ "$(id -u)" = 0 ] || echo sudo -n) "$HOME/{self.remote}"'


class Link:
    """The connection to one host, made anew where it was lost."""

    def __init__(self, host: Host, handshakes: asyncio.Semaphore) -> None:
        self.host, self._handshakes = host, handshakes
        self._connection: asyncssh.SSHClientConnection | None = None
        self._installed = ""

    @property
    def name(self) -> str:
        return self.host.name

    async def connection(self) -> asyncssh.SSHClientConnection:
        """Raises HostFault."""
        if self._connection is None or self._connection.is_closed():
            self._connection, self._installed = None, ""
            given: dict[str, Any] = {"port": self.host.port, "username": self.host.user, "tunnel": self.host.via}
            try:
                async with self._handshakes, asyncio.timeout(CONNECT_S):
                    self._connection = await asyncssh.connect(
                        self.host.address or self.host.name,
                        **{name: value for name, value in given.items() if value is not None},
                        keepalive_interval=KEEPALIVE_S,
                        keepalive_count_max=KEEPALIVES,
                    )
            except (OSError, asyncssh.Error, TimeoutError) as error:
                raise HostFault(self.name, f"no SSH connection: {_said(error)}", "unreachable") from error
        return self._connection

    async def run(self, command: str, *, given: str = "", within_s: float = COMMAND_S) -> str:
        """Standard output of a command that succeeds; `given` is its standard input. Raises HostFault."""
        connection = await self.connection()
        try:
            done = await asyncio.wait_for(connection.run(command, check=True, input=given), within_s)
        except asyncssh.ProcessError as error:
            said = str(error.stderr or error.stdout or "").strip().splitlines()
            raise HostFault(
                self.name, f"{command.split(maxsplit=1)[0]} failed: {said[-1] if said else error.exit_status}", "io"
            ) from error
        except (OSError, asyncssh.Error, TimeoutError) as error:
            raise HostFault(self.name, f"{command.split(maxsplit=1)[0]}: {_said(error)}") from error
        return str(done.stdout or "")

    async def ask(self, command: str, given: str, within_s: float, keep_bytes: int) -> tuple[int | None, str]:
        """Exit status (None for a signal) and the last output of a command that may fail, of which no more is kept
        while it runs. Raises HostFault, TimeoutError."""
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

    async def install(self, binary: Binary) -> str:
        """Copies the engine where it is not yet; gives its path. Raises HostFault."""
        connection = await self.connection()
        if self._installed == binary.digest:
            return binary.remote
        # A name of its own: another study may copy the same engine at the same time.
        part = f"{binary.remote}.{secrets.token_hex(8)}"
        there = f"test -x {binary.remote} && sha256sum {binary.remote} || true"
        try:
            if not (await self.run(there)).startswith(binary.digest):
                await self.run(f"mkdir -p {FOLDER} && chmod 700 {FOLDER}")
                async with connection.start_sftp_client() as sftp:
                    await sftp.put(str(binary.path), part)
                    await sftp.chmod(part, 0o700)
                    if not (await self.run(f"sha256sum {part}")).startswith(binary.digest):
                        await sftp.remove(part)
                        raise HostFault(self.name, "the engine was copied and differs there", "io")
                    await sftp.posix_rename(part, binary.remote)
        except (OSError, asyncssh.Error) as error:
            with contextlib.suppress(HostFault):
                await self.run(f"rm -f {part}; rmdir {FOLDER} 2>/dev/null")
            said = (
                f"the engine cannot be copied: {_said(error)}; it takes {format_size(binary.path.stat().st_size)} there"
            )
            raise HostFault(self.name, said, "io") from error
        said = await self.run(f"{binary.remote} --version")
        if not said.startswith("iotax-engine"):
            raise HostFault(self.name, f"the copied engine does not run there: {said.strip()}", "missing")
        self._installed = binary.digest
        return binary.remote

    async def start(self, command: str) -> asyncssh.SSHClientProcess[bytes]:
        """Raises HostFault."""
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


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
