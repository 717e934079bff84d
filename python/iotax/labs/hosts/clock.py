"""By how much a host's clock differs from ours: probes over the channel, the one with the least round trip wins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from iotax.places import Task

PROBES_MIN, PROBES_MAX = 3, 20
"""Of each host."""
_PROBE_S = 10.0
NEAR_AT_A_TIME, FAR_AT_A_TIME = 2, 16
"""Hosts that are asked at the same time."""
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
    """Of a host's wall clock."""

    ahead_ns: int
    """Add it to a time of ours to have the host's."""
    round_trip_ns: int
    """The least of all probes."""
    kernel_error_ns: int | None = None
    """How wrong the host's kernel takes its clock to be at most; None where nothing keeps it in step."""
    longest_ns: int = 0
    """The longest round trip of all probes."""

    @property
    def error_ns(self) -> int:
        """By how much `ahead_ns` may be wrong: the host read its clock some time within the round trip."""
        return (self.round_trip_ns + 1) // 2

    def then(self, further: Offset) -> Offset:
        """Of a clock that was compared with this one: errors add up."""
        return Offset(
            self.ahead_ns + further.ahead_ns,
            self.round_trip_ns + further.round_trip_ns,
            further.kernel_error_ns,
            self.longest_ns + further.longest_ns,
        )


def offset_of(sent_ns: int, host_ns: int, heard_ns: int, kernel_error_ns: int | None = None) -> Offset:
    """From one probe (RFC 5905 §8, with one time stamp of the host)."""
    return Offset(host_ns - (sent_ns + heard_ns) // 2, heard_ns - sent_ns, kernel_error_ns)


class Turns:
    """Of the hosts of one study. Were hundreds of them asked at the same time, what would be measured as round trips is
    how long their answers wait for us, and the busier we are, the longer."""

    def __init__(self, known_ns: int = 0) -> None:
        """A clock that is known to `known_ns` is asked for no longer."""
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
    """Of the clock that answers with its time, ns, and its kernel's error."""

    async def probe() -> Offset:
        sent_ns = ours.now_ns()
        unix_ns, error_ns = await asked()
        return offset_of(sent_ns, unix_ns, ours.now_ns(), error_ns)

    async with in_turns.near:
        found = [await probe()]
        while found[0].round_trip_ns < _FAR_NS and not in_turns.know(found):
            found.append(await probe())
    # Those far away would keep the others waiting, and others' work here is little beside their way.
    if not in_turns.know(found):
        async with in_turns.far:
            while not in_turns.know(found):
                found.append(await probe())
    best = min(found, key=lambda offset: offset.round_trip_ns)
    return replace(best, longest_ns=max(offset.round_trip_ns for offset in found))


def off_by_ns(at_ns: int, left_ns: int, sent_ns: int, heard_ns: int) -> int:
    """By how much later than `at_ns`, at least, a host begins that was told so: some time between our sending and
    our hearing it said how much was left. Below 0 it begins earlier; 0 where both are possible. A host's clock that was
    set after it was compared shows so."""
    earliest_ns, latest_ns = sent_ns + left_ns, heard_ns + left_ns
    return earliest_ns - at_ns if earliest_ns > at_ns else min(0, latest_ns - at_ns)
