"""The shape of a row of the table of protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Query = Mapping[str, Sequence[str]]
WHERE = "under connection, or beside this label's endpoint"


@dataclass(frozen=True)
class Scheme:
    """The form of endpoints of one kind of target: `NAME://HOST[:PORT]/…`."""

    name: str
    port: int
    """The port if an endpoint has none."""
    title: str
    """What is reached, in a table of endpoints."""
    form: str
    """How such an endpoint is written; empty if only a host's kernel speaks the protocol."""
    wrong: Callable[[str, Sequence[str], Query], str]
    """The error in the host, the path's names and the query; empty if there is none."""
    query: tuple[str, ...] = ()
    """Options after the `?`."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Unsupported options after the `?` → what supports them."""
    hints: Mapping[str, str] = field(default_factory=dict)
    """What to do, by kind of failure. `{host}` and `{port}` are the endpoint's, `{usual_port}` is `port`."""
    kernel_title: str = ""
    """The title of the path of a host's own kernel; empty if there is none."""
    kernel_form: str = ""
    kernel_query: tuple[str, ...] = ()
    kernel_wrong: Callable[[str, Sequence[str], Query], str] | None = None
    """Like `wrong`, if endpoints of a kernel's path have another form."""


@dataclass(frozen=True)
class Protocol:
    """A protocol as studies, labs and reports name it."""

    name: str
    title: str
    """Its name in reports."""
    colour: str
    """Its own in every chart: a name of `report.palette`."""
    labs: tuple[str, ...] = ()
    """The labs that serve it themselves: loopback, vm, hosts, sim."""
    carrier: Literal["none", "tcp", "rdma", "fcoe", "loop"] = "tcp"
    """Its transport in the labs."""
    family: Literal["", "nfs", "scsi", "nvme"] = ""
    """The command set that it carries."""
    bracket: str = ""
    """The protocol whose bounds it forms with another row: one has all of the transport in software, the other none of
    it."""
    engine_carrier: Literal["", "frames"] = ""
    """Its transport if iotax's own engine speaks it and that differs."""
    scheme: Scheme | None = None
    """Schemes of endpoints that iotax's own initiator reaches."""
    kernel_scheme: Scheme | None = None
    """Schemes of endpoints that only a host's kernel reaches, if their form differs."""
    options: frozenset[str] = field(default_factory=frozenset)
    """Fields of a study's `connection` for the engine's initiator."""
    kernel_options: frozenset[str] = field(default_factory=frozenset)
    """Fields of a study's `connection` that only a host's kernel receives."""
    has_paths: bool = False
    """The engine's initiator reaches one unit through several portals."""
    reports_access: bool = False
    """The engine's target reports for each portal how it reaches the volume, and the engine's initiator chooses paths
    by that."""
    access_options: Mapping[str, str] = field(default_factory=dict)
    """Options of its exports with which the engine's target reports that."""
    kernel_module: str = ""
    """Linux modules for the connecting side; empty if hosts do not need them."""
    served_port: int = 0
    """The port on which `iotax serve` offers it, if another protocol uses its scheme's port there."""
    client: Callable[[str, int, str, Query, bool], list[str]] | None = None
    """Commands of a Linux client, from host, port, path, query and whether the volume is read-only."""


def is_port(text: str) -> bool:
    return text.isdecimal() and 0 < int(text) < 65536


def portal(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


FIO = "fio --name=reads --direct=1 --rw=randread --bs=4k --iodepth=32 --ioengine=libaio --time_based --runtime=10"
