"""A media model: servers with one queue, or rotating disks; the same in virtual and real time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, WithJsonSchema, model_serializer

from iotax.study.fields import Duration, Percent, Section, Size

MediaServers: TypeAlias = Annotated[int, Field(ge=1, le=65536)]
Distribution: TypeAlias = Literal["constant", "uniform", "exponential", "lognormal"]
TIMES_MAX = 10_000
"""Longer lists are reduced to this many times, each the middle of an equal part."""
ServiceTimes: TypeAlias = Annotated[
    list[Duration],
    Field(min_length=1, max_length=TIMES_MAX),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "minItems": 1, "maxItems": TIMES_MAX, "items": {"type": "string"}},
            ],
            "examples": ["latencies.txt"],
        }
    ),
]
"""In a study file the name of a file, which is read when the study is (`service_times.py`)."""
Parity: TypeAlias = Annotated[int, Field(ge=1, le=2)]
RaidGroup: TypeAlias = Annotated[int, Field(ge=2, le=65536)]
Turns: TypeAlias = Annotated[int, Field(ge=1, le=100_000)]


class MediaModel(Section):
    """What a simulated volume is kept on: servers that work on one queue, or rotating disks, each with a queue."""

    servers: MediaServers = 1
    """Operations that are worked on at once; the others wait in the order of their coming. With `seek`: disks of each \
controller."""
    service: Duration | None = None
    """Mean time of an operation."""
    distribution: Distribution = "constant"
    """Distribution of the service time; uniform is from 0 to twice the mean; lognormal has a `p99`."""
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
    """Read cache of each controller in front of rotating disks. Its hit rate for random reads is its share of \
`data`."""
    data: Size | None = None
    """Data of each virtual machine, for `cache`; the simulated volume itself may be smaller."""
    destage: Percent | None = None
    """Non-volatile write cache in front of rotating disks: what each write costs later, as a share of a disk \
operation."""
    parity: Parity | None = None
    """RAID: parity disks per stripe, 1 (RAID 5) or 2 (RAID 6). A write reads and then writes its block and the parity \
blocks; `destage` is a share of that."""
    raid_group: RaidGroup | None = None
    """Disks per RAID group; default: all disks form one group."""

    @model_serializer(mode="wrap")
    def _without_disks(self, handler: Any) -> dict[str, Any]:
        """Unset fields are not written, so that earlier studies keep their digests."""
        return {name: value for name, value in handler(self).items() if value is not None}

    def read_hits(self, vms: float) -> float:
        """The share of random reads that the cache answers for this many virtual machines per controller."""
        return min(1.0, self.cache / (self.data * vms)) if self.cache and self.data else 0.0

    def faster(self, times: float) -> MediaModel:
        """The same media, this many times as fast."""
        names = ("service", "p99", "collect", "seek")
        update: dict[str, Any] = {name: max(1, round(ns / times)) for name in names if (ns := getattr(self, name))}
        if self.service_times:
            update["service_times"] = [max(1, round(ns / times)) for ns in self.service_times]
        return self.model_copy(update=update | ({"rpm": round(self.rpm * times)} if self.rpm else {}))

    @property
    def write_ns(self) -> float:
        """Total disk time of a write, as far as the write waits for it."""
        if self.destage is not None:
            return 0.0
        return self.mean_ns if self.parity is None else (1 + self.parity) * (self.mean_ns + self.turn_ns)

    @property
    def turn_ns(self) -> int:
        """Time of one turn of the disk; 0 if it does not turn."""
        return round(60e9 / self.rpm) if self.rpm else 0

    @property
    def mean_ns(self) -> float:
        """Mean time of an operation that no cache answers, without garbage collection."""
        if self.service_times:
            return sum(self.service_times) / len(self.service_times)
        return (self.service or 0) if self.seek is None else self.seek + self.turn_ns / 2


def impossible(media: MediaModel) -> Iterator[tuple[str, str]]:
    """Each field with the reason why such media are impossible; "" stands for all fields."""
    if media.service == 0:
        yield "service", "an operation that takes no time is memory; leave media out"
    yield from _of_distribution(media)
    if media.seek is None:
        for name in ("rpm", "cache", "destage", "parity", "raid_group"):
            if getattr(media, name) is not None:
                yield name, "it belongs to rotating disks; say their `seek:` too"
        if media.service is None and media.service_times is None:
            yield "", "say how long an operation takes: `service: 100us`, or `seek: 3.4ms` and `rpm: 15000`"
        if (media.collect is None) != (media.collect_every is None):
            said, other = ("collect", "collect_every: 64MiB")
            if media.collect is None:
                said, other = ("collect_every", "collect: 3ms")
            yield said, f"garbage is collected for a time, after so much was written; say `{other}` too"
        elif media.collect == 0:
            yield "collect", "a pause that takes no time is none; leave `collect` and `collect_every` out"
    else:
        if media.service is not None:
            yield "service", "rotating disks take a seek and half a turn; leave this out"
        for name in ("service_times", "collect", "collect_every"):
            if getattr(media, name) is not None:
                yield name, "rotating disks take a seek and half a turn, and collect no garbage; leave this out"
        if media.rpm is None:
            yield "seek", "rotating disks have a speed; say `rpm: 15000`"
        yield from _of_parity(media)


def _of_parity(media: MediaModel) -> Iterator[tuple[str, str]]:
    if media.parity is None:
        if media.raid_group is not None:
            yield "raid_group", "groups matter for parity alone; say `parity: 1` (RAID 5) or `parity: 2` (RAID 6) too"
        return
    group = media.raid_group or media.servers
    if group <= media.parity:
        yield "parity", f"a group of {group} has no disk left for data; say more `servers` or another `raid_group`"
    elif media.servers % group:
        yield "raid_group", f"{media.servers} servers are not whole groups of {group}"


_P99_MOST = 14
"""Limit of p99 over the mean: no lognormal distribution has more than 14.97."""


def _of_distribution(media: MediaModel) -> Iterator[tuple[str, str]]:
    if media.service_times is not None:
        for name in ("service", "p99"):
            if getattr(media, name) is not None:
                yield name, "`service_times` say how long operations take; leave one of both out"
        if media.distribution != "constant":
            yield "distribution", "`service_times` are a distribution of their own; leave one of both out"
        if not any(media.service_times):
            yield "service_times", "operations that take no time are memory; leave media out"
        return
    if media.distribution != "lognormal":
        if media.p99 is not None:
            yield "p99", "it belongs to `distribution: lognormal`"
    elif media.p99 is None:
        yield "distribution", "a lognormal distribution has a mean and a `p99`; say `p99: 400us`"
    elif media.service and not media.service < media.p99 <= _P99_MOST * media.service:
        yield "p99", f"it is more than the mean service time, and {_P99_MOST} times as much at most"
