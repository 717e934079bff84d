"""One start sent to several places: hosts with clocks at the controller's pace, and guests with other clocks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

import pytest

from iotax.engine import EngineError
from iotax.labs.hosts.clock import Offset
from iotax.labs.hosts.measure import Answer, Job, ahead_of, measure
from iotax.places import Binary, Event, Place, Task
from iotax.places.waiting import wait_for

MS = 1_000_000


class Clock:
    """A clock that starts `ahead_ns` ahead of the controller's and runs at `pace` times its speed."""

    def __init__(self, ahead_ns: int, pace: float) -> None:
        self._ahead_ns, self._pace, self._since_ns = ahead_ns, pace, time.time_ns()

    def now_ns(self) -> int:
        return self._since_ns + self._ahead_ns + round((time.time_ns() - self._since_ns) * self._pace)

    def ours_s(self, span_ns: int) -> float:
        """The span by the controller's clock, in s."""
        return max(0.0, span_ns / self._pace / 1e9)


class Spoken(Task):
    """Answers like an engine's session, but does no I/O."""

    def __init__(self, clock: Clock, document: Event) -> None:
        self._clock, self._document = clock, document
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._work: set[asyncio.Task[None]] = set()
        self._say(event="connected")
        self._say(event="armed")

    @property
    def log(self) -> str:
        return ""

    async def alive(self, wait_s: float = 0.0) -> bool:
        del wait_s
        return True

    async def ending(self) -> str:
        return "it goes on"

    def send_line(self, line: bytes) -> None:
        document = json.loads(line)
        if document["command"] == "clock":
            self._say(event="clock", unix_ns=self._clock.now_ns(), error_ns=None)
            return
        left_ns = document["at_unix_ns"] - self._clock.now_ns()
        self._say(event="started", left_ns=left_ns)
        self._work.add(asyncio.create_task(self._measure(left_ns)))

    async def event(self, within_s: float) -> Event:
        async with asyncio.timeout(within_s):
            return await self._events.get()

    async def end(self) -> None:
        for work in self._work:
            work.cancel()

    async def _measure(self, left_ns: int) -> None:
        measures_ns = self._document["settle_ns"] + self._document["slice_ns"]
        await asyncio.sleep(self._clock.ours_s(left_ns + measures_ns))
        self._say(event="observed")
        self._say(event="result")

    def _say(self, **event: object) -> None:
        self._events.put_nowait(event)


class Somewhere(Place):
    def __init__(self, name: str, clock: Clock, *, drifts: bool, start: Callable[[Event], Task] | None = None) -> None:
        self._name, self._clock, self._drifts = name, clock, drifts
        self._start = start or (lambda document: Spoken(clock, document))
        self.documents: list[Event] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def drifts(self) -> bool:
        return self._drifts

    @property
    def leased(self) -> bool:
        return not self._drifts

    async def install(self, binary: Binary) -> str:
        del binary
        return "engine"

    async def start(self, command: str, document: Event, *, on_log: Callable[[str], None] | None = None) -> Task:
        del command, on_log
        self.documents.append(document)
        return self._start(document)

    async def run(self, command: str, *, given: str = "", within_s: float = 1.0) -> str:
        raise NotImplementedError(command)


def measured(*places: Somewhere) -> list[Answer]:
    jobs = [Job(place, "engine", {"endpoint": "e"}) for place in places]
    return wait_for(measure(jobs, warmup_ns=20 * MS, runtime_ns=80 * MS, sample_ns=80 * MS))


# A pace is told from real time: a pause of this process as long as the window makes all paces alike.
@pytest.mark.machine
def test_a_clock_with_a_pace_of_its_own_is_compared_again_at_the_start_and_its_pace_is_told() -> None:
    ahead_ns = 3_600_000_000_000
    slow, quick = (
        Somewhere(name, Clock(ahead_ns, pace), drifts=True) for name, pace in (("slow", 0.5), ("quick", 0.999))
    )
    first, second = measured(slow, quick)
    assert [first.host, second.host] == ["slow", "quick"]
    assert first.pace is not None
    assert second.pace is not None
    assert first.pace < second.pace
    # After its first reading the slow clock fell behind the other one, so its offset is smaller.
    assert first.offset.ahead_ns < second.offset.ahead_ns


def test_hosts_whose_clocks_keep_step_have_no_pace_and_a_lease() -> None:
    place = Somewhere("h1", Clock(0, 1.0), drifts=False)
    [answer] = measured(place)
    assert answer.pace is None
    assert "lease_ns" in place.documents[0]


def test_a_start_is_told_so_early_that_the_slowest_answer_would_be_in_time() -> None:
    quick, slow = Offset(0, 200_000, longest_ns=300_000), Offset(0, 400_000, longest_ns=2_000 * MS)
    assert ahead_of([quick, slow]) == 10.0
    assert ahead_of([quick]) == 1.0


def test_a_guest_needs_no_lease_for_it_ends_with_its_port() -> None:
    place = Somewhere("initiator 1", Clock(0, 1.0), drifts=True)
    measured(place)
    assert "lease_ns" not in place.documents[0]


def test_the_first_place_that_fails_is_named_whatever_kind_of_place_it_is() -> None:
    def lost(_: Event) -> Task:
        raise EngineError("lost", "initiator 2 guest was lost")

    well, gone = Somewhere("a", Clock(0, 1.0), drifts=True), Somewhere("b", Clock(0, 1.0), drifts=True, start=lost)
    with pytest.raises(EngineError, match="initiator 2 guest was lost"):
        measured(well, gone)
