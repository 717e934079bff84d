"""Hosts behind a Dask scheduler: a worker runs on each, and in it an actor that starts commands as its children.

Actors, since a command must never run again by itself, nor elsewhere: an actor reports the loss of its worker, while
a task would wait for another. Everything goes through the scheduler, so only its address must be reachable.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import ipaddress
import logging
import math
import pickle
import platform
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import cloudpickle
import dask
from distributed import Client, Scheduler
from distributed.security import Security

from iotax.engine import EngineError
from iotax.places import agent
from iotax.places.base import COMMAND_S, Binary, HostFault, last_words
from iotax.places.host import Companion, ReachedHost
from iotax.places.piped import STOP_S, Piped
from iotax.places.slurm import Contact, Jobs
from iotax.study.hosts import Cluster, Host, Slurm, SlurmCluster

CONNECT_S = 15.0
SILENCE_S = 15.0
"""A worker that does not answer for so long is lost."""
_WATCH_S = 0.5
"""Interval at which a waiting call checks whether the scheduler is still there."""
_POLL_S = 5.0
"""Time that a call waits for a child's output."""
_PART_BYTES = 256 << 10
"""A worker takes no message of more than half of the memory that it is allowed, which Slurm says is 1 MiB where nobody
told it how much its nodes have."""
_LINE_BYTES_MAX = 64 << 20
PYTHON = platform.python_version()
_REST_S = 2
"""Time over which an idle worker is measured."""
_AT_REST = (
    "awk '/^VmRSS/ {{ print $2 }}' /proc/{pid}/status; spent() {{ cat /proc/{pid}/task/*/schedstat; echo; }}; "
    "spent; sleep {rest}; spent"
)
"""Resident memory, KiB; then twice, of each thread, nanoseconds on a processor first, and an empty line."""


class Gone(OSError):  # noqa: N818 - an outcome, not a bug
    """A worker, or the scheduler, that cannot be reached any more."""


@dataclass(frozen=True)
class Worker:
    """Facts from the scheduler and the worker itself."""

    address: str
    """tcp://IP:PORT."""
    name: str
    node: str
    """Name of its machine."""
    python: str
    dask: str = ""
    """Version of `distributed`; empty if unknown."""

    @property
    def ip(self) -> str:
        return urlsplit(self.address).hostname or ""

    def __str__(self) -> str:
        return f"{self.name} ({self.node}, {self.ip})"


class Agent:
    """The actor on one worker."""

    def __init__(
        self, client: Client, scheduler: str, worker: Worker, future: Any, actor: Any, what: str = "Dask worker"
    ) -> None:
        """`what` is the worker's name in messages."""
        self._what = what
        self.worker, self._client, self._scheduler = worker, client, scheduler
        # The actor lives as long as its future does.
        self._future, self._actor = future, actor
        self.lost = ""
        self.pid: int | None = None
        """The worker's process id, once it has told."""

    async def call(self, method: str, *given: Any, within_s: float = 0.0) -> Any:
        """The answer of a method within `within_s`. Raises Gone."""
        if not self.lost:
            try:
                return await self._call(method, given, within_s + SILENCE_S)
            except asyncio.CancelledError:
                raise
            except TimeoutError:
                self.lost = f"its {self._what}, {self.worker}, does not answer"
            # A broken channel may raise anything. If it is intact, the error is a defect of iotax.
            except Exception as error:
                gone = self._client.status != "running"
                if not gone and self._is_there() and not isinstance(error, OSError):
                    raise
                self.lost = self._no_scheduler() if gone else f"its {self._what}, {self.worker}, was lost"
        raise Gone(self.lost)

    async def _call(self, method: str, given: Sequence[Any], within_s: float) -> Any:
        call = asyncio.ensure_future(_result(getattr(self._actor, method)(*given)))
        try:
            async with asyncio.timeout(within_s):
                while not (await asyncio.wait({call}, timeout=_WATCH_S))[0]:
                    # Dask's own call may never end if it learns of the worker's end at the wrong moment.
                    if self._client.status != "running" or not self._is_there():
                        raise ConnectionError("the channel is broken")
                return call.result()
        finally:
            call.cancel()

    def _is_there(self) -> bool:
        """Whether the worker that holds the actor is, as far as the scheduler knows."""
        return self._future.status == "finished"

    def _no_scheduler(self) -> str:
        return f"the Dask scheduler at {self._scheduler} was lost"


class Workers:
    """A scheduler, and which worker each host of the study is."""

    def __init__(
        self,
        cluster: Cluster | SlurmCluster,
        hosts: Sequence[Host],
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`hosts` are all of the study: a worker with the name of one belongs to no other. `tell` receives the reasons
        for waiting."""
        self._names = frozenset(host.name for host in hosts)
        self._client: Client | None = None
        self._started = _Started(cluster.slurm, hosts, tell) if isinstance(cluster, SlurmCluster) else None
        self._scheduler, self._security = ("", None) if isinstance(cluster, SlurmCluster) else _given(cluster)
        self._taken: dict[str, str] = {}
        """Address of a worker → the host that it is."""
        self._roll = Roll()
        self._one_at_a_time = asyncio.Lock()

    async def agent(self, host: Host) -> Agent:
        """Places on the worker of a host, with nothing running yet. Raises HostFault."""
        if self._started is not None:
            async with self._one_at_a_time:
                self._scheduler, self._security = await self._started.scheduler(host)
            if await self._started.bring(host):
                self._roll.outdated(host.name)
        try:
            async with asyncio.timeout(CONNECT_S + COMMAND_S):
                async with self._one_at_a_time:
                    client = await self._connected()
                worker = await self._worker_of(client, host)
                return await self._made(client, worker)
        except EngineError as error:
            raise HostFault(host.name, error.message, error.kind) from error
        except TimeoutError:
            said = f"no answer from the Dask scheduler at {self._scheduler}, or from the host's worker"
            raise HostFault(host.name, said, "unreachable") from None
        except OSError as error:
            raise HostFault(host.name, f"its Dask worker was lost: {error}") from error

    async def close(self) -> None:
        """Also ends the workers that were started for the study."""
        try:
            await self._let_go()
        finally:
            if self._started is not None:
                await self._started.close()

    async def _let_go(self) -> None:
        self._taken.clear()
        self._roll = Roll()
        if self._client is not None:
            client, self._client = self._client, None
            await _close(client)

    async def _connected(self) -> Client:
        if self._client is not None and self._client.status == "running":
            return self._client
        await self._let_go()
        self._client = await _client_of(self._scheduler, self._security)
        return self._client

    async def _worker_of(self, client: Client, host: Host) -> Worker:
        workers = await self._roll.call(host.name, lambda: workers_of(client))
        addresses = await _addresses(host)
        others = self._names - {host.name}
        unnamed = [each for each in workers if each.name not in others]
        free = [each for each in unnamed if self._taken.get(each.address, host.name) == host.name]
        if (found := matching(host, free, addresses)) is None:
            if (taken := matching(host, unnamed, addresses)) is not None:
                said = f"its Dask worker, {taken}, is that of {self._taken[taken.address]} too"
                raise EngineError("usage", f"{said}; start one for each, with their names")
            there = ", ".join(str(each) for each in sorted(workers, key=lambda each: each.name)) or "none"
            said = f"no Dask worker has its name or address; start one there with `--name {host.name}`"
            raise EngineError("unreachable", f"{said}. Workers are {there}")
        self._taken[found.address] = host.name
        if found.python.split(".")[:2] != PYTHON.split(".")[:2]:
            said = f"its Dask worker runs Python {found.python}, and iotax {PYTHON}"
            raise EngineError("usage", f"{said}; Dask wants one minor version on both sides")
        return found

    async def _made(self, client: Client, worker: Worker) -> Agent:
        cloudpickle.register_pickle_by_value(agent)
        try:
            packed = cloudpickle.dumps(agent.HostAgent())
        finally:
            cloudpickle.unregister_pickle_by_value(agent)
        # The class comes along, since no worker has it.
        return await _actor(client, self._scheduler, worker, packed)


class Roll:
    """The available workers: queried once for all hosts at a time, and again for a host whose worker came or was lost
    since."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._asked_s = -math.inf
        """Time at which these workers were queried; one that came while they answered may be missing."""
        self._outdated_s: dict[str, float] = {}
        """Host → a valid answer must be from a later query."""
        self._one_at_a_time = asyncio.Lock()

    def outdated(self, host: str) -> None:
        """Earlier queries say nothing about this host."""
        self._outdated_s[host] = time.monotonic()

    async def call(self, host: str, ask: Callable[[], Awaitable[list[Worker]]]) -> list[Worker]:
        """The workers for a host. Raises the errors of `ask`."""
        async with self._one_at_a_time:
            if self._asked_s <= self._outdated_s.get(host, -math.inf):
                asked_s = time.monotonic()
                self._workers = await ask()
                self._asked_s = asked_s
            self.outdated(host)
            return self._workers


class Scheduled:
    """A scheduler that runs already, on whose workers actors are made."""

    def __init__(self, cluster: Cluster) -> None:
        self.address, self._security = _given(cluster)
        self._client: Client | None = None

    async def client(self) -> Client:
        """Raises EngineError."""
        if self._client is None or self._client.status != "running":
            await self.close()
            self._client = await _client_of(self.address, self._security)
        return self._client

    async def actor(self, worker: Worker, packed: bytes, what: str) -> Agent:
        """An actor from packed code; `what` is the worker's name in messages. Raises EngineError, OSError, and errors
        of unpacking there."""
        return await _actor(await self.client(), self.address, worker, packed, what)

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await _close(client)


async def _client_of(scheduler: str, security: Security | None) -> Client:
    """Raises EngineError."""
    _quiet()
    asked: dict[str, Any] = {"asynchronous": True, "set_as_default": False, "timeout": CONNECT_S}
    if security is not None:
        asked["security"] = security
    try:
        return await Client(scheduler, **asked)
    except (OSError, ValueError, TypeError) as error:
        said = f"no Dask scheduler answers at {scheduler}: {str(error).splitlines()[0]}"
        raise EngineError("unreachable", said) from error


async def _close(client: Client) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(STOP_S):
            await client.close()


async def _actor(client: Client, scheduler: str, worker: Worker, packed: bytes, what: str = "Dask worker") -> Agent:
    with client.as_current(), dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        # A function that makes the actor on the worker.
        future = client.submit(
            pickle.loads, packed, actor=True, pure=False, retries=0, workers=[worker.address],
            allow_other_workers=False,
        )  # fmt: skip
        made = Agent(client, scheduler, worker, future, await future, what)
        made.pid = await made.call("pid")
    return made


class _Started:
    """A scheduler of our own, in this process, and the jobs whose workers come to it.

    Both sides prove themselves by a certificate made for this study: no one else can have the workers run anything.
    """

    def __init__(self, asked: Slurm, hosts: Sequence[Host], tell: Callable[[str], None]) -> None:
        self._asked, self._hosts = asked, hosts
        self._jobs = Jobs(asked, tell)
        self._scheduler: Scheduler | None = None
        self._security = Security.temporary()

    async def scheduler(self, host: Host) -> tuple[str, Security]:
        """Starts the scheduler unless it runs, for this host or another one. Raises HostFault."""
        if self._scheduler is None:
            _quiet()
            try:
                address = self._asked.address or await _address_towards(self._hosts)
                # Pages over HTTP, which ask for no certificate, are for nobody.
                with dask.config.set({"distributed.scheduler.http.routes": []}):
                    made = Scheduler(
                        protocol="tls", host=address, port=0, security=self._security, dashboard=False,
                        dashboard_address="127.0.0.1:0",
                    )  # fmt: skip
                self._scheduler = await made
            except EngineError as error:
                raise HostFault(host.name, error.message, error.kind) from error
            except (OSError, ValueError) as error:
                said = f"no Dask scheduler can be started on this machine: {error}"
                raise HostFault(host.name, said, "usage") from error
        return self._scheduler.address, self._security

    async def bring(self, host: Host) -> bool:
        """Waits for the host's worker; returns whether it had to wait. Raises HostFault."""
        scheduler = self._scheduler
        assert scheduler is not None, "jobs come to it"

        def there() -> bool:
            return any(str(each.name) == host.name for each in scheduler.workers.values())

        if there():
            return False
        tls = self._security.get_tls_config_for_role("worker")
        settings = {
            "COMM__TLS__CA_FILE": tls["ca_file"],
            "COMM__TLS__WORKER__CERT": tls["cert"],
            "COMM__TLS__WORKER__KEY": tls["key"],
            "COMM__REQUIRE_ENCRYPTION": "True",
            # Otherwise Dask samples its own threads a hundred times a second.
            "WORKER__PROFILE__ENABLED": "False",
            "WORKER__HTTP__ROUTES": "[]",
        }
        environment = {f"DASK_DISTRIBUTED__{name}": str(value) for name, value in settings.items()}
        await self._jobs.bring(host.name, Contact(scheduler.address, environment), there)
        return True

    async def close(self) -> None:
        try:
            if self._scheduler is not None:
                scheduler, self._scheduler = self._scheduler, None
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(STOP_S):
                        await scheduler.close()
        finally:
            await self._jobs.close()


def _given(cluster: Cluster) -> tuple[str, Security | None]:
    """Address and certificates of a scheduler that runs already."""
    if cluster.tls is None:
        return cluster.scheduler, None
    files = {"tls_ca_file": cluster.tls.ca, "tls_client_cert": cluster.tls.cert, "tls_client_key": cluster.tls.key}
    return cluster.scheduler, Security(**files, require_encryption=True)


def _quiet() -> None:
    """The failed attempt reports a lost scheduler or worker, so Dask's own messages are left out."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)


async def _address_towards(hosts: Sequence[Host]) -> str:
    """Address of this machine on the way to the first host with a known address. Raises EngineError."""
    loop = asyncio.get_running_loop()
    for host in hosts:
        with contextlib.suppress(OSError):
            found = await loop.getaddrinfo(host.address or host.name, 1, type=socket.SOCK_DGRAM)
            family, *_, there = found[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(there)  # sends nothing
                return str(probe.getsockname()[0])
    said = (
        "no host's name leads to an address here: say `address:` under `slurm`, which the nodes reach this machine by"
    )
    raise EngineError("usage", said)


async def workers_of(client: Client) -> list[Worker]:
    """All workers that answer. Raises OSError."""
    if client.scheduler is None:
        raise Gone("the Dask scheduler was lost")
    known = (await client.scheduler.identity(n_workers=-1))["workers"]
    nodes = await client.run(platform.node, on_error="return")
    pythons = await client.run(platform.python_version, on_error="return")
    dasks = await client.run(importlib.metadata.version, "distributed", on_error="return")
    return [
        Worker(address, str(known[address]["name"]), node, pythons[address], str(dasks.get(address, "")))
        for address, node in nodes.items()
        if address in known and isinstance(node, str) and isinstance(pythons.get(address), str)
    ]


def matching(host: Host, workers: Sequence[Worker], addresses: frozenset[str]) -> Worker | None:
    """The worker of a host: by its name, else by its machine's name, else by the address; None if there is none. Raises
    EngineError if there are several."""
    names = {host.name, host.address or host.name}
    by_name = [each for each in workers if each.name == host.name]
    by_node = [each for each in workers if names & {each.node, each.node.partition(".")[0]}]
    by_address = [each for each in workers if each.ip in addresses]
    found = next((each for each in (by_name, by_node, by_address) if each), [])
    if len(found) > 1:
        raise EngineError("usage", f"{len(found)} Dask workers run there; start one, with `--name {host.name}`")
    return found[0] if found else None


async def _addresses(host: Host) -> frozenset[str]:
    named = host.address or host.name
    with contextlib.suppress(ValueError):
        return frozenset({str(ipaddress.ip_address(named))})
    with contextlib.suppress(OSError):
        found = await asyncio.get_running_loop().getaddrinfo(named, None, type=socket.SOCK_STREAM)
        return frozenset(str(address[0]) for *_, address in found)
    return frozenset()


class OnWorker(ReachedHost):
    """A host reached through its Dask worker; if lost, it is looked up anew, never elsewhere."""

    def __init__(self, host: Host, workers: Workers) -> None:
        super().__init__(host)
        self._workers = workers
        self._agent: Agent | None = None

    @property
    def beside(self) -> int | None:
        return None if self._agent is None else self._agent.pid

    async def companion(self) -> Companion:
        there = await self.agent()
        kib, *spent = (await self.run(_AT_REST.format(pid=there.pid, rest=_REST_S))).split("\n")
        between = spent.index("")
        before_ns, after_ns = (
            sum(int(line.split()[0]) for line in lines if line) for lines in (spent[:between], spent[between:])
        )
        idle_cores = max(0, after_ns - before_ns) / (_REST_S * 1e9)
        worker = there.worker
        return Companion(worker.name, worker.python, worker.dask, int(kib) << 10, idle_cores)

    async def agent(self) -> Agent:
        """Raises HostFault."""
        if self._agent is None or self._agent.lost:
            self._agent, self._installed = None, ""
            self._agent = await self._workers.agent(self.host)
        return self._agent

    async def run(self, command: str, *, given: str = "", within_s: float = COMMAND_S) -> str:
        status, output, errors = await self._ask(command, given, within_s, None, together=False)
        if status is None:
            raise HostFault(self.name, f"{command.split(maxsplit=1)[0]}: no answer in time")
        if status:
            said = (errors or output).decode(errors="replace")
            raise HostFault(self.name, last_words(command, said, status), "io")
        return output.decode(errors="replace")

    async def ask(self, command: str, given: str, within_s: float, keep_bytes: int) -> tuple[int | None, str]:
        status, output, _ = await self._ask(command, given, within_s, keep_bytes, together=True)
        if status is None:
            raise TimeoutError
        return None if status < 0 else status, output.decode(errors="replace")

    async def _begin(self, command: str, lease_ns: int | None, on_log: Callable[[str], None] | None) -> Piped:
        there = await self.agent()
        try:
            number = await there.call("begin", f"exec {command}", within_s=COMMAND_S)
        except Gone as error:
            raise HostFault(self.name, str(error)) from error
        if isinstance(number, str):
            raise HostFault(self.name, number, "missing")
        return OfWorker(self.name, there, number, lease_ns, on_log)

    async def close(self) -> None:
        self._agent, self._installed = None, ""

    async def _reach(self) -> None:
        await self.agent()

    async def _put(self, binary: Binary, path: str) -> None:
        there, whole = await self.agent(), binary.path.read_bytes()
        for at in range(0, len(whole), _PART_BYTES):
            try:
                wrong = await there.call("put", path, whole[at : at + _PART_BYTES], at == 0, within_s=COMMAND_S)
            except Gone as error:
                raise HostFault(self.name, str(error)) from error
            if wrong:
                raise OSError(wrong)

    async def _ask(
        self, command: str, given: str, within_s: float, keep_bytes: int | None, *, together: bool
    ) -> tuple[int | None, bytes, bytes]:
        there = await self.agent()
        try:
            asked = command, given.encode(), within_s, keep_bytes, together
            answer = await there.call("ask", *asked, within_s=within_s)
        except Gone as error:
            raise HostFault(self.name, str(error)) from error
        if isinstance(answer, str):
            raise HostFault(self.name, answer, "missing")
        return answer


class OfWorker(Piped):
    """A task on a host, whose pipes are the worker's."""

    def __init__(
        self,
        host: str,
        there: Agent,
        number: int,
        lease_ns: int | None,
        on_log: Callable[[str], None] | None,
    ) -> None:
        self._host, self._agent, self._number = host, there, number
        self._status: int | None = None
        self._ended_there = asyncio.Event()
        self._given: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._from, self._said = asyncio.StreamReader(_LINE_BYTES_MAX), asyncio.StreamReader()
        self._moving = [asyncio.create_task(self._fetch()), asyncio.create_task(self._hand_over())]
        self._stopped = False
        super().__init__("the engine there", self._from, self._said, lease_ns=lease_ns, on_log=on_log)

    async def alive(self, wait_s: float = 0.0) -> bool:
        return await super().alive(wait_s) and not self._agent.lost

    def _write(self, line: bytes) -> None:
        self._given.put_nowait(line)

    async def _exit(self, within_s: float) -> int | str | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._ended_there.wait()
        if self._status is not None and self._status < 0:
            return signal.Signals(-self._status).name
        return self._status

    async def _ended(self) -> EngineError:
        return EngineError("lost", self._agent.lost) if self._agent.lost else await super()._ended()

    async def _stop(self) -> None:
        """From then on the lease ends it."""
        if self._stopped:
            return
        self._stopped = True
        self._given.put_nowait(None)
        try:
            await self._exit(STOP_S)
        finally:
            with contextlib.suppress(Gone, TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._agent.call("end", self._number)

    def _let_go(self) -> None:
        for each in self._moving:
            each.cancel()

    def _fault(self, error: EngineError) -> HostFault:
        return HostFault(self._host, self._agent.lost or str(error), error.kind, self.log)

    async def _fetch(self) -> None:
        over = False
        try:
            while not over:
                fetched = await self._agent.call("read", self._number, _POLL_S, within_s=_POLL_S)
                output, errors, status, over = fetched
                self._from.feed_data(output)
                self._said.feed_data(errors)
                if status is not None:
                    self._status = status
                    self._ended_there.set()
            self._from.feed_eof()
        except Gone as error:
            self._from.set_exception(error)
            self._ended_there.set()
        finally:
            self._said.feed_eof()

    async def _hand_over(self) -> None:
        with contextlib.suppress(Gone):
            while (line := await self._given.get()) is not None:
                lines = [line]
                while not self._given.empty():
                    if (more := self._given.get_nowait()) is None:
                        self._given.put_nowait(None)
                        break
                    lines.append(more)
                await self._agent.call("write", self._number, b"".join(lines))
            await self._agent.call("close_input", self._number)


async def _result(future: Any) -> Any:
    return await future
