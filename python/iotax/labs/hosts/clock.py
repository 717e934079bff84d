"""Measures how much a host's clock differs from this machine's: of several probes, the one with the shortest round trip
counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from iotax.places import Task

PROBES_MIN, PROBES_MAX = 3, 20
"""Number of probes for each host."""
_PROBE_S = 10.0
NEAR_AT_A_TIME, FAR_AT_A_TIME = 2, 16
"""Number of hosts probed at the same time."""
_FAR_NS = 10_000_000
"""A round trip of hosts that do not keep the near ones waiting."""


class Ours:
    """Our wall clock as it stood when this was made: one that is set meanwhile changes nothing."""

    def __init__(self) -> None:
        self._ahead_ns = time.time_ns() - time.monotonic_ns()

    def now_ns(self) -> int:
        return self._ahead_ns + time.monotonic_ns()


@dataclass(frozen=True)
class Offset:
    """The offset of a host's wall clock."""

    ahead_ns: int
    """Add it to a time of ours to have the host's."""
    round_trip_ns: int
    """The least of all probes."""
    kernel_error_ns: int | None = None
    """The maximum error that the host's kernel assumes for its clock; None if it is not synchronised."""
    longest_ns: int = 0
    """The longest round trip of all probes."""

    @property
    def error_ns(self) -> int:
        """The error of `ahead_ns`: the host read its clock at some time within the round trip."""
        return (self.round_trip_ns + 1) // 2

    def then(self, further: Offset) -> Offset:
        """The offset of a clock compared with this one: errors add up."""
        return Offset(
            self.ahead_ns + further.ahead_ns,
            self.round_trip_ns + further.round_trip_ns,
            further.kernel_error_ns,
            self.longest_ns + further.longest_ns,
        )


def offset_of(sent_ns: int, host_ns: int, heard_ns: int, kernel_error_ns: int | None = None) -> Offset:
    """The offset from one probe (RFC 5905 §8, with one time stamp of the host)."""
    return Offset(host_ns - (sent_ns + heard_ns) // 2, heard_ns - sent_ns, kernel_error_ns)


class Turns:
    """The clocks of a study's hosts.

    If hundreds were probed at the same time, round trips would include the time that answers wait for this process, and
    the more so the busier it is.
    """

    def __init__(self, known_ns: int = 0) -> None:
        """A clock known to within `known_ns` is no longer probed."""
        self.near, self.far = asyncio.Semaphore(NEAR_AT_A_TIME), asyncio.Semaphore(FAR_AT_A_TIME)
        self._known_ns = known_ns

    def know(self, found: Sequence[Offset]) -> bool:
        """Whether these probes of one host are enough."""
        known = min(each.error_ns for each in found) <= self._known_ns
        return len(found) >= (PROBES_MIN if known else PROBES_MAX)


async def measure(agent: Task, ours: Ours, in_turns: Turns) -> Offset:
    """Raises HostFault."""

    async def asked() -> tuple[int, int | None]:
        return await agent.clock(_PROBE_S)

    return await compared(asked, ours, in_turns)


async def compared(asked: Callable[[], Awaitable[tuple[int, int | None]]], ours: Ours, in_turns: Turns) -> Offset:
    """Compares the clock that answers with its time in ns and its kernel's error."""

    async def probe() -> Offset:
        sent_ns = ours.now_ns()
        unix_ns, error_ns = await asked()
        return offset_of(sent_ns, unix_ns, ours.now_ns(), error_ns)

    async with in_turns.near:
        found = [await probe()]
        while found[0].round_trip_ns < _FAR_NS and not in_turns.know(found):
            found.append(await probe())
    # Distant hosts would delay the others, and this machine has little work with them compared with the round trip.
    if not in_turns.know(found):
        async with in_turns.far:
            while not in_turns.know(found):
                found.append(await probe())
    best = min(found, key=lambda offset: offset.round_trip_ns)
    return replace(best, longest_ns=max(offset.round_trip_ns for offset in found))


def off_by_ns(at_ns: int, left_ns: int, sent_ns: int, heard_ns: int) -> int:
    """The minimum delay with which a host starts that was to start at `at_ns`: it reported the time left at some moment
    between our sending and receiving. Below 0 it starts earlier; 0 if both are possible. This reveals a host's clock
    that was set after the comparison."""
    earliest_ns, latest_ns = sent_ns + left_ns, heard_ns + left_ns
    return earliest_ns - at_ns if earliest_ns > at_ns else min(0, latest_ns - at_ns)
