"""Media as a model: servers that work on one queue, or disks that turn; in virtual time and in real time alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_serializer

from iotax.study.fields import Duration, Percent, Section, Size

MediaServers: TypeAlias = Annotated[int, Field(ge=1, le=65536)]
Distribution: TypeAlias = Literal["constant", "uniform", "exponential"]
Turns: TypeAlias = Annotated[int, Field(ge=1, le=100_000)]


class MediaModel(Section):
    """What a simulated volume is kept on: servers that work on one queue, or disks that turn, each with a queue."""

    servers: MediaServers = 1
    """Operations that are worked on at once; the others wait in the order of their coming. With `seek`: disks of each \
controller."""
    service: Duration | None = None
    """Mean time of an operation."""
    distribution: Distribution = "constant"
    """Of the service time; uniform is from 0 to twice the mean."""
    seek: Duration | None = None
    """Disks that turn, in place of `service`: the mean seek between random places."""
    rpm: Turns | None = None
    """Turns a minute of disks that turn."""
    cache: Size | None = None
    """Read cache of each controller before disks that turn. It answers as much of the random reads as it holds of \
`data`."""
    data: Size | None = None
    """Data of each virtual machine, for `cache`; the simulated volume itself may be smaller."""
    destage: Percent | None = None
    """A cache that lasts answers writes before they are on disks that turn. Of a disk's operation, what each costs \
later."""

    @model_serializer(mode="wrap")
    def _without_disks(self, handler: Any) -> dict[str, Any]:
        """Studies without disks that turn are written as they were before there were any: they keep their digests."""
        return {name: value for name, value in handler(self).items() if value is not None}

    def read_hits(self, vms: float) -> float:
        """The share of random reads that the cache answers, for so many virtual machines on a controller."""
        return min(1.0, self.cache / (self.data * vms)) if self.cache and self.data else 0.0

    def faster(self, times: float) -> MediaModel:
        """The same, so many times as fast."""
        update = {name: max(1, round(ns / times)) for name in ("service", "seek") if (ns := getattr(self, name))}
        return self.model_copy(update=update | ({"rpm": round(self.rpm * times)} if self.rpm else {}))

    @property
    def turn_ns(self) -> int:
        """Of a disk."""
        return round(60e9 / self.rpm) if self.rpm else 0

    @property
    def mean_ns(self) -> float:
        """Mean time of an operation that no cache answers."""
        return (self.service or 0) if self.seek is None else self.seek + self.turn_ns / 2


def impossible(media: MediaModel) -> Iterator[tuple[str, str]]:
    """Each field with the reason why no media are so; "" stands for all of them."""
    if media.service == 0:
        yield "service", "an operation that takes no time is memory; leave media out"
    if media.seek is None:
        for name in ("rpm", "cache", "destage"):
            if getattr(media, name) is not None:
                yield name, "it belongs to disks that turn; say their `seek:` too"
        if media.service is None:
            yield "", "say how long an operation takes: `service: 100us`, or `seek: 3.4ms` and `rpm: 15000`"
    else:
        if media.service is not None:
            yield "service", "disks that turn take a seek and half a turn; leave this out"
        if media.rpm is None:
            yield "seek", "disks that turn have a speed; say `rpm: 15000`"
