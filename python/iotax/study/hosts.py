"""The lab of real hosts: their names, and how to reach them."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from iotax.study.fields import Driver, Duration, Grown, Section
from iotax.trial import LevelValue

CLIENT = "{client}"
"""In an endpoint: the number of the initiator, from 1, so that each can have its own volume."""
_NAME = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


LOCALHOST = "localhost"


class Host(Section):
    """One host, reached over SSH with your OpenSSH configuration, agent and known hosts."""

    name: _NAME
    """Its name in reports; also its address when none is given. localhost alone is this machine, without SSH."""
    address: str | None = None
    """Name or address that SSH connects to."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of its SSH server."""
    user: str | None = None
    """User to log in as."""
    via: str | None = None
    """A host to jump over (bastion), [user@]host[:port]."""
    data_address: str | None = None
    """For a target: the IP address on which it serves, in the initiators' network."""

    @property
    def is_here(self) -> bool:
        """This machine, which needs no address or login."""
        return self.name == LOCALHOST and not any((self.address, self.port, self.user, self.via))

    @property
    def data(self) -> str:
        """Its address in the network of the initiators."""
        return self.data_address or self.address or self.name


class Hypervisor(Host):
    """A host under virtual initiators, whose CPU is read over the same window."""

    kind: Literal["linux", "esxi"] = "linux"
    """linux: the engine measures it. esxi: esxtop over SSH, every 2 s; nothing is copied there."""
    guests: list[_NAME] = Field(default=[])
    """Which initiators and targets run on it; their own time is subtracted from the host's. Default: all initiators. \
linux: QEMU guests by name."""


HostName: TypeAlias = _NAME | Host
Moment: TypeAlias = Literal[
    "before study",
    "after study",
    "before block",
    "after block",
    "before level",
    "after level",
    "before trial",
    "after trial",
]

LEVEL: tuple[Moment, ...] = ("before level", "after level")


class Hook(Section):
    """A command on a named host at a moment of the study: a snapshot restored, a LUN mapped, an array filled."""

    at: Moment
    """before or after the study, each block, each trial, or a level: where trials of `levels` begin and where they end,
    however many follow each other in a block."""
    host: HostName
    """A host of the lab by its name, or any other as {name: array, address: 10.0.1.5, user: admin}."""
    run: Annotated[str, Field(min_length=1)]
    """The command, for the login's shell there."""
    timeout: Duration = 60_000_000_000
    """How long it may take; then it counts as failed."""
    levels: dict[str, LevelValue] = Field(default={})
    """For trials and levels: only if these factors have these levels, such as {protocol: FC}."""
    env: list[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]] = Field(default=[])
    """Names of variables of iotax's own environment that the command is given, such as secrets. No value is kept."""


class Tls(Section):
    """Certificates for a Dask scheduler, as files in PEM form on this machine."""

    ca: str
    """Certificate of the scheduler's certificate authority."""
    cert: str
    """iotax's own certificate."""
    key: str
    """The private key of `cert`."""


class Cluster(Section):
    """Dask workers. Workers of a `cluster` run on the hosts and are matched by name (`dask worker --name h1`), else \
by their machine's name, else by address. Workers of `relays` run elsewhere."""

    scheduler: str
    """Address of a running scheduler: tcp://HOST:PORT or tls://HOST:PORT. Anyone who reaches it over tcp can run \
commands on every host."""
    tls: Tls | None = None
    """For tls://."""

    @model_validator(mode="after")
    def _a_scheduler_with_what_it_needs(self) -> Cluster:
        if re.fullmatch(r"(tcp|tls)://[^/\s]+:[0-9]+", self.scheduler) is None:
            raise ValueError(
                f"{self.scheduler!r} is not a scheduler's address; write it as tcp://HOST:PORT or tls://HOST:PORT"
            )
        if self.scheduler.startswith("tls:") != (self.tls is not None):
            raise ValueError("`tls: {ca: …, cert: …, key: …}` belongs to a scheduler at tls://, and to no other")
        return self


class Slurm(Section):
    """One job per host: it allocates the whole node of that name and runs a Dask worker until the study ends."""

    options: list[Annotated[str, Field(pattern=r"^--?[A-Za-z]")]] = Field(default=[])
    """For sbatch, such as --partition=bench or --account=storage."""
    python: str | None = None
    """Python on the nodes, with `distributed` and the same minor version as iotax's; default: the path of iotax's \
own, which requires a shared file system."""
    setup: list[str] = Field(default=[])
    """Shell lines to run before the worker starts, such as module load python."""
    address: str | None = None
    """IP address of this machine as the nodes reach it; default: the one that routes to the first host."""
    time: Duration = 4 * 3600 * 1_000_000_000
    """Time limit of each job. A longer study submits another job and repeats the trial."""
    wait: Duration = 3600 * 1_000_000_000
    """How long a job may wait in the queue."""


class SlurmCluster(Section):
    """Dask workers that iotax starts by Slurm."""

    slurm: Slurm


def _kind(given: object) -> str:
    if isinstance(given, SlurmCluster) or (isinstance(given, dict) and "slurm" in given):
        return "[slurm]"
    return "[cluster]" if isinstance(given, dict | Cluster) else "[ssh]"


class Hosts(Grown):
    """Real hosts over SSH: one start, one window, every host's CPU. The only file installed on them is the engine, in \
~/.cache/iotax."""

    later = ("cluster", "relays")

    initiators: Annotated[list[HostName], Field(min_length=1)]
    """Hosts that run the load: names for `ssh`, or {name: h1, address: 10.0.0.11, user: bench, via: bastion}."""
    targets: list[HostName] = Field(default=[])
    """Hosts whose CPU is measured too. The first one serves the embedded protocols at its `data_address`."""
    hypervisors: list[_NAME | Hypervisor] = Field(default=[])
    """Hosts below virtual initiators: names, or {name: esx1, kind: esxi, user: root}."""
    cluster: Annotated[
        Annotated[Literal["ssh"], Tag("[ssh]")]
        | Annotated[Cluster, Tag("[cluster]")]
        | Annotated[SlurmCluster, Tag("[slurm]")],
        Discriminator(_kind),
    ] = "ssh"
    """How the hosts are reached: ssh; Dask workers that run on them: {scheduler: "tcp://10.0.0.1:8786"}; or workers \
that iotax starts through Slurm: {slurm: {options: [--partition=bench]}}."""
    relays: Cluster | None = None
    """Dask workers with iotax, on separate machines, that hold the SSH connections to the initiators: {scheduler: \
"tcp://10.0.0.1:8786"}. For more hosts than one controller can handle."""
    driver: Driver = "auto"
    """How the engines do I/O: io_uring, epoll, or auto for io_uring where the system allows it."""
    threads: Annotated[int, Field(ge=1)] = 1
    """Threads of the server, if a target serves."""
    hooks: list[Hook] = Field(default=[])
    """Commands on named hosts before and after the study, each block, level or trial, in the order of the file."""

    @model_validator(mode="after")
    def _relays_hold_ssh_connections(self) -> Hosts:
        if self.relays is not None and self.cluster != "ssh":
            raise ValueError("`relays` hold SSH connections, and `cluster` needs none; leave one of them out")
        return self

    def hook_host(self, hook: Hook) -> Host:
        """The host that runs it: one of the lab's, or its own."""
        named = _host(hook.host)
        return next((host for host in self.hosts() if isinstance(hook.host, str) and host.name == hook.host), named)

    def hosts(self) -> tuple[Host, ...]:
        """All hosts: initiators first, then targets, then hypervisors."""
        return (*self.initiator_hosts(), *self.target_hosts(), *self.hypervisor_hosts())

    def initiator_hosts(self) -> tuple[Host, ...]:
        return tuple(_host(each) for each in self.initiators)

    def target_hosts(self) -> tuple[Host, ...]:
        return tuple(_host(each) for each in self.targets)

    def hypervisor_hosts(self) -> tuple[Hypervisor, ...]:
        return tuple(Hypervisor(name=each) if isinstance(each, str) else each for each in self.hypervisors)

    def guests_of(self, hypervisor: Hypervisor) -> tuple[str, ...]:
        """The initiators and targets that run on it: those that it names, else all initiators if only this hypervisor
        could run them."""
        mine = [host.name for host in (*self.initiator_hosts(), *self.target_hosts())]
        if hypervisor.guests:
            return tuple(name for name in hypervisor.guests if name in mine)
        alone = len(self.hypervisors) == 1
        return tuple(host.name for host in self.initiator_hosts()) if alone else ()

    def virtual(self) -> frozenset[str]:
        """Initiators and targets that a hypervisor of this inventory runs; all initiators if it does not list them."""
        named = {name for each in self.hypervisor_hosts() for name in self.guests_of(each)}
        others = {host.name for host in self.initiator_hosts()} if self.hypervisors and not named else set()
        return frozenset(named | others)


def _host(given: str | Host) -> Host:
    return Host(name=given) if isinstance(given, str) else given
