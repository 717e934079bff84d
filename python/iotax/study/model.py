"""A study: a question, factors with levels, a load, a design, a baseline. The names are the file's own; values are
plain numbers once read: bytes, nanoseconds, percent. JSON output has words again, so that the notebook's copy reads and
loads like the file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    create_model,
    model_serializer,
    model_validator,
)

from iotax.study.command import Command
from iotax.study.connection import Connection
from iotax.study.endpoint import EMBEDDED, NAMED, Endpoint, parse_endpoint
from iotax.study.events import StudyEvent
from iotax.study.fields import (
    Accelerator,
    Arrivals,
    Backlog,
    Blocks,
    Clock,
    Compress,
    Count,
    Dedupe,
    Driver,
    Duration,
    Effects,
    Fill,
    Fraction,
    Generator,
    Grown,
    Media,
    Percent,
    Rate,
    RateLimit,
    Refill,
    Response,
    Responses,
    Rule,
    Section,
    Seed,
    Share,
    Size,
    Volumes,
    WritesAFlush,
)
from iotax.study.hosts import Hosts
from iotax.study.media import Distribution, MediaModel, MediaServers, Parity, RaidGroup, ServiceTimes, Turns
from iotax.study.precondition import Precondition
from iotax.study.published import Published
from iotax.study.setup import ProtocolLevel, setup_changes
from iotax.study.sim import OF_SIM, Sim, read_costs
from iotax.study.topology import Topology
from iotax.trial import LevelValue

MODELLED = (
    "servers",
    "service",
    "distribution",
    "p99",
    "service_times",
    "collect",
    "collect_every",
    "seek",
    "rpm",
    "cache",
    "destage",
    "parity",
    "raid_group",
)
"""Fields of a volume that describe a media model."""


REDUCED = ("compress", "dedupe", "dedupe_block")
"""Fields of a volume that say how far its data can be reduced."""


class Volume(Grown):
    """What is behind every embedded protocol."""

    later = (*MODELLED, *REDUCED, "volumes")

    size: Size = 1 << 30
    """Size of the volume."""
    media: Media = "memory"
    """memory; file (with `path`); null (reads give zeros, writes vanish); model (memory with the service times of \
`servers`, or of rotating disks)."""
    path: str | None = None
    """The file behind `media: file`, created by the server."""
    fill: Fill = "pattern"
    """pattern: every block is written before the load, so that reads can be verified. zeros: nothing is written."""
    refill: Refill = "never"
    """When the pattern is restored: never, before each block, or before each trial."""
    compress: Compress = 1.0
    """Compression ratio of the data, 1 to 8: 2 is 2:1. Reads are still verified."""
    dedupe: Dedupe = 1.0
    """Deduplication ratio of the data, 1 to 20: with 3, two of three blocks repeat one of 32 blocks. Reads are still \
verified."""
    dedupe_block: Size = 4096
    """For `dedupe`: size of the repeated blocks; set it to the block size that the storage compares. I/Os must be \
multiples of it."""
    delay: Duration = 0
    """Delay that the lab's own server adds to each operation: a known tax, to validate the measurement. `local` has
    no server."""
    burn: Duration = 0
    """CPU time that the lab's own server adds to each operation: a known tax, to validate the measurement. `local`
    has no server."""
    volumes: Volumes = "shared"
    """For several `clients` in the vm lab. shared: one volume, divided among the clients. per client: a LUN, \
namespace or file of this size each."""
    servers: MediaServers = 1
    """For `media: model`: operations served in parallel; others wait, first come, first served. With `seek`: number \
of disks."""
    service: Duration | None = None
    """For `media: model`: mean time of an operation."""
    distribution: Distribution = "constant"
    """Distribution of the service time of `media: model`; uniform is from 0 to twice the mean; lognormal needs \
`p99`."""
    p99: Duration | None = None
    """For a lognormal service time: its 99th percentile."""
    service_times: ServiceTimes | None = None
    """Service times of a real drive, in place of `service`: a file with one time per line, such as 85us. All are \
equally likely."""
    collect: Duration | None = None
    """Flash: how long a server pauses for garbage collection. Each server then has its own part of the volume and its \
own queue."""
    collect_every: Size | None = None
    """How much is written to a server between garbage collections."""
    seek: Duration | None = None
    """Rotating disks, in place of `service`: the mean seek time between random positions."""
    rpm: Turns | None = None
    """Rotational speed of the disks, in revolutions per minute."""
    cache: Size | None = None
    """Read cache in front of rotating disks. Its hit rate is its share of the volume's `size`."""
    destage: Percent | None = None
    """Non-volatile write cache in front of rotating disks: what each write costs later, as a share of a disk \
operation."""
    parity: Parity | None = None
    """RAID: parity disks per stripe, 1 (RAID 5) or 2 (RAID 6). A write reads and then writes its block and the parity \
blocks; `destage` is a share of that."""
    raid_group: RaidGroup | None = None
    """Disks per RAID group; default: all disks form one group."""

    @property
    def model(self) -> MediaModel | None:
        """The media model, if there is one."""
        if self.media != "model":
            return None
        told = {name: getattr(self, name) for name in MODELLED}
        return MediaModel.model_construct(**told, data=self.size if self.cache is not None else None)


class Stream(Grown):
    """One pattern of several in a load. Fields not given are those of the load."""

    later = ("shared",)

    block_size: Size | None = None
    """Bytes per I/O."""
    read: Percent | None = None
    """Share of reads; the rest writes."""
    random: Percent | None = None
    """Share of random I/Os; the rest is sequential."""
    shared: bool | None = None
    """Whether its workers share one sequential stream."""
    share: Share = 1.0
    """Its weight: its share of the workers, and of an open loop's arrivals."""


Streams: TypeAlias = Annotated[dict[str, Stream], Field(min_length=1, max_length=16)]


@dataclass(frozen=True)
class Access:
    """The settings of one stream of a load, defaults filled in."""

    name: str
    share: float
    block_size: int
    read: float
    random: float
    shared: bool


class Oltp(Section):
    """A database's transactions, after pgbench's: down an index to an account, a teller, a branch, the history, then a
    durable commit. A page that is not in memory is read when the one before has come."""

    memory: Size | None = None
    """Size of the database's buffers; half the working set when not given."""
    checkpoint: Annotated[Duration, Field(gt=0)] = 1_000_000_000
    """From the beginning of a checkpoint to that of the next. Dirty pages are written over nine tenths of it; it fits \
into `runtime`, so that every window has one."""


class Load(Grown):
    """The load on each protocol. Total outstanding I/O = workers × outstanding."""

    later = ("transactions", "oltp", "command", "shared", "durable", "fsync")

    block_size: Size = 4096
    """Bytes per I/O."""
    read: Percent = 100.0
    """Share of reads; the rest writes."""
    random: Percent = 100.0
    """Share of random I/Os; the rest is sequential."""
    shared: bool = False
    """true: all workers share one sequential stream (DiskSpd -si); false: one per worker. With `random: 0%`."""
    outstanding: Count = 1
    """I/Os in flight per worker (fio: iodepth); in an open loop the maximum."""
    workers: Count = 1
    """Independent workers, each with its own connection (fio: numjobs; pgbench and `oltp`: clients of the database)."""
    threads: Count = 1
    """Threads that drive the workers."""
    clients: Count | None = None
    """Number of initiators, the first N listed; each runs the whole load. Default: all initiators of the lab; in the \
vm lab one (at most 8)."""
    working_set: Size | None = None
    """Bytes used, from the start of the unit; default: the volume's size. pgbench: size of tables and indexes, \
rounded down to a multiple of 16 MiB; default: half the volume."""
    warmup: Duration = 1_000_000_000
    """Load before the measured window (fio: ramp_time)."""
    runtime: Duration = 5_000_000_000
    """The measured window."""
    transactions: Count | None = None
    """pgbench: transactions per client, in place of `runtime` (pgbench -t); the window lasts until all are done."""
    verify: bool = True
    """Check the data that reads return against what was written."""
    durable: bool = False
    """Each write is complete only when its data are on stable storage: FUA over iSCSI, FC and NVMe, FILE_SYNC over \
NFS, O_DSYNC for files and devices."""
    fsync: WritesAFlush = 0
    """Each worker flushes after this many of its writes (fio: fsync); 0: never. Flushes do not count as I/Os: their \
latency is reported separately, and their CPU is part of CPU per I/O."""
    rate_iops: Rate | None = None
    """Open loop: I/Os per second of all workers together, whatever the target does; 0 connects and sends nothing. \
Without it each completion starts the next I/O. pgbench and `oltp`: transactions per second."""
    arrivals: Arrivals = "constant"
    """Arrivals of an open loop: constant (evenly spaced) or poisson."""
    backlog: Backlog = 65536
    """I/Os of an open loop that may wait for a slot; an I/O that finds the backlog full is dropped and counted."""
    streams: Streams | None = None
    """Several patterns side by side: {random: {random: 100%}, sequential: {random: 0%}}; needs at least as many \
workers."""
    oltp: Oltp | None = None
    """Transactions in place of single I/Os, by iotax itself: {checkpoint: 1s}. `block_size` is the page size; \
database and log fill the working set; `workers` is the number of clients."""
    generator: Generator = "iotax"
    """What issues the I/O: iotax, fio (where it reaches the endpoint) or, in the vm and hosts labs, pgbench with \
PostgreSQL on the volume, or in the hosts lab a command. fio measures latency from submission, even in an open loop, \
and can verify only read-only loads."""
    command: Command | None = None
    """For `generator: command`: what to start on each host, and how to read its result."""

    @property
    def database(self) -> bool:
        """Whether it counts transactions, not I/Os."""
        return self.oltp is not None or self.generator == "pgbench"

    @property
    def writes(self) -> bool:
        """Whether it may: nobody but the user knows what a command does."""
        return self.database or self.command is not None or any(each.read < 100 for each in self.accesses())

    def accesses(self) -> tuple[Access, ...]:
        """The streams, or the load's own pattern as the only one."""
        streams = self.streams or {"": Stream()}
        return tuple(
            Access(
                name,
                stream.share,
                self.block_size if stream.block_size is None else stream.block_size,
                self.read if stream.read is None else stream.read,
                self.random if stream.random is None else stream.random,
                self.shared if stream.shared is None else stream.shared,
            )
            for name, stream in streams.items()
        )


class Loopback(Section):
    """The lab on this machine: one server process, one load process, no root."""

    driver: Driver = "auto"
    """How both processes do I/O: io_uring, epoll, or auto for io_uring where the system allows it."""
    threads: Count = 1
    """Threads of the server."""


class Vm(Grown):
    """The lab of two virtual machines with real kernels, initiator and storage: QEMU, no root."""

    later = ("profile",)

    accelerator: Accelerator = "auto"
    """kvm, tcg (emulation), or auto: kvm if a kernel really boots with it."""
    clock: Clock = "auto"
    """host: guests use real time. icount: a guest's time counts its instructions, 4 ns each. auto: icount if \
processors are emulated; host for several `clients`, whose clocks must agree."""
    guests: Annotated[int, Field(ge=1, le=2)] = 2
    """2: initiator and storage each have a machine. 1: both in one kernel; icount then gives its CPU exactly."""
    cpus: Annotated[int, Field(ge=1, le=4)] = 1
    """Processors of each machine. icount supports only one, so with more auto means host."""
    profile: bool | Literal["memory"] = False
    """true: count instructions by kernel layer, function and call, and bytes copied. memory: and the cache lines that \
each function fetches, which takes longer. With `clock: icount`; needs gcc and a QEMU with plugins."""


class Lab(Grown):
    """Where trials run: loopback, unless `vm`, `hosts` or `sim` is given."""

    later = ("sim",)

    loopback: Loopback = Loopback()
    vm: Vm | None = None
    hosts: Hosts | None = None
    sim: Sim | None = None

    @property
    def name(self) -> Literal["loopback", "vm", "hosts", "sim"]:
        """The name of the lab."""
        if self.sim is not None:
            return "sim"
        if self.hosts is not None:
            return "hosts"
        return "loopback" if self.vm is None else "vm"


class Search(Section):
    """Finds the best load within a latency objective. With factors `workers` or `outstanding`: the best of their \
levels. With `rate_max`: the highest rate that meets the objective (the knee), by bisection. Both are measured again."""

    latency_max: Duration
    """The objective: `percentile` of the I/Os complete within it (an open loop's from their intended start)."""
    percentile: Annotated[Percent, Field(gt=0)] = 99.0
    """Which percentile of a run's latencies."""
    rate_min: RateLimit = 100
    """Lowest rate of the search for the knee."""
    rate_max: RateLimit | None = None
    """Highest rate of the search."""
    precision: Annotated[Percent, Field(ge=1)] = 5.0
    """How closely the knee is bracketed."""
    confirm: Annotated[int, Field(ge=2)] = 3
    """Fresh runs of each best load. For a knee: how often the whole search is repeated, each ending in a fresh run."""


LABS: dict[str, type[Section]] = {"loopback": Loopback, "vm": Vm, "hosts": Hosts, "sim": Sim}


class Stop(Section):
    """When to end before the last replicate. Part of the study because it must be chosen before any data."""

    half_width: Percent
    """Stop when half of the 95 % interval of every ratio to the baseline is at most this."""
    at_least: Annotated[int, Field(ge=2)] = 3
    """Replicates that always run."""
    response: Response | None = None
    """Which response; default: the study's primary one."""


_BY_ROUNDS: dict[str, Any] = {"sessions": 6, "rounds": 10, "slice": "250ms", "settle": "10ms"}
"""Defaults of a design by rounds."""


@dataclass(frozen=True)
class Slices:
    """How a session of a design by rounds measures each treatment."""

    rounds: int
    slice_ns: int
    settle_ns: int


class Design(Section):
    """How the treatments are chosen, repeated and ordered."""

    replicates: Count = 3
    """How often each treatment runs; with `stop` the maximum. In rounds: use `sessions`."""
    sessions: Count | None = None
    """Rounds: how often everything starts afresh, with new processes, memory and connections; with `stop` the \
maximum. Sessions are the sample of intervals. 6 when not given."""
    rounds: Count | None = None
    """Rounds: how often each session measures every treatment, for one slice each. 10 when not given."""
    slice: Duration | None = None
    """Rounds: how long a treatment is measured each time. 250 ms when not given."""
    settle: Duration | None = None
    """Rounds: unmeasured load before each slice. 10 ms when not given."""
    blocks: Blocks = "replicate"
    """replicate: each replicate is a complete block in random order. none: all trials in one random order."""
    seed: Seed = 42
    """Seed of order and addresses; the same seed gives the same study."""
    hard_to_change: list[str] = Field(default=[])
    """Factors that change rarely (split plot): within a replicate, trials with the same level run together."""
    fraction: Fraction = "1"
    """1/2, 1/4, …: a fractional factorial of two-level factors; `iotax plan --long` shows the aliases."""
    runs: Count | None = None
    """Number of treatments per replicate, chosen D-optimally."""
    effects: Effects = "two-factor"
    """What a D-optimal design must be able to estimate: main effects, or two-factor interactions too."""
    exclude: list[dict[str, bool | int | float | str]] = Field(default=[])
    """Combinations of levels to leave out: [{protocol: iscsi, block_size: 1MiB}]."""
    sentinels: Annotated[int, Field(ge=0, le=100)] = 0
    """Runs of the baseline spread evenly over the plan, to detect drift: 3 means start, middle and end."""
    stop: Stop | None = None
    """Ends the study early, by a rule chosen before any data."""

    @property
    def slices(self) -> Slices | None:
        """The slices of a design by rounds; None if each trial is one run."""
        if self.rounds is None or self.slice is None or self.settle is None:
            return None
        return Slices(self.rounds, self.slice, self.settle)

    @property
    def unit(self) -> str:
        """What a replicate is called."""
        return "session" if self.sessions else "replicate"

    def repeated(self, replicates: int) -> Design:
        """The same design with this many replicates or sessions."""
        sessions = {"sessions": replicates} if self.sessions else {}
        return self.model_copy(update={"replicates": replicates} | sessions)

    @model_validator(mode="before")
    @classmethod
    def _by_rounds(cls, data: Any) -> Any:
        """A design with any setting of rounds has all of them; its sessions are its replicates."""
        if not isinstance(data, Mapping) or all(data.get(name) is None for name in _BY_ROUNDS):
            return data
        given = {name: value for name, value in data.items() if value is not None}
        default = _BY_ROUNDS | ({"sessions": given["replicates"]} if "replicates" in given else {})
        whole = default | given
        return {"replicates": whole["sessions"]} | whole


class Link(Grown):
    """A protocol's link, if links have different rates: throughput is then also shown as a share of each."""

    later = ("count",)

    rate: Literal["1GbE", "10GbE", "25GbE", "40GbE", "50GbE", "100GbE", "200GbE", "4GFC", "8GFC", "16GFC", "32GFC"]
    """By name: 25GbE, 32GFC."""
    mtu: Annotated[int, Field(ge=576, le=9216)] = 1500
    """Bytes of an Ethernet frame's payload; Fibre Channel's are 2112."""
    count: Annotated[int, Field(ge=1, le=1024)] = 1
    """How many links carry the load at once: the paths that multipathing uses, over all clients."""

    @property
    def label(self) -> str:
        """ "25GbE", "2 × 25GbE"."""
        return self.rate if self.count == 1 else f"{self.count} × {self.rate}"


SECTIONS: dict[str, type[Section]] = {
    "load": Load,
    "volume": Volume,
    "connection": Connection,
    "topology": Topology,
}
"""Sections whose fields may be factors. No two sections share a field name."""

_MODELS: dict[str, type[Section]] = {**SECTIONS, "sim": Sim}
_NEVER_FACTORS = {"path", "refill", "transactions", "oltp", "command", "service_times", *REDUCED}
LABELLED = ("protocol", "streams")
"""Factors whose levels may be labels for more than a word or a number."""


@cache
def sections_of_fields() -> Mapping[str, str]:
    """Field → its section."""
    names = {name: section for section, model in SECTIONS.items() for name in model.model_fields}
    return MappingProxyType(names | dict.fromkeys(OF_SIM, "sim"))


@cache
def factor_names() -> Mapping[str, str]:
    """Factor → section, for every field that may vary."""
    return MappingProxyType({name: of for name, of in sections_of_fields().items() if name not in _NEVER_FACTORS})


if TYPE_CHECKING:
    _ProtocolName: TypeAlias = str
else:
    _ProtocolName = Literal[*NAMED]
_ProtocolNames: TypeAlias = Annotated[
    list[_ProtocolName],
    Field(min_length=1),
]
_ProtocolEndpoints: TypeAlias = Annotated[dict[str, ProtocolLevel], Field(min_length=1)]


class _Factors(Section):
    """The fields that vary, each with its levels, in the order of the file."""

    protocol: _ProtocolNames | _ProtocolEndpoints | None = None
    """Embedded protocols, or labels with endpoints: {array: "nvme-tcp://host/nqn?ns=1"}, also with credentials of \
their own: {array: {protocol: "iscsi://host/IQN/0", chap: {user: joe, secret_file: /etc/joe}}}; in the vm lab labels \
with a protocol and its topology: {jumbo: {protocol: iscsi, mtu: 9000}}; in the sim lab also with who initiates and \
its queues and paths: {guest: {protocol: iscsi, costs: esxi-7-guest}}."""
    streams: Annotated[dict[str, Streams], Field(min_length=1)] | None = None
    """Labels with the streams of a load: {4k: {all: {block_size: 4k}}, mixed: {a: {}, b: {random: 0%}}}."""

    _order: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _keep_order(cls, data: Any, handler: ModelWrapValidatorHandler) -> Any:
        factors = handler(data)
        if isinstance(data, Mapping):
            factors._order = tuple(name for name in data if getattr(factors, name) is not None)  # noqa: SLF001
        return factors

    def names(self) -> tuple[str, ...]:
        """Factors in the order of the file."""
        return self._order

    @model_serializer(mode="wrap")
    def _in_order(self, handler: Any) -> dict[str, Any]:
        dumped = handler(self)
        return {name: dumped[name] for name in self._order}


@cache  # Hints are text, which Python compiles anew each time.
def _level_type(name: str) -> Any:
    """The type of one level of a factor: its field's, without None."""
    section = _MODELS[factor_names()[name]]
    hint = get_type_hints(section, include_extras=True)[name]
    given = [part for part in get_args(hint) if part is not NoneType]
    return given[0] if NoneType in get_args(hint) else hint


def _factors_model() -> type[_Factors]:
    fields: dict[str, Any] = {}
    for name in factor_names():
        if name not in LABELLED:
            levels: Any = list[_level_type(name)] | None  # ty: ignore[invalid-type-form]
            fields[name] = (levels, Field(default=None, min_length=1))
    return create_model("Factors", __base__=_Factors, __doc__=_Factors.__doc__, **fields)


Factors = _factors_model()
_LEVEL = TypeAdapter(Factors)


@dataclass(frozen=True)
class Level:
    """One level of a factor: as written in tables, and as computed with."""

    label: str
    value: LevelValue


@dataclass(frozen=True)
class Settings:
    """All settings of one treatment."""

    load: Load
    volume: Volume
    connection: Connection
    endpoint: Endpoint
    topology: Topology
    label: str = ""
    """The level of `protocol`."""
    sim: Sim | None = None
    """The simulated lab."""
    precondition: Precondition | None = None
    """The preconditioning of its volume, for endpoints that the study names."""

    @property
    def preconditioned_bytes(self) -> int:
        """Share of the volume to precondition, from its start; the load may use more. 0 without preconditioning."""
        return round(self.volume.size * self.precondition.fill / 100) if self.precondition else 0

    @property
    def working_set_bytes(self) -> int:
        """The same for all endpoints of a study, so that a larger one has no advantage or disadvantage."""
        return self.load.working_set or self.volume.size

    @property
    def volumes(self) -> int:
        """Number of volumes that the vm lab's target serves at once."""
        return self.load.clients or 1 if self.volume.volumes == "per client" else 1

    @property
    def writes(self) -> bool:
        """Whether anything writes to the endpoint: the pattern, the load, or fio before it verifies."""
        laid_out = self.precondition is not None or (self.load.generator == "fio" and self.load.verify)
        return laid_out or self.load.writes or self.volume.fill == "pattern"


def _shorthand(value: object) -> object:
    """`lab: loopback` for `lab: {loopback: {}}`."""
    return {value: {}} if isinstance(value, str) else value


NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Characters allowed in a study's name, which also names its notebook."""


class Study(Section):
    """A study file."""

    name: Annotated[str, Field(pattern=NAME)]
    """Letters, digits, dots and dashes."""
    question: str
    """The question that the study answers, in one sentence."""
    lab: Annotated[Lab, BeforeValidator(_shorthand)] = Lab()
    """Where trials run."""
    volume: Volume = Volume()
    factors: Factors  # ty: ignore[invalid-type-form]
    load: Load = Load()
    connection: Connection = Connection()
    topology: Topology = Topology()
    links: dict[str, Link] = Field(default={})
    """Level of `protocol` → its link, if links have different rates."""
    design: Design = Design()
    precondition: Precondition | None = None
    """What is done to each volume before anything is measured on it."""
    search: Search | None = None
    """Look for the best load instead of comparing fixed ones."""
    events: list[StudyEvent] = Field(default=[])
    """Events during the measured window of every run; each is undone after its time."""
    baseline: dict[str, bool | int | float | str]
    """Factor → level that counts as 100."""
    floor: str | None = None
    """The level of `protocol` that reaches the same volume directly, such as the disk behind a target; the tax is \
what other levels cost beyond it. Default: the lab's own `local`."""
    responses: Responses = Field(default=["iops", "latency", "cpu_per_io"])
    """What the report compares, the primary response first. `{cpu_per_io: {of: hypervisor}}` and `{cpu_utilisation: \
{of: \
[machine, target]}}` name roles, as do the words cpu_hypervisor and cpu_utilisation_machine. longest_gap: the longest \
time without a completed I/O; slow_ios: I/Os over 100 ms and over 1 s, counted but not compared; iops_after: \
throughput once an event is undone."""
    margin: Percent = 5.0
    """Differences within this count as equivalent; fixed before any data."""
    exclude: list[Rule] = Field(default=[])
    """Runs with findings of these checks are left out, e.g. [errors, achieved]. The report lists and counts them."""
    published: list[Published] = Field(default=[])
    """Published figures for this question; the report shows them beside the measured ones."""

    def levels(self) -> dict[str, tuple[Level, ...]]:
        """Factor → levels, both in the file's order. A level of `protocol` or `streams` is its label."""
        return {name: self._levels_of(name) for name in self.factors.names()}

    def _levels_of(self, name: str) -> tuple[Level, ...]:
        return tuple(Level(format_level(name, value), value) for value in getattr(self.factors, name))

    def baseline_level(self, factor: str) -> Level | None:
        """The level of `factor` that the baseline names, by label or value; None if it names none."""
        return self.level(factor, self.baseline[factor]) if factor in self.baseline else None

    def level(self, factor: str, wanted: LevelValue) -> Level | None:
        """The level of `factor` with this label or value; None if there is none."""
        levels = self._levels_of(factor) if factor in self.factors.names() else ()
        for level in levels:
            if level.label == wanted or (level.value == wanted and type(level.value) is type(wanted)):
                return level
        try:
            named = getattr(_LEVEL.validate_python({factor: [wanted]}), factor) if levels else None
        except ValidationError:
            return None
        return next((level for level in levels if named == [level.value]), None)

    def baseline_levels(self) -> tuple[Level, ...]:
        """The baseline as a treatment: factors that it does not name have their first level."""
        return tuple(self.baseline_level(name) or levels[0] for name, levels in self.levels().items())

    @property
    def compared(self) -> list[str]:
        """The factors whose levels are compared: those that the baseline names."""
        names = list(self.levels())
        return [name for name in names if name in self.baseline] or names[:1]

    def endpoints(self) -> dict[str, Endpoint]:
        """Level of `protocol` → its endpoint."""
        levels = self.factors.protocol
        if isinstance(levels, dict):
            return {
                label: parse_endpoint(target if isinstance(target, str) else target.protocol)
                for label, target in levels.items()
            }
        if levels is None:
            only = self.connection.protocol or EMBEDDED[0]
            return {only: parse_endpoint(only)}
        return {label: parse_endpoint(label) for label in levels}

    def setups(self) -> dict[str, dict[str, Any]]:
        """Level of `protocol` → the fields of topology, connection and simulated machines that it sets."""
        levels = self.factors.protocol
        if not isinstance(levels, dict):
            return {}
        return {label: setup_changes(target) for label, target in levels.items() if not isinstance(target, str)}

    def settings(self, treatment: Mapping[str, LevelValue]) -> Settings:
        """The load, volume and connection of one treatment."""
        changes: dict[str, dict[str, Any]] = {section: {} for section in _MODELS}
        for name, value in treatment.items():
            changes[factor_names()[name]][name] = self.factors.streams[value] if name == "streams" else value
        endpoints = self.endpoints()
        label = str(treatment.get("protocol", next(iter(endpoints))))
        for name, value in self.setups().get(label, {}).items():
            changes[factor_names()[name]].setdefault(name, value)
        if slices := self.design.slices:
            changes["load"] |= {"warmup": slices.settle_ns, "runtime": slices.rounds * slices.slice_ns}
        return Settings(
            load=self.load.model_copy(update=changes["load"]),
            volume=self.volume.model_copy(update=changes["volume"]),
            connection=self.connection.model_copy(update=changes["connection"]),
            endpoint=endpoints[label],
            topology=self.topology.model_copy(update=changes["topology"]),
            label=label,
            sim=self.lab.sim and self.lab.sim.model_copy(update=changes["sim"]),
            precondition=None if endpoints[label].embedded else self.precondition,
        )

    def digest(self) -> str:
        """A digest of the study: equal for equal studies, whatever the layout of their files. It includes the current
        cost tables of a simulation. Raises CostsError."""
        asked = self.digest_but_costs()
        if self.lab.sim is None:
            return asked
        tables = " ".join(read_costs(name).digest() for name in self.cost_tables())
        return hashlib.sha256(f"{asked} {tables}".encode()).hexdigest()

    def cost_tables(self) -> list[str]:
        """The names of the cost tables of a simulated study; none in other labs."""
        if self.lab.sim is None:
            return []
        if levels := self.levels().get("costs"):
            return [str(level.value) for level in levels]
        setups = self.setups()
        return list(dict.fromkeys(setups.get(label, {}).get("costs", self.lab.sim.costs) for label in self.endpoints()))

    def draws_costs(self) -> bool:
        """Whether each replicate draws its costs from the intervals of its tables. Raises CostsError."""
        return any(read_costs(name).has_intervals for name in self.cost_tables())

    def section(self, name: str) -> Any:
        """The study's settings in a section of `factor_names`, without the factors."""
        return (self.lab.sim or Sim()) if name == "sim" else getattr(self, name)

    def digest_but_costs(self) -> str:
        """The digest without cost tables: the whole digest if nothing is simulated."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def format_level(factor: str, value: LevelValue) -> str:
    """A level as tables show it: `4KiB`, `75%`, `on`."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(written(value) if (written := _written(factor)) else value)


@cache
def _written(factor: str) -> Callable[[Any], Any] | None:
    """How a factor's levels are written in files, if not as they are."""
    markers = () if factor in LABELLED else get_args(_level_type(factor))
    return next((marker.func for marker in markers if isinstance(marker, PlainSerializer)), None)
