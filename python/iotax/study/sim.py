"""The simulated lab: machines that exist in virtual time only, and the costs of their work."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from iotax.study.fields import BitRate, Duration, Grown, PathsTo, Percent, Section, Size
from iotax.study.media import MediaModel
from iotax.study.source import StudyError, read_yaml

_LATER = (
    "controllers",
    "target_ports",
    "luns",
    "adapter_depth",
    "credits",
    "loss",
    "port_buffer",
    "coalesce",
    "path_failures",
    "path_noticed",
    "switches",
    "trunk_rate",
    "trunk_credits",
    "zones",
    "paths_to",
    "interconnect_rate",
    "interconnect_delay",
    "interconnect_cpu",
    "takeover",
)
"""Fields added later."""
OF_SIM = (
    "costs",
    "vms",
    "luns",
    "adapter_depth",
    "credits",
    "loss",
    "port_buffer",
    "coalesce",
    "switches",
    "trunk_rate",
    "trunk_credits",
    "paths_to",
    "interconnect_rate",
    "interconnect_delay",
    "interconnect_cpu",
    "takeover",
)
"""Fields of the simulated lab that may be factors."""
_TABLES = Path(__file__).with_name("costs")
Cores: TypeAlias = Annotated[int, Field(ge=1, le=1024)]
Loss: TypeAlias = Annotated[Percent, Field(ge=0.0001, le=10)]
Many: TypeAlias = Annotated[int, Field(ge=1, le=1000)]
Credits: TypeAlias = Annotated[int, Field(ge=1, le=65535)]
Takeover: TypeAlias = Annotated[int, Field(ge=1, le=64)] | Literal["none"]


class PathFailure(Section):
    """One path of every client fails, and comes back."""

    path: Annotated[int, Field(ge=1, le=4)]
    """Which of the `paths`, from 1 on: the first is the one that `path_policy: fixed` prefers."""
    at: Duration
    """After the begin of what is measured."""
    back: Duration | None = None
    """When it is there again; it stays away when not given."""


class Zone(Section):
    """Clients and the target ports that they see: a zone of Fibre Channel, a VLAN of Ethernet."""

    clients: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    """By their numbers, from 1 on."""
    ports: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
    """Target ports by their numbers, from 1 on; those of the first controller come first."""


class Sim(Grown):
    """iotax's own initiators and targets in virtual time, on simulated processors, links and media. Results are \
marked as simulated everywhere."""

    later = _LATER

    costs: str = "loopback"
    """Cost table: a built-in one, or a file (docs/guide/simulator.md)."""
    vms: Many = 1
    """Virtual machines on each client; each runs the whole load."""
    cores: Cores = 2
    """Processors of each client, shared by its virtual machines."""
    target_cores: Cores = 2
    """Processors of the server."""
    threads: Many = 1
    """Threads of the server."""
    controllers: Annotated[int, Field(ge=1, le=64)] = 1
    """Servers, each with its own processors, ports, media and volume; clients are distributed over them."""
    target_ports: Annotated[int, Field(ge=1, le=64)] = 1
    """Ports of each server; its clients are distributed over them."""
    luns: Annotated[int, Field(ge=1, le=1024)] = 1
    """LUNs of the one simulated volume, each with a queue of `queue_depth`; the workers of each client are \
distributed over them."""
    adapter_depth: Annotated[int, Field(ge=1, le=65536)] | None = None
    """Outstanding commands per port of a client's adapter, over all LUNs; no limit when not given."""
    credits: Credits | None = None
    """Buffer-to-buffer credits of each Fibre Channel port and of the switch port at the other end; default: as many \
as the link needs."""
    loss: Loss | None = None
    """Share of Ethernet segments lost at random, 0.0001 % to 10 %; none when not given."""
    port_buffer: Annotated[Size, Field(ge=9216)] | None = None
    """Bytes that an Ethernet port buffers; segments beyond are lost. Unlimited when not given."""
    switches: Annotated[int, Field(ge=0, le=2)] = 0
    """Switches between clients and targets. 0: links go from port to port. 1: all links go to one switch. 2: \
clients' links go to one, targets' to the other, with a trunk between them. With `paths: 2` each path has its \
own fabric."""
    trunk_rate: BitRate | None = None
    """Rate of the trunk between two switches, in each direction; default: that of the other links."""
    trunk_credits: Credits | None = None
    """Buffer-to-buffer credits of each end of the trunk; `credits` when not given."""
    zones: Annotated[dict[str, Zone], Field(min_length=1)] | None = None
    """Which clients see which target ports: Fibre Channel zones or Ethernet VLANs. All see all when not given."""
    paths_to: PathsTo = "owner"
    """Where paths lead: to the volume's owner, to its partner (which forwards over the interconnect), or to both in \
turn. Controllers 1 and 2 are partners, 3 and 4, and so on."""
    interconnect_rate: BitRate | None = None
    """Rate of the interconnect between partners, in each direction; required, there is no default."""
    interconnect_delay: Duration | None = None
    """One-way delay of the interconnect; required."""
    interconnect_cpu: Duration | None = None
    """CPU time of both partners per message (at most 32 KiB); required."""
    takeover: Takeover = "none"
    """Number of a failed controller: its partner serves both volumes."""
    coalesce: Annotated[Duration, Field(le=10_000_000)] = 0
    """Interrupt coalescing of every adapter, up to 10 ms."""
    path_failures: Annotated[list[PathFailure], Field(min_length=1, max_length=64)] | None = None
    """Paths that fail while the load runs."""
    path_noticed: Duration = 0
    """Time until clients notice a failure, and until they use the path again after its end."""
    media: MediaModel | None = None
    """The media of the volume; default: memory that takes no time."""

    @property
    def controllers_there(self) -> int:
        """The controllers that serve: all but one that was taken over."""
        return self.controllers - (self.takeover != "none")

    def ends(self, controller: int) -> tuple[int | None, int | None]:
        """For a volume, by its own controller's number: the controller that clients reach directly, and the one that
        forwards to it."""
        partner = ((controller - 1) ^ 1) + 1
        if self.takeover == controller:
            return partner, None
        direct = controller if self.paths_to != "partner" else None
        forwards = self.paths_to != "owner" and self.takeover != partner
        return direct, partner if forwards else None


Nanoseconds: TypeAlias = Annotated[int, Field(ge=0)]


class Cost(BaseModel):
    """A figure and its source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ns: Nanoseconds
    low_ns: Nanoseconds | None = None
    """The 95 % interval, both ends or neither: then the figure is taken as it is."""
    high_ns: Nanoseconds | None = None
    source: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if (self.low_ns is None) != (self.high_ns is None):
            raise ValueError("give both low_ns and high_ns, or neither")
        if self.interval and not self.interval[0] <= self.ns <= self.interval[1]:
            raise ValueError(f"{self.ns} does not lie between low_ns and high_ns")
        return self

    @property
    def interval(self) -> tuple[int, int] | None:
        """The ends of its 95 % interval, ns."""
        return None if self.low_ns is None or self.high_ns is None else (self.low_ns, self.high_ns)


class Costs(BaseModel):
    """CPU time of the work of one side's thread."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    wake: Cost
    """To wake it where it slept, for 30 µs or longer where `wake_short` is given."""
    turn: Cost
    """A turn, in which it does all that has come."""
    send: Cost
    """To send what a connection has."""
    io: Cost
    """Each I/O."""
    kib: Cost
    """Each KiB received, and sent where `kib_sent` is not given."""
    segment: Cost
    """Each segment sent or received."""
    kib_sent: Cost | None = None
    """Each KiB sent."""
    wake_short: Cost | None = None
    """To wake it where it has just fallen asleep, and after less than 30 µs in proportion."""
    wake_delay: Cost | None = None
    """How long it takes, besides, until it is at work: no CPU time, and less after less than 30 µs."""

    def figures(self) -> dict[str, Cost]:
        """The given figures by their names, in this order."""
        each = {name: getattr(self, name) for name in Costs.model_fields}
        return {name: cost for name, cost in each.items() if cost is not None}


class Spread(BaseModel):
    """A variation: its standard deviation as a share of its mean, and its source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    percent: Annotated[int, Field(ge=0, le=100)]
    source: Annotated[str, Field(min_length=1)]


class Sides(BaseModel):
    """Costs of one protocol."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    initiator: Costs
    """With `hypervisor`: costs of the guests alone."""
    target: Costs
    hypervisor: Costs | None = None
    """Costs that the initiators' hypervisor adds to the same work; its CPU is reported separately."""

    def by_name(self) -> dict[str, Costs]:
        """The given sides."""
        each = {"initiator": self.initiator, "target": self.target, "hypervisor": self.hypervisor}
        return {name: costs for name, costs in each.items() if costs is not None}


class CostTable(BaseModel):
    """A file of costs: protocol → sides, each figure with its source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str
    """Which machine, which stack."""
    turn_cv: Spread | None = None
    """How much turns of any thread vary; each takes what it costs when not given."""
    protocols: Mapping[str, Sides]

    @property
    def has_intervals(self) -> bool:
        """Whether any figure has an interval."""
        sides = [side for each in self.protocols.values() for side in each.by_name().values()]
        return any(cost.interval for side in sides for cost in side.figures().values())

    def digest(self) -> str:
        """Equal for equal tables, whatever the layout of their files."""
        return hashlib.sha256(self.model_dump_json(exclude_none=True).encode()).hexdigest()


class CostsError(ValueError):
    """Why there is no table of that name."""


def read_costs(name: str) -> CostTable:
    """A built-in table by its name, or a file by its path, in its current state. Raises CostsError."""
    built_in = _TABLES / f"{name}.yaml"
    path = built_in if "/" not in name and built_in.is_file() else Path(name)
    try:
        return _parsed(name, path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        names = ", ".join(sorted(each.stem for each in _TABLES.glob("*.yaml")))
        raise CostsError(f"there is no file {name} and no built-in table of that name; there is {names}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CostsError(f"{name} cannot be read: {error}") from error


@lru_cache(maxsize=8)
def _parsed(name: str, text: str) -> CostTable:
    try:
        document = read_yaml(name, text)
        if document.problems:
            raise StudyError(name, document.problems)
        return CostTable.model_validate(document.data)
    except StudyError as error:
        raise CostsError(error.lines()[0]) from error
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"])) or "the whole file"
        raise CostsError(f"{name} is not a table of costs: {at}: {first['msg']}") from error
