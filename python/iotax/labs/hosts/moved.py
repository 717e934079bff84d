"""Traffic of a host's interfaces and disks over the window, for an attempt's log."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from iotax.records import Record
from iotax.units import show_share

_NAMED_MAX = 8
"""Number of each kind to list, the busiest first: a host may have hundreds."""
_LOOPBACK = "lo"


class _Interface(Record):
    name: str
    received_bytes: int
    received_dropped: int
    sent_bytes: int
    sent_dropped: int

    @property
    def bytes(self) -> int:
        return self.received_bytes + self.sent_bytes

    def said(self) -> str:
        dropped = self.received_dropped + self.sent_dropped
        lost = f", {dropped} packets dropped" if dropped else ""
        return f"{self.name}: {_mb(self.received_bytes)} received, {_mb(self.sent_bytes)} sent{lost}"


class _Disk(Record):
    name: str
    reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    busy_ns: int

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def said(self, window_ns: int) -> str:
        reads, writes = (
            f"{self.reads} reads ({_mb(self.read_bytes)})",
            f"{self.writes} writes ({_mb(self.written_bytes)})",
        )
        return f"{self.name}: {reads}, {writes}, busy {show_share(self.busy_ns / (window_ns or 1), 0)} of the time"


class _Counters(Record):
    interfaces: list[_Interface] = Field(default=[])
    disks: list[_Disk] = Field(default=[])


def moved(host: str, observed: Mapping[str, object]) -> list[str]:
    """Lines for interfaces and disks with traffic, the busiest first, from the engine's `observed`. Raises
    ValidationError."""
    counters = _Counters.model_validate({name: observed.get(name, []) for name in ("interfaces", "disks")})
    window = observed.get("window")
    window_ns = int(window["duration_ns"]) if isinstance(window, Mapping) else 0
    links = [each for each in counters.interfaces if each.name != _LOOPBACK and each.bytes]
    disks = [each for each in counters.disks if each.bytes]
    links.sort(key=lambda each: -each.bytes)
    disks.sort(key=lambda each: -each.bytes)
    said = [each.said() for each in links[:_NAMED_MAX]] + [each.said(window_ns) for each in disks[:_NAMED_MAX]]
    return [f"{host}: {each}" for each in said]


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
