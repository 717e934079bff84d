"""The shape of a row of the table of protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Query = Mapping[str, Sequence[str]]
WHERE = "under connection, or beside this label's endpoint"


@dataclass(frozen=True)
class Scheme:
    """How endpoints of one kind of target are written: `NAME://HOST[:PORT]/…`."""

    name: str
    port: int
    """Where an endpoint names none."""
    title: str
    """As a table of endpoints names it."""
    form: str
    """What iotax's own initiator reaches; empty where only a host's kernel does."""
    wrong: Callable[[str, Sequence[str], Query], str]
    """What is wrong with the host, the names of the path and the query; empty where nothing is."""
    query: tuple[str, ...] = ()
    """What may stand behind the `?`."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """What is asked for in vain behind the `?` → what supports it."""
    hints: Mapping[str, str] = field(default_factory=dict)
    """What to do, by the kind of failure. `{host}` and `{port}` are the endpoint's,
    `{usual_port}` is `port`."""
    kernel_title: str = ""
    """As `title`, of the path that a host's own kernel makes; empty where there is none."""
    kernel_form: str = ""
    kernel_query: tuple[str, ...] = ()
    kernel_wrong: Callable[[str, Sequence[str], Query], str] | None = None
    """As `wrong`, where the endpoints of a kernel's path are written in another way."""


@dataclass(frozen=True)
class Protocol:
    """A protocol as studies, labs and reports name it."""

    name: str
    title: str
    """As the field writes it."""
    colour: str
    """Its own in every chart: a name of `report.palette`."""
    labs: tuple[str, ...] = ()
    """Which labs serve it themselves: loopback, vm, hosts, sim."""
    carrier: Literal["none", "tcp", "rdma", "fcoe", "loop"] = "tcp"
    """What transports it in the labs."""
    family: Literal["", "nfs", "scsi", "nvme"] = ""
    """Whose commands it carries."""
    bracket: str = ""
    """What it stands for together with another row: one has all of the transport in software, the other none of it."""
    engine_carrier: Literal["", "frames"] = ""
    """What transports it where iotax's own engine speaks it, if not that."""
    scheme: Scheme | None = None
    """Of endpoints that iotax's own initiator reaches."""
    kernel_scheme: Scheme | None = None
    """Of endpoints that only a host's kernel reaches, where they are written in another way."""
    options: frozenset[str] = field(default_factory=frozenset)
    """Of a study's `connection`, those that the engine's initiator is told of."""
    kernel_options: frozenset[str] = field(default_factory=frozenset)
    """Fields of a study's `connection` that only a host's kernel receives."""
    kernel_module: str = ""
    """Of Linux, for the side that connects; empty where hosts are not asked for it."""
    served_port: int = 0
    """Where `iotax serve` offers it, if its scheme's port is another protocol's there."""
    client: Callable[[str, int, str, Query, bool], list[str]] | None = None
    """Commands of a Linux client, from host, port, path, query and whether the volume is read-only."""


def is_port(text: str) -> bool:
    return text.isdecimal() and 0 < int(text) < 65536


def portal(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


FIO = "fio --name=reads --direct=1 --rw=randread --bs=4k --iodepth=32 --ioengine=libaio --time_based --runtime=10"
