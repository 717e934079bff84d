"""Code that runs in a relay, a Dask worker with iotax: it holds SSH connections to some of the hosts and runs tasks
with many messages. Methods raise only errors of a broken channel; a fault of a host is an answer."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

from iotax.engine import EngineError
from iotax.labs.hosts.clock import Offset, Ours
from iotax.labs.hosts.measure import Answer, Directly, Job, Window, each_of
from iotax.labs.hosts.survey import Asked, Survey, survey
from iotax.places import LEASE_NS, Binary, Event, HostFault
from iotax.places.agent import Child, HostAgent
from iotax.places.ssh import HANDSHAKES_MAX, Remote, SshHost
from iotax.study.hosts import Host
from iotax.version import __version__

_Given = ParamSpec("_Given")
_Value = TypeVar("_Value")

News: TypeAlias = tuple[list[tuple[str, Event]], list[Answer] | None]
"""The output of engines since then by host, and the answers of all hosts once they have come."""


class Fault(NamedTuple):
    """A HostFault that crosses a channel."""

    host: str
    message: str
    kind: str
    log: str


def _answering(
    method: Callable[Concatenate[Relay, _Given], Awaitable[_Value]],
) -> Callable[Concatenate[Relay, _Given], Coroutine[Any, Any, _Value | Fault]]:
    @functools.wraps(method)
    async def answered(relay: Relay, *given: _Given.args, **named: _Given.kwargs) -> _Value | Fault:
        relay.hear()
        try:
            return await method(relay, *given, **named)
        except HostFault as fault:
            return Fault(fault.host, fault.message, fault.kind, fault.log)
        except EngineError as error:
            return Fault("", error.message, error.kind, error.log)

    return answered


class Relay(HostAgent):
    """The relay of one study.

    Hosts are reached as OpenSSH is configured for the worker's user. The study renews a lease; when the lease expires,
    the relay releases its hosts, and what runs there ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[str, SshHost] = {}
        self._handshakes = asyncio.Semaphore(HANDSHAKES_MAX)
        self._binary: Binary | None = None
        self._ours = Ours()
        self._group: Directly | None = None
        self._work: set[asyncio.Task[Any]] = set()
        self._said: list[tuple[str, Event]] = []
        self._answers: asyncio.Task[list[Answer]] | None = None
        self._heard_s = 0.0
        self._watching: asyncio.Task[None] | None = None

    async def version(self) -> str:
        self.hear()
        return __version__

    async def clock(self) -> int:
        """This machine's clock in ns, which defines the start for its hosts."""
        return self._ours.now_ns()

    async def renew(self) -> None:
        self.hear()

    async def engine(self, remote: str, digest: str, part: str) -> bool:
        """Whether the engine for the hosts is here. What was `put` at `part` becomes it if it is complete, and is
        removed otherwise."""
        self.hear()
        there = Path.home() / remote
        there.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (Path.home() / part, there):
            if each.is_file() and hashlib.sha256(each.read_bytes()).hexdigest() == digest:
                each.chmod(0o700)
                self._binary = Binary(each.rename(there))
                return True
        (Path.home() / part).unlink(missing_ok=True)
        return False

    @_answering
    async def install(self, hosts: Sequence[Host]) -> None:
        """Connects to all of them, and sees to it that each has the engine."""
        await each_of([self._place(host).install(self._engine) for host in hosts])

    @_answering
    async def survey(self, asked: Sequence[tuple[str, Host, Asked]]) -> list[Survey]:
        return await survey([(role, self._place(host), about) for role, host, about in asked], self._engine)

    @_answering
    async def run_on(self, host: Host, command: str, given: str, within_s: float) -> str:
        return await self._place(host).run(command, given=given, within_s=within_s)

    @_answering
    async def ask_on(
        self, host: Host, command: str, given: str, within_s: float, keep_bytes: int
    ) -> tuple[int | None, str] | None:
        """None if it did not end in time."""
        try:
            return await self._place(host).ask(command, given, within_s, keep_bytes)
        except TimeoutError:
            return None

    @_answering
    async def begin_on(self, host: Host, command: str) -> int:
        """Starts a command that is spoken with by `read` and `write`; its number."""
        return self.keep(Channel(await self._place(host).process(command)))

    @_answering
    async def arm(self, jobs: Sequence[Mapping[str, Any]], window: Window) -> None:
        """`jobs` are the fields of each `Job`, with its host's name for its place."""
        await self._end_group()
        own = [
            Job(self._places[each["place"]], **{name: of for name, of in each.items() if name != "place"})
            for each in jobs
        ]
        self._ours = Ours()
        self._group = Directly(own, window)
        # One that was lost since is reached anew.
        await self._mine(each_of([self._places[each["place"]].install(self._engine) for each in jobs]))
        await self._mine(self._group.arm())

    @_answering
    async def compare(self) -> list[Offset]:
        """Offsets of its hosts' clocks from this machine's."""
        assert self._group is not None, "armed"
        return await self._mine(self._group.compare(self._ours))

    @_answering
    async def start(self, at_ns: int, ahead_s: float) -> None:
        """Tells all hosts a start by this machine's clock, until each has heard."""
        assert self._group is not None, "armed"
        await self._mine(self._group.start(at_ns, ahead_s))
        hear = self._said
        work = self._group.answers(lambda host, event: hear.append((host, event)))
        self._answers = asyncio.create_task(work)
        self._work.add(self._answers)

    @_answering
    async def answers(self, within_s: float) -> News:
        """Once all are there, or after that time."""
        assert self._answers is not None, "started"
        done, _ = await asyncio.wait({self._answers}, timeout=within_s)
        said = list(self._said)
        self._said.clear()
        return said, self._answers.result() if done else None

    async def end_group(self) -> None:
        """Ends what `arm` started, in whatever state."""
        self.hear()
        await self._end_group()

    async def close(self) -> None:
        """Lets go of all hosts."""
        await self._end_group()
        for number in list(self._children):
            await self.end(number)
        await asyncio.gather(*(place.close() for place in self._places.values()))
        self._places.clear()

    def hear(self) -> None:
        """Whoever made it is there."""
        self._heard_s = time.monotonic()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    @property
    def _engine(self) -> Binary:
        assert self._binary is not None, "the first that a relay is given"
        return self._binary

    def _place(self, host: Host) -> SshHost:
        return self._places.setdefault(host.name, SshHost(host, self._handshakes))

    async def _mine(self, work: Coroutine[Any, Any, _Value]) -> _Value:
        """Work on the group, which ends with it."""
        task = asyncio.create_task(work)
        self._work.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            raise EngineError("lost", "it was ended") from None
        finally:
            self._work.discard(task)

    async def _end_group(self) -> None:
        work, self._work = list(self._work), set()
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        self._answers = None
        self._said = []
        if self._group is not None:
            group, self._group = self._group, None
            await group.end()

    async def _watch(self) -> None:
        while (left_s := self._heard_s + LEASE_NS / 1e9 - time.monotonic()) > 0:
            await asyncio.sleep(left_s)
        await self.close()


class Channel(Child):
    """A command on a host, as a relay's other children are."""

    def __init__(self, channel: Any) -> None:
        """`channel` is a process of AsyncSSH's."""
        self._channel = channel
        super().__init__(channel, None)

    def close_input(self) -> None:
        with contextlib.suppress(*Remote.broken):
            self._channel.stdin.write_eof()

    def signal(self) -> None:
        self._channel.close()

    def let_go(self) -> None:
        """Closing the channel closed its pipes."""

    @property
    def status(self) -> int | None:
        if self._channel.returncode is None and self._waiting.done():
            return -signal.SIGHUP  # as of a terminal that is gone: the connection is
        return self._channel.returncode

    async def _read(self, pipe: Any, into: bytearray) -> None:
        with contextlib.suppress(*Remote.broken):
            await super()._read(pipe, into)

    async def _wait(self) -> None:
        with contextlib.suppress(*Remote.broken):
            await self._channel.wait_closed()
        asyncio.get_running_loop().call_soon(self._changed.set)  # once this is done
