"""The engine on a host: a document in, JSON lines out (docs/reference/engine.md), as behind any pipe."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
from collections.abc import Callable
from typing import Any, TypeAlias

import asyncssh

from iotax.engine import EngineError, event_of
from iotax.labs.hosts.ssh import HostFault, Link

LEASE_NS = 15_000_000_000
"""An engine that hears nothing for so long ends by itself: its controller or the network is gone."""
_RENEW_S = LEASE_NS / 1e9 / 4
_LOG_LINES_MAX = 100

Hear: TypeAlias = Callable[[str, dict[str, Any]], None]
"""A host, and what its engine said."""


class Agent:
    """One running engine. Made by `start`."""

    def __init__(self, host: str, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self.host, self._process = host, process
        self._log: collections.deque[str] = collections.deque(maxlen=_LOG_LINES_MAX)
        self._tasks = [asyncio.create_task(self._renew()), asyncio.create_task(self._read_log())]

    @classmethod
    async def start(cls, link: Link, program: str, command: str, document: dict[str, Any]) -> Agent:
        """Raises HostFault."""
        agent = cls(link.name, await link.start(f"{program} {command}"))
        agent.send(document)
        return agent

    @property
    def alive(self) -> bool:
        return not self._process.is_closing() and self._process.exit_status is None

    @property
    def log(self) -> str:
        return "\n".join(self._log)

    def send(self, document: dict[str, Any]) -> None:
        """A host that is gone is noticed by the next `event`."""
        with contextlib.suppress(OSError, asyncssh.Error):
            self._process.stdin.write(json.dumps(document).encode() + b"\n")

    async def event(self, within_s: float) -> dict[str, Any]:
        """The next line. Raises HostFault for an error line, an end, and silence."""
        try:
            line = await asyncio.wait_for(self._process.stdout.readuntil(b"\n"), within_s)
        except TimeoutError:
            raise HostFault(self.host, "the engine there fell silent", "silent") from None
        except (OSError, asyncssh.Error) as error:
            raise HostFault(self.host, f"the connection was lost: {error}") from error
        except asyncio.IncompleteReadError:
            raise HostFault(self.host, await self._ending(), "died") from None
        try:
            return event_of(line)
        except EngineError as error:
            raise HostFault(self.host, str(error), error.kind) from error

    async def expect(self, name: str, within_s: float, hear: Hear | None = None) -> dict[str, Any]:
        """The next event of that name; those before it go to `hear`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while True:
            event = await self.event(max(0.0, until_s - loop.time()))
            if event["event"] == name:
                return event
            if hear is not None:
                hear(self.host, event)

    async def end(self) -> None:
        """Closes its input, upon which it ends by itself; what is left then is the lease's."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(OSError, asyncssh.Error, TimeoutError):
            self._process.stdin.write_eof()
            await asyncio.wait_for(self._process.wait_closed(), 3)
        self._process.close()

    async def _ending(self) -> str:
        with contextlib.suppress(OSError, asyncssh.Error, TimeoutError):
            await asyncio.wait_for(self._process.wait_closed(), 3)
        if self._process.exit_signal is not None:
            return f"the engine there was ended by SIG{self._process.exit_signal[0]}"
        if self._process.exit_status is None:
            return "the connection was lost"
        return f"the engine there ended with exit code {self._process.exit_status} before its work was done"

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            self.send({"command": "renew"})

    async def _read_log(self) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            while line := await self._process.stderr.readline():
                self._log.append(line.decode(errors="replace").rstrip("\n"))
