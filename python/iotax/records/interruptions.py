"""Interruptions of a run, its events, and the I/Os of its short intervals."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from iotax.records.base import Record

WRONG_DATA = "wrong data"
"""In the reason of an attempt in which a block was lost, stale or torn; the engine's word (`Wrong`)."""
AFTER_EVENT = f"{WRONG_DATA} after an event"
"""Start of the reason if that was after an event."""


class Gaps(Record):
    """Times without a completed I/O, from the window's start to its end."""

    longest_ns: int
    is_bound: bool = False
    """`longest_ns` is an upper bound: of several threads or clients, none of whose common gaps is listed."""
    listed_from_ns: int
    """`listed` has every gap of this length or longer."""
    listed: list[tuple[int, int]] = Field(default=[])
    """(start from the window's start, duration) in ns, by start."""
    of: Literal["all", "client"] = "all"
    """`client`: the longest of any one client, where their clocks cannot tell when all of them had one."""


class Counts(Record):
    """I/Os completed in intervals of the window, one after another."""

    interval_ns: int
    ios: list[int] = Field(default=[])

    def wider(self, ios_min: float, interval_max_ns: int) -> Counts | None:
        """Intervals wide enough for this many I/Os on average; None if even the widest allowed have fewer."""
        mean = sum(self.ios) / len(self.ios) if self.ios else 0.0
        if mean * interval_max_ns < ios_min * self.interval_ns:
            return None
        width = max(1, -(-ios_min // mean))
        width = min(int(width), interval_max_ns // self.interval_ns)
        whole = len(self.ios) // width * width
        together = [sum(self.ios[at : at + width]) for at in range(0, whole, width)]
        return Counts(interval_ns=width * self.interval_ns, ios=together)


class Happened(Record):
    """An event of a run. Times are from the start of the measured window, by the clock of the machine that runs iotax;
    the load's window is known to it by the same clock."""

    what: str
    """ "freeze target"."""
    asked_ns: int
    """When the study wanted it."""
    began_ns: int
    """When it was done."""
    undone_ns: int
