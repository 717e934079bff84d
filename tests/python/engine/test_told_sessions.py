"""Sessions that start at a given time, observe their machine, and end without their controller."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from session_loads import loads
from session_loads import served as served  # noqa: PLC0414 - a fixture

from engine_process import events, started
from waits import wait_for

pytestmark = pytest.mark.machine


MS = 1_000_000
SLICE_NS = 200 * MS


class Told:
    """The lines of a session, one at a time."""

    def __init__(self, engine: Path, document: dict[str, Any]) -> None:
        self.process = started(engine, "session", {"settle_ns": 20 * MS, "slice_ns": SLICE_NS} | document)

    def say(self, **command: object) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def hear(self, name: str) -> dict[str, Any]:
        """The next event, skipping samples and slices, which come at intervals."""
        assert self.process.stdout
        while (event := json.loads(self.process.stdout.readline()))["event"] in ("sample", "kept"):
            pass
        assert event["event"] == name, event
        return event

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


@pytest.fixture
def told(real_engine: Path) -> Iterator[Any]:
    running: list[Told] = []

    def start(**document: object) -> Told:
        running.append(Told(real_engine, {"start": "told", **document}))
        return running[-1]

    yield start
    for each in running:
        each.end()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[tuple[Path, Any]]:
    """A FIFO, and a reader at it that does not wait."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0) as reader:
        yield path, reader


def test_a_program_that_waits_is_released_when_the_settling_time_begins(told: Any, gate: tuple[Path, Any]) -> None:
    path, reader = gate
    session = told(observe={"release": str(path)}, settle_ns=2000 * MS)
    session.hear("armed")
    at_unix_ns = time.time_ns() + 500 * MS
    session.say(command="start", at_unix_ns=at_unix_ns)
    session.hear("started")
    assert reader.read() is None or time.time_ns() >= at_unix_ns
    wait_for(lambda: reader.read() == b"\n", "the program to be released")
    assert time.time_ns() >= at_unix_ns
    # The window is still to come, settling time and all.
    assert session.hear("observed")["window"]["start_unix_ns"] - at_unix_ns >= 2000 * MS


@pytest.mark.parametrize("kind", ["nobody waits", "a file"])
def test_a_session_fails_if_no_program_waits_and_writes_into_no_file(told: Any, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "gate"
    os.mkfifo(path) if kind == "nobody waits" else path.write_text("data")
    session = told(observe={"release": str(path)})
    session.hear("armed")
    session.say(command="start", at_unix_ns=time.time_ns() + 1500 * MS)
    session.hear("started")
    error = session.hear("error")
    assert (error["kind"], error["where"]) == ("lost", str(path))
    assert error["message"].startswith("the program that should start now does not wait: ")
    assert kind == "nobody waits" or path.read_text() == "data"


def test_a_session_begins_when_it_was_told_and_not_before(told: Any, served: dict[str, Any]) -> None:
    session = told(loads=loads(served)[1:2], rounds=[[0]], sample_ns=50 * MS, observe={})
    session.hear("connected")
    assert session.hear("armed")["pid"] == session.process.pid
    session.say(command="clock")
    clock = session.hear("clock")
    assert abs(clock["unix_ns"] - time.time_ns()) < 10_000 * MS
    assert clock["error_ns"] is None or clock["error_ns"] >= 0
    at_unix_ns = time.time_ns() + 1500 * MS
    session.say(command="start", at_unix_ns=at_unix_ns)
    heard = session.hear("started")
    assert heard["at_unix_ns"] == at_unix_ns
    assert 0 < heard["left_ns"] <= 1500 * MS
    observed, result = session.hear("observed"), session.hear("result")
    assert time.time_ns() >= at_unix_ns + SLICE_NS
    # The settling load starts at that time, the window 20 ms later.
    assert abs(result["window"]["start_unix_ns"] - (at_unix_ns + 20 * MS)) < MS
    assert [point["duration_ns"] for point in result["series"]] == [50 * MS] * 4
    assert result["checks"]["errors"] == 0
    assert observed["window"]["start_unix_ns"] >= at_unix_ns + 20 * MS
    assert observed["machine"]["busy_ns"] > 0
    lo = next(each for each in observed["interfaces"] if each["name"] == "lo")
    assert lo["received_bytes"] > result["read"]["bytes"]


def test_intervals_are_told_while_the_slice_goes_on(told: Any, served: dict[str, Any]) -> None:
    session = told(loads=loads(served)[1:2], rounds=[[0]], settle_ns=600 * MS, slice_ns=1000 * MS, sample_ns=100 * MS)
    session.hear("connected")
    session.hear("armed")
    session.say(command="start", at_unix_ns=time.time_ns() + 100 * MS)
    session.hear("started")
    told_before_the_end = []
    while (event := json.loads(session.process.stdout.readline()))["event"] == "sample":
        told_before_the_end.append(event)
    assert event["event"] == "result"
    # The last sample may be that of the slice itself, at its end. On a busy machine several come at once, none twice.
    intervals = [each["at_ns"] for each in told_before_the_end]
    assert intervals == sorted(set(intervals))
    assert {each["id"] for each in told_before_the_end} == {event["id"]}
    assert {each["round"] for each in told_before_the_end} == {1}
    assert [each["phase"] for each in told_before_the_end][:1] == ["warmup"]
    measured = [each for each in told_before_the_end if each["phase"] == "run"]
    counted = [round(each["iops"] * 0.1) for each in measured]
    series = [point["reads"] + point["writes"] for point in event["series"]]
    assert len(measured) >= 1 and counted == series[: len(measured) - 1] + counted[-1:]


def test_a_session_that_hears_too_late_says_so(told: Any, served: dict[str, Any]) -> None:
    session = told(loads=loads(served)[:1], rounds=[[0]])
    session.hear("connected")
    session.hear("armed")
    session.say(command="start", at_unix_ns=time.time_ns() - MS)
    assert session.hear("error")["kind"] == "late"
    assert session.process.wait(timeout=120) == 1


def test_a_machine_without_load_is_observed(told: Any, served: dict[str, Any]) -> None:
    session = told(observe={"watch_pids": {"target": served["pid"]}})
    session.hear("armed")
    at_unix_ns = time.time_ns() + 1500 * MS
    session.say(command="start", at_unix_ns=at_unix_ns)
    session.hear("started")
    observed = session.hear("observed")
    window = observed["window"]
    assert window["start_unix_ns"] + window["duration_ns"] >= at_unix_ns + 20 * MS + SLICE_NS - MS
    assert observed["watched"]["target"]["pid"] == served["pid"]
    assert observed["observer"]["pid"] == session.process.pid
    assert len(observed["machine"]["cores"]) >= 1
    assert session.process.wait(timeout=120) == 0


def test_an_observer_sleeps_between_its_two_readings(told: Any) -> None:
    session = told(observe={}, slice_ns=2000 * MS)
    session.hear("armed")
    session.say(command="start", at_unix_ns=time.time_ns() + 100 * MS)
    session.hear("started")
    time.sleep(0.2)
    before = wake_ups(session.process.pid)
    time.sleep(1)
    woken = wake_ups(session.process.pid) - before
    assert session.process.poll() is None
    session.hear("observed")
    # How long a reading takes depends on the machine; how often the observer wakes does not.
    assert woken <= 20


def wake_ups(pid: int) -> int:
    """How often the threads of a process have slept until something woke them."""
    counts = (status.read_text() for status in Path(f"/proc/{pid}/task").glob("*/status"))
    return sum(int(count.split("voluntary_ctxt_switches:")[1].split()[0]) for count in counts)


@pytest.mark.machine
def test_machines_keep_one_schedule_and_send_nothing_between_slices(told: Any, served: dict[str, Any]) -> None:
    run = time.time_ns()
    schedule = {"gap_ns": 100 * MS, "lead_in_ns": 100 * MS, "run": run, "observe": {}}
    nfs, iscsi = loads(served)[:2]
    sessions = [
        told(loads=[nfs], rounds=[[0, None], [None, 0, None]], **schedule),
        told(loads=[iscsi], rounds=[[None, 0], [0, None, None]], **schedule),
    ]
    for each in sessions:
        each.hear("connected")
        each.hear("armed")
    at_unix_ns = time.time_ns() + 1500 * MS
    for each in sessions:
        each.say(command="start", at_unix_ns=at_unix_ns)
    for each in sessions:
        each.hear("started")
    observed = [each.hear("observed")["slices"] for each in sessions]
    results = [each.hear("result") for each in sessions]
    pitch_ns, first_ns = (20 + 200 + 100) * MS, (100 + 100 + 20) * MS
    for result, places in zip(results, [(1, 4), (2, 3)], strict=True):
        starts = {part["place"]: part["start_ns"] for part in result["slices"]}
        assert set(starts) == set(places)
        for place, start_ns in starts.items():
            window = result["window"]
            at_ns = window["start_unix_ns"] + start_ns - window["start_ns"]
            assert abs(at_ns - (at_unix_ns + first_ns + (place - 1) * pitch_ns)) < MS
        # Data that the other machine wrote meanwhile belong to an earlier slice of the same session.
        assert result["verify"]["wrong_blocks"] == 0
        assert result["verify"]["checked_blocks"] > 0
    for slices in observed:
        assert [part["place"] for part in slices] == [1, 2, 3, 4, 5]
        assert {part["duration_ns"] for part in slices} == {SLICE_NS}


def test_loads_of_one_session_share_a_file_that_is_nobody_elses(told: Any, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.write_bytes(bytes(8 << 20))
    load = {"task": "run", "endpoint": f"local:{volume}", "outstanding": 2, "options": {"direct": False}}
    reads, writes = load | {"read_percent": 100}, load | {"read_percent": 0}
    both = [{"id": "reads", "load": reads}, {"id": "writes", "load": writes}]
    session = told(loads=both, rounds=[[0, 1], [1, 0]])
    session.hear("connected")
    session.hear("connected")
    other = told(loads=both[1:], rounds=[[0]])
    assert other.hear("error")["kind"] == "in_use"
    session.hear("armed")
    session.say(command="start", at_unix_ns=time.time_ns() + 1500 * MS)
    session.hear("started")
    found = {result["id"]: result for result in (session.hear("result"), session.hear("result"))}
    assert [found["reads"]["write"]["ios"], found["writes"]["read"]["ios"]] == [0, 0]
    assert [result["checks"]["errors"] for result in found.values()] == [0, 0]
    assert volume.read_bytes() != bytes(8 << 20), "written to, if not within the window of a busy machine"


def test_loads_of_one_session_do_not_share_a_file_that_holds_others_data(told: Any, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.write_bytes(b"precious" * (1 << 20))
    load = {"task": "run", "endpoint": f"local:{volume}", "outstanding": 2, "options": {"direct": False}}
    both = [{"id": name, "load": load | {"read_percent": share}} for name, share in (("reads", 100), ("writes", 0))]
    session = told(loads=both, rounds=[[0, 1]])
    assert session.hear("error")["kind"] == "foreign_data"
    assert volume.read_bytes() == b"precious" * (1 << 20)


# A pause of this test longer than the lease ends the engine early.
@pytest.mark.machine
def test_a_session_ends_where_nobody_renews_its_lease(told: Any) -> None:
    session = told(observe={}, lease_ns=1000 * MS)
    session.hear("armed")
    for _ in range(6):
        time.sleep(0.25)
        session.say(command="renew")
    assert session.process.poll() is None, "renewed"
    failed = session.hear("error")
    assert failed["kind"] == "lost"
    assert "received nothing for 1 s" in failed["message"]
    assert session.process.wait(timeout=120) == 1


@pytest.mark.machine
def test_a_server_ends_where_nobody_renews_its_lease(real_engine: Path) -> None:
    document = {
        "volumes": [{"name": "v0", "media": "memory", "size_bytes": 1 << 20}],
        "exports": [{"protocol": "iscsi", "listen": "127.0.0.1:0", "volume": "v0"}],
        "lease_ns": 1500 * MS,
    }
    with started(real_engine, "serve", document) as server:
        assert server.stdin and server.stdout
        for _ in range(4):
            time.sleep(0.2)
            server.stdin.write('{"command":"renew"}\n')
            server.stdin.flush()
        assert server.poll() is None, "renewed"
        said = [json.loads(line) for line in server.stdout]
        assert [each["event"] for each in said] == ["ready", "error"]
        assert server.wait(timeout=120) == 1


def test_an_orphan_ends_though_nobody_reads_it(real_engine: Path) -> None:
    with started(
        real_engine, "session", {"settle_ns": 0, "slice_ns": MS, "observe": {}, "start": "told", "lease_ns": 1500 * MS}
    ) as session:
        assert session.wait(timeout=120) == 1


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({}, "loads"),
        ({"observe": {}, "sample_ns": 0}, "sample_ns"),
        ({"observe": {}, "rounds": [[None]]}, "rounds"),
        ({"observe": {}, "rounds": [[None, None]], "lead_in_ns": MS}, "rounds"),
        ({"observe": {}, "lead_in_ns": MS, "start": "told"}, "lead_in_ns"),
    ],
)
def test_sessions_that_make_no_sense_are_refused(real_engine: Path, document: dict[str, Any], place: str) -> None:
    [said] = events(real_engine, {"settle_ns": 0, "slice_ns": MS} | document, "session")
    assert (said["kind"], said["where"]) == ("usage", place)
