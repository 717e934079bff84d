"""By how much a host's clock differs from ours: probes over the channel, the one with the least round trip wins."""

from __future__ import annotations

import time
from dataclasses import dataclass

from iotax.places import Task

PROBES = 20
_PROBE_S = 10.0


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

    @property
    def error_ns(self) -> int:
        """By how much `ahead_ns` may be wrong: the host read its clock some time within the round trip."""
        return (self.round_trip_ns + 1) // 2


def offset_of(sent_ns: int, host_ns: int, heard_ns: int, kernel_error_ns: int | None = None) -> Offset:
    """From one probe (RFC 5905 §8, with one time stamp of the host)."""
    return Offset(host_ns - (sent_ns + heard_ns) // 2, heard_ns - sent_ns, kernel_error_ns)


async def measure(agent: Task, ours: Ours) -> Offset:
    """Raises HostFault."""
    found = []
    for _ in range(PROBES):
        sent_ns = ours.now_ns()
        agent.send({"command": "clock"})
        event = await agent.expect("clock", _PROBE_S)
        found.append(offset_of(sent_ns, event["unix_ns"], ours.now_ns(), event["error_ns"]))
    return min(found, key=lambda offset: offset.round_trip_ns)


def off_by_ns(at_ns: int, left_ns: int, sent_ns: int, heard_ns: int) -> int:
    """By how much later than `at_ns`, at least, a host begins that was told so: some time between our sending and
    our hearing it said how much was left. Below 0 it begins earlier; 0 where both are possible. A host's clock that was
    set after it was compared shows so."""
    earliest_ns, latest_ns = sent_ns + left_ns, heard_ns + left_ns
    return earliest_ns - at_ns if earliest_ns > at_ns else min(0, latest_ns - at_ns)
