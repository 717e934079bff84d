"""Hosts behind relays: Dask workers with iotax elsewhere, each of which holds the SSH connections to some of them.

A relay has one call for each step of a trial, whatever the number of its hosts (`relay`). All else goes through it
command by command, as it does over SSH.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from secrets import token_hex
from typing import Any

from iotax.engine import EngineError
from iotax.labs.hosts.clock import Offset, Ours, Turns, compared
from iotax.labs.hosts.measure import READY_S, SILENCE_S, Answer, Group, Hear, Job, Window, each_of
from iotax.labs.hosts.relay import Fault, Relay
from iotax.labs.hosts.survey import Asked, Survey
from iotax.places import LEASE_NS, Binary, HostFault
from iotax.places.base import COMMAND_S
from iotax.places.host import HostPlace
from iotax.places.piped import Piped
from iotax.places.workers import CONNECT_S, Agent, Gone, OfWorker, Scheduled, Worker, workers_of
from iotax.study.hosts import Cluster, Host
from iotax.version import __version__

_NEWS_S = 0.5
"""Between two answers of a relay about a window that is under way."""
_PART_BYTES = 256 << 10
_RENEWALS = 4
_NAMED_MAX = 8
_EACH_S = 1.0
"""Time that a host may add to a call for many of them."""


class Held:
    """A relay of this study's, and the hosts behind it."""

    def __init__(self, worker: Worker, agent: Agent) -> None:
        self.worker, self.hosts = worker, list[str]()
        self.agent = agent
        self._binary = ""
        self._one_at_a_time = asyncio.Lock()
        self._renewing = asyncio.create_task(self._renew())

    @property
    def lost(self) -> bool:
        return bool(self.agent.lost)

    async def call(self, method: str, *given: Any, within_s: float = COMMAND_S) -> Any:
        """Raises HostFault: a host's, or the relay's own, which names the hosts behind it."""
        try:
            answer = await self.agent.call(method, *given, within_s=within_s)
        except Gone as error:
            few = ", ".join(self.hosts[:_NAMED_MAX])
            more = len(self.hosts) - _NAMED_MAX
            behind = f"{few} and {more} more" if more > 0 else few
            raise HostFault(self.worker.name, f"{error}, and with it the way to {behind}") from error
        if isinstance(answer, Fault):
            raise HostFault(answer.host or self.worker.name, answer.message, answer.kind, answer.log)
        return answer

    async def have(self, binary: Binary) -> None:
        """Gives it the engine, once."""
        async with self._one_at_a_time:
            if self._binary == binary.digest:
                return
            # A name of its own: relays may share their homes, and be given it at the same time.
            part = f"{binary.remote}.{token_hex(8)}"
            if not await self.call("engine", binary.remote, binary.digest, part):
                wrong, whole = "", binary.path.read_bytes()
                for at in range(0, len(whole), _PART_BYTES):
                    if wrong := await self.call("put", part, whole[at : at + _PART_BYTES], at == 0):
                        break
                there = await self.call("engine", binary.remote, binary.digest, part)
                if wrong:
                    raise HostFault(self.worker.name, f"the engine cannot be copied to the relay: {wrong}", "io")
                if not there:
                    raise HostFault(self.worker.name, "the engine was copied to the relay and differs there", "io")
            self._binary = binary.digest

    async def close(self) -> None:
        self._renewing.cancel()
        with contextlib.suppress(HostFault):
            await self.call("close")

    async def _renew(self) -> None:
        with contextlib.suppress(Gone):
            while True:
                await asyncio.sleep(LEASE_NS / 1e9 / _RENEWALS)
                await self.agent.call("renew")


class Relays:
    """The relays of one study: its hosts are distributed evenly over all workers of the scheduler."""

    def __init__(self, cluster: Cluster, hosts: Sequence[Host]) -> None:
        self._scheduled = Scheduled(cluster)
        self._hosts = [host.name for host in hosts]
        self._held: dict[str, Held] = {}
        """Address of the worker → relay."""
        self._behind: dict[str, Held] = {}
        """Host → its relay."""
        self._one_at_a_time = asyncio.Lock()

    async def of(self, host: str) -> Held:
        """The relay of a host; another one where that was lost. Raises HostFault."""
        async with self._one_at_a_time:
            if host not in self._behind or self._behind[host].lost:
                try:
                    async with asyncio.timeout(CONNECT_S + COMMAND_S):
                        await self._spread()
                except EngineError as error:
                    raise HostFault(host, error.message, error.kind) from error
                except TimeoutError:
                    said = f"no answer from the Dask scheduler at {self._scheduled.address}, or from a relay"
                    raise HostFault(host, said, "unreachable") from None
                except OSError as error:
                    raise HostFault(host, f"its relay was lost: {error}") from error
            return self._behind[host]

    async def install(self, places: Sequence[Relayed], binary: Binary) -> None:
        """One call for each relay, whatever the number of its hosts. Raises HostFault."""

        async def one(held: Held, behind: Sequence[Relayed]) -> None:
            await held.have(binary)
            hosts = [place.host for place in behind]
            await held.call("install", hosts, within_s=READY_S + _EACH_S * len(hosts))
            for place in behind:
                place.is_installed(held, binary)

        missing = [place for place in places if not place.has(binary)]
        await each_of([one(held, behind) for held, behind in await self._by_relay(missing, lambda place: place.name)])

    async def survey(self, asked: Sequence[tuple[str, Relayed, Asked]], binary: Binary) -> list[Survey]:
        """One call for each relay. A relay that is lost is the fault of each of its hosts."""

        async def one(held: Held, rows: Sequence[tuple[str, Relayed, Asked]]) -> list[Survey]:
            given = [(role, place.host, about) for role, place, about in rows]
            try:
                await held.have(binary)
                return await held.call("survey", given, within_s=READY_S + _EACH_S * len(given))
            except HostFault as fault:
                return [Survey(host.name, role, fault=str(fault), fault_kind=fault.kind) for role, host, _ in given]

        try:
            by_relay = await self._by_relay(asked, lambda row: row[1].name)
        except HostFault as fault:
            return [Survey(place.name, role, fault=fault.message, fault_kind=fault.kind) for role, place, _ in asked]
        found = {each.host: each for rows in await each_of([one(*each) for each in by_relay]) for each in rows}
        return [replace(found[place.name], relay=str(self._behind[place.name].worker)) for _, place, _ in asked]

    async def groups(self, jobs: Sequence[Job], window: Window) -> list[Group]:
        """Raises HostFault."""
        by_relay = await self._by_relay(jobs, lambda job: job.place.name)
        in_turns = Turns()
        return [ByRelay(held, behind, window, in_turns) for held, behind in by_relay]

    async def close(self) -> None:
        held, self._held = list(self._held.values()), {}
        self._behind.clear()
        await asyncio.gather(*(each.close() for each in held))
        await self._scheduled.close()

    async def _by_relay(self, items: Sequence[Any], name: Callable[[Any], str]) -> list[tuple[Held, list[Any]]]:
        found: dict[str, tuple[Held, list[Any]]] = {}
        for each in items:
            held = await self.of(name(each))
            found.setdefault(held.worker.address, (held, []))[1].append(each)
        return list(found.values())

    async def _spread(self) -> None:
        """Gives each host without a relay one. Raises EngineError, OSError."""
        client = await self._scheduled.client()
        workers = sorted(await workers_of(client), key=lambda each: each.name)
        if not workers:
            raise EngineError("unreachable", f"the Dask scheduler at {self._scheduled.address} has no worker to relay")
        without = [name for name in self._hosts if name not in self._behind or self._behind[name].lost]
        for index, name in enumerate(without):
            worker = workers[index * len(workers) // len(without)]
            held = self._held.get(worker.address)
            if held is None or held.lost:
                held = self._held[worker.address] = await self._made(worker)
            self._behind[name] = held
            held.hosts.append(name)

    async def _made(self, worker: Worker) -> Held:
        """Raises EngineError."""
        needs = f"a relay takes iotax[cluster] {__version__}, as here"
        try:
            agent = await self._scheduled.actor(worker, pickle.dumps(Relay()), "relay")
            version = await agent.call("version")
        except (ImportError, AttributeError, TypeError, pickle.UnpicklingError) as error:
            raise EngineError("missing", f"the Dask worker {worker} cannot relay: {error}; {needs}") from error
        if version != __version__:
            raise EngineError("missing", f"the Dask worker {worker} has iotax {version}; {needs}")
        return Held(worker, agent)


class Relayed(HostPlace):
    """A host behind a relay."""

    def __init__(self, host: Host, relays: Relays) -> None:
        super().__init__(host)
        self._relays = relays
        self._held: Held | None = None

    def has(self, binary: Binary) -> bool:
        """Whether its relay is believed to hold it, with its engine."""
        return self._held is not None and not self._held.lost and self._installed == binary.digest

    def is_installed(self, held: Held, binary: Binary) -> None:
        self._held, self._installed = held, binary.digest

    async def install(self, binary: Binary) -> str:
        await self._relays.install([self], binary)
        return binary.remote

    async def run(self, command: str, *, given: str = "", within_s: float = COMMAND_S) -> str:
        return await (await self._reached()).call("run_on", self.host, command, given, within_s, within_s=within_s)

    async def ask(self, command: str, given: str, within_s: float, keep_bytes: int) -> tuple[int | None, str]:
        asked = self.host, command, given, within_s, keep_bytes
        answer = await (await self._reached()).call("ask_on", *asked, within_s=within_s)
        if answer is None:
            raise TimeoutError
        return answer

    async def _begin(self, command: str, lease_ns: int | None, on_log: Callable[[str], None] | None) -> Piped:
        held = await self._reached()
        return OfWorker(self.name, held.agent, await held.call("begin_on", self.host, command), lease_ns, on_log)

    async def close(self) -> None:
        """Its relay lets go of all hosts at once."""
        self._held, self._installed = None, ""

    async def _reached(self) -> Held:
        held = await self._relays.of(self.name)
        if held is not self._held:
            self._held, self._installed = held, ""
        return held


class ByRelay(Group):
    """The hosts of one window behind one relay."""

    def __init__(self, held: Held, jobs: Sequence[Job], window: Window, in_turns: Turns) -> None:
        self.jobs = jobs
        self._held, self._window, self._in_turns = held, window, in_turns
        self._offset: Offset | None = None

    async def arm(self) -> None:
        jobs = [vars(each) | {"place": each.place.name} for each in self.jobs]
        # Hosts that are slow fail by their own limits, within it.
        await self._held.call("arm", jobs, self._window, within_s=2 * READY_S + _EACH_S * len(jobs))

    async def compare(self, ours: Ours) -> list[Offset]:
        hosts = await self._held.call("compare", within_s=READY_S + _EACH_S * len(self.jobs))

        async def asked() -> tuple[int, int | None]:
            return await self._held.call("clock"), None

        self._offset = await compared(asked, ours, self._in_turns)
        return [self._offset.then(each) for each in hosts]

    async def start(self, at_ns: int, ahead_s: float) -> None:
        assert self._offset is not None, "compared"
        await self._held.call("start", at_ns + self._offset.ahead_ns, ahead_s, within_s=ahead_s + SILENCE_S)

    async def answers(self, hear: Hear | None) -> list[Answer]:
        assert self._offset is not None, "compared"
        found: list[Answer] | None = None
        while found is None:
            said, found = await self._held.call("answers", _NEWS_S, within_s=_NEWS_S)
            if hear is not None:
                for host, event in said:
                    hear(host, event)
        return [each.seen_by(self._offset) for each in found]

    async def end(self) -> None:
        with contextlib.suppress(HostFault):
            await self._held.call("end_group")
