"""Sessions of the engine: loads that stay connected and are measured in turns."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from session_loads import loads
from session_loads import served as served  # noqa: PLC0414 - a fixture

from engine_process import events, started

SLICE_NS = 100_000_000


def session(engine: Path, members: list[dict[str, Any]], rounds: list[list[int]]) -> list[dict[str, Any]]:
    document = {"loads": members, "rounds": rounds, "settle_ns": 5_000_000, "slice_ns": SLICE_NS}
    return events(engine, document, "session")


@pytest.mark.machine
def test_what_leads_in_is_in_no_slice(real_engine: Path, served: dict[str, Any]) -> None:
    lead_in_ns = 40_000_000
    document = {"lead_in_ns": lead_in_ns, "settle_ns": 0, "slice_ns": SLICE_NS, "rounds": [[1, 2]]}
    said = events(real_engine, document | {"loads": loads(served)}, "session")
    results = {event["id"]: event for event in said if event["event"] == "result"}
    assert list(results) == ["iscsi", "nvme-tcp"]  # a load without a slice has no result
    for place, result in enumerate(results.values(), start=1):
        [only] = result["slices"]
        assert (only["round"], only["place"]) == (1, place)
        assert only["ios"] == result["read"]["ios"] + result["write"]["ios"] > 0
        assert result["window"]["duration_ns"] == SLICE_NS
        assert result["verify"]["wrong_blocks"] == 0
    assert results["iscsi"]["slices"][0]["start_ns"] >= lead_in_ns


def test_a_told_start_has_no_lead_in(real_engine: Path, served: dict[str, Any]) -> None:
    document = {"lead_in_ns": 1, "settle_ns": 0, "slice_ns": SLICE_NS, "rounds": [[0]], "start": "told"}
    said = events(real_engine, document | {"loads": loads(served)}, "session")
    assert [(event["event"], event["where"]) for event in said] == [("error", "lead_in_ns")]


@pytest.mark.machine
def test_each_load_of_a_session_is_measured_in_its_slices(real_engine: Path, served: dict[str, Any]) -> None:
    said = session(real_engine, loads(served), [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]])
    connected = [event["id"] for event in said if event["event"] == "connected"]
    results = {event["id"]: event for event in said if event["event"] == "result"}
    assert connected == list(results) == ["nfs3", "iscsi", "nvme-tcp", "local"]
    for name, result in results.items():
        slices = result["slices"]
        assert [each["round"] for each in slices] == [1, 2, 3]
        assert result["window"]["duration_ns"] == 3 * SLICE_NS
        assert sum(each["ios"] for each in slices) == result["read"]["ios"] + result["write"]["ios"] > 0
        assert sum(each["initiator_cpu_ns"] for each in slices) == result["cpu"]["initiator"]["total_ns"] > 0
        assert (result["cpu"]["target"] is None) == (name == "local")
        for process in filter(None, (result["cpu"]["initiator"], result["cpu"]["target"])):
            assert (process["events"] is None) == bool(process.get("no_events")), process
            assert process["events"] is None or min(process["events"].values()) > 0
        assert [point["duration_ns"] for point in result["series"]] == [SLICE_NS] * 3
        outstanding = result["outstanding"]
        means = [each["mean_outstanding"] for each in slices]
        assert sum(means) / 3 == pytest.approx(outstanding["mean"])
        assert max(means) <= outstanding["workers"] * outstanding["per_worker"]
        # Nothing is outstanding in a slice in which the process was not scheduled.
        assert all(each["mean_outstanding"] > 0 for each in slices if each["ios"])
        # Each load overwrites the whole volume; blocks that another load wrote do not count as lost.
        assert result["verify"]["checked_blocks"] > 0
        assert result["verify"]["wrong_blocks"] == 0
    places = sorted(each["place"] for result in results.values() for each in result["slices"])
    assert places == list(range(1, 13))
    starts = sorted((each["place"], each["start_ns"]) for result in results.values() for each in result["slices"])
    assert all(later[1] - earlier[1] >= SLICE_NS for earlier, later in itertools.pairwise(starts))


@pytest.mark.machine
def test_session_measures_over_several_threads_and_streams(real_engine: Path, served: dict[str, Any]) -> None:
    streams = [{"name": "random"}, {"name": "sequential", "random_percent": 0}]
    members = loads(served, workers=4, threads=2, streams=streams)[:1]
    [result] = [event for event in session(real_engine, members, [[0], [0]]) if event["event"] == "result"]
    assert [part["name"] for part in result["streams"]] == ["random", "sequential"]
    assert sum(part["read"]["ios"] + part["write"]["ios"] for part in result["streams"]) == sum(
        each["ios"] for each in result["slices"]
    )
    assert result["outstanding"]["mean"] == pytest.approx(16, rel=0.2)


@pytest.mark.machine
def test_open_loop_is_offered_its_rate_in_every_slice(real_engine: Path, served: dict[str, Any]) -> None:
    pacing = {"kind": "open", "rate_iops": 1000}
    said = session(real_engine, loads(served, pacing=pacing)[:2], [[0, 1], [1, 0]])
    for result in (event for event in said if event["event"] == "result"):
        assert result["open"]["offered"] == 2 * SLICE_NS // 1_000_000


def test_load_that_cannot_connect_ends_the_session(real_engine: Path, served: dict[str, Any]) -> None:
    members = loads(served)
    members[1]["load"]["endpoint"] = members[1]["load"]["endpoint"].replace(":v0/", ":v1/")
    said = session(real_engine, members, [[0, 1]])
    assert said[-1]["event"] == "error"
    assert said[-1]["kind"] == "not_found"
    assert not any(event["event"] == "result" for event in said)


def test_server_that_dies_between_slices_ends_the_session(real_engine: Path, served: dict[str, Any]) -> None:
    document = {
        "loads": loads(served)[:2],
        "rounds": [[0, 1]] * 1000,
        "settle_ns": 1_000_000,
        "slice_ns": 50_000_000,
    }
    with started(real_engine, "session", document) as process:
        assert process.stdout
        line = next(each for each in process.stdout if '"sample"' in each)
        assert line
        os.kill(served["pid"], 9)
        said = [json.loads(each) for each in process.stdout]
    assert (said[-1]["event"], said[-1]["kind"]) == ("error", "lost")
    assert process.returncode == 1
    # Every slice that ended before is there once, in order, whichever load failed.
    kept = [(part["place"], each["id"]) for each in said if each["event"] == "kept" for part in each["slices"]]
    assert len(kept) >= 2
    assert sorted(kept) == [(place, ("nfs3", "iscsi")[(place - 1) % 2]) for place in range(1, len(kept) + 1)]


@pytest.mark.parametrize(
    ("change", "where"),
    [({"rounds": [[0, 7]]}, "rounds"), ({"slice_ns": 0}, "slice_ns"), ({"loads": []}, "loads")],
)
def test_session_that_cannot_be_is_refused(
    real_engine: Path, served: dict[str, Any], change: dict[str, Any], where: str
) -> None:
    document = {"loads": loads(served), "rounds": [[0]], "settle_ns": 0, "slice_ns": SLICE_NS} | change
    if where == "loads":
        document["rounds"] = []
    [said] = events(real_engine, document, "session")
    assert (said["event"], said["kind"], said["where"]) == ("error", "usage", where)
