"""How the clocks of many hosts are compared: few hosts at a time, the nearest first."""

from __future__ import annotations

import asyncio

from iotax.labs.hosts.clock import (
    FAR_AT_A_TIME,
    NEAR_AT_A_TIME,
    PROBES_MAX,
    PROBES_MIN,
    Offset,
    Ours,
    Turns,
    measure,
)
from iotax.places import Event, Task

MS = 1_000_000


class Wire(Ours):
    """The controller's clock, and how many probes are in flight."""

    def __init__(self) -> None:
        self.ns = self.under_way = self.most = 0

    def now_ns(self) -> int:
        return self.ns


class Asked(Task):
    """A host with a network delay of `way_ns`. `heard` lists whose probes came back, in order."""

    def __init__(self, wire: Wire, heard: list[str], name: str = "h1", way_ns: int = MS) -> None:
        self._wire, self._heard, self._name, self._way_ns = wire, heard, name, way_ns

    @property
    def log(self) -> str:
        return ""

    async def alive(self, wait_s: float = 0.0) -> bool:
        return True

    async def ending(self) -> str:
        return ""

    def send_line(self, line: bytes) -> None:
        assert line == b'{"command": "clock"}\n'
        self._wire.under_way += 1
        self._wire.most = max(self._wire.most, self._wire.under_way)

    async def event(self, within_s: float) -> Event:
        await asyncio.sleep(0)
        self._wire.ns += self._way_ns
        self._wire.under_way -= 1
        self._heard.append(self._name)
        return {"event": "clock", "unix_ns": self._wire.ns + 7 * MS, "error_ns": None}

    async def end(self) -> None:
        pass


def compared(tasks: list[Asked], wire: Wire, known_ns: int = 0) -> list[Offset]:
    async def all_of_them() -> list[Offset]:
        in_turns = Turns(known_ns)
        return await asyncio.gather(*(measure(task, wire, in_turns) for task in tasks))

    return asyncio.run(all_of_them())


def test_few_hosts_are_asked_at_the_same_time_and_each_as_often() -> None:
    wire, heard = Wire(), list[str]()
    found = compared([Asked(wire, heard, f"h{number}", way_ns=1000) for number in range(200)], wire)
    assert wire.most == NEAR_AT_A_TIME
    assert {heard.count(f"h{number}") for number in range(200)} == {PROBES_MAX}
    # A probe waits only for the other probes in flight.
    assert max(each.round_trip_ns for each in found) <= NEAR_AT_A_TIME * 1000


def test_a_clock_that_is_known_well_enough_is_asked_for_no_longer() -> None:
    wire, heard = Wire(), list[str]()
    [near] = compared([Asked(wire, heard, "near", way_ns=MS)], wire, known_ns=MS // 2)
    [next_to_it] = compared([Asked(wire, heard, "next to it", way_ns=MS + 2)], wire, known_ns=MS // 2)
    assert near.error_ns <= MS // 2 < next_to_it.error_ns
    assert (heard.count("near"), heard.count("next to it")) == (PROBES_MIN, PROBES_MAX)


def test_a_host_far_away_keeps_no_other_waiting() -> None:
    wire, heard = Wire(), list[str]()
    tasks = [Asked(wire, heard, f"far{number}", way_ns=50 * MS) for number in range(16)]
    compared([*tasks, Asked(wire, heard, "last")], wire)
    # The last host is probed before the first ones are done.
    assert heard[: heard.index("last")].count("far0") < PROBES_MAX
    assert wire.most > NEAR_AT_A_TIME


def test_of_hosts_that_are_slow_to_answer_no_more_are_asked_than_can_be_heard() -> None:
    """A busy controller measures long round trips to all hosts. Probing all of them at once would add to them."""
    wire, heard = Wire(), list[str]()
    compared([Asked(wire, heard, f"h{number}", way_ns=20 * MS) for number in range(200)], wire)
    assert FAR_AT_A_TIME < wire.most <= NEAR_AT_A_TIME + FAR_AT_A_TIME
    assert {heard.count(f"h{number}") for number in range(200)} == {PROBES_MAX}
