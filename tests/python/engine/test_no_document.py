"""An engine whose parent is gone before it sends a document."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any, Literal

import pytest

from engine_process import events, started


@pytest.mark.slow
def test_engine_that_is_given_no_document_ends_by_itself(real_engine: Path) -> None:
    with contextlib.ExitStack() as opened:
        started = [
            opened.enter_context(
                subprocess.Popen([real_engine, task], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for task in ("serve", "load", "session", "simulate", "perform")
        ]
        for process in started:
            assert process.stdout is not None
            [line] = process.stdout.read().splitlines()  # its input stays open, so it cannot end for lack of input
            assert process.wait(timeout=180) == 1
            error = json.loads(line)
            assert (error["event"], error["kind"], error["where"]) == ("error", "lost", "standard input")


def test_engine_whose_input_ends_at_once_says_what_it_wants(real_engine: Path) -> None:
    ended = subprocess.run([real_engine, "load"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "no document" in json.loads(ended.stdout)["message"]


LOAD = {"task": "run", "endpoint": "local:/dev/null", "runtime_ns": 1}
AWAY = "iscsi://127.0.0.1:1/iqn.2026-11.io.iotax:v0/0"
VOLUME = {"name": "v0", "media": "memory", "size_bytes": 1 << 20}


@pytest.mark.parametrize(
    ("task", "document", "where"),
    [
        ("load", LOAD | {"threads": 100_000, "workers": 100_000}, "threads"),
        ("load", LOAD | {"cpus": [4000]}, "cpus"),
        ("load", LOAD | {"block_size_bytes": 1 << 30}, "block_size_bytes"),
        ("load", LOAD | {"streams": [{"name": "a", "block_size_bytes": 1 << 30}]}, "streams[0].block_size_bytes"),
        ("load", LOAD | {"options": {"header_digest": True}}, "options"),
        ("load", LOAD | {"options": {"direct": False, "path_policy": "fixed"}}, "options"),
        ("load", LOAD | {"endpoint": AWAY, "options": {"direct": False}}, "options.direct"),
        ("load", LOAD | {"threads": 0}, "threads"),
        ("serve", {"volumes": [], "exports": [], "threads": 100_000}, "threads"),
        ("serve", {"volumes": [], "exports": [], "threads": 0}, "threads"),
        ("serve", {"volumes": [VOLUME, VOLUME | {"name": "V0"}], "exports": []}, "volume V0"),
        ("serve", {"volumes": [VOLUME | {"name": "v" * 129}], "exports": []}, "volume " + "v" * 129),
        ("serve", {"volumes": [VOLUME | {"destroy": "/dev/null"}], "exports": []}, "volume v0"),
        ("serve", {"volumes": [], "exports": [], "cpus": [4000]}, "cpus"),
    ],
)
def test_what_no_machine_has_is_refused_by_field(
    real_engine: Path, task: Literal["load", "serve"], document: dict[str, object], where: str
) -> None:
    # Its input stays open; otherwise chance would decide which of two reasons to end it sees first.
    with started(real_engine, task, document) as process:
        assert process.stdout
        error = json.loads(process.stdout.readlines()[-1])
        assert process.wait(timeout=180) == 2
    assert (error["kind"], error["where"]) == ("usage", where), error


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ({"task": "fill", "working_set_offset_bytes": 100, "working_set_bytes": 4096}, "working_set_offset_bytes"),
        ({"runtime_ns": 1, "working_set_offset_bytes": 100, "working_set_bytes": 65536}, "working_set_offset_bytes"),
        ({"runtime_ns": 1, "working_set_offset_bytes": (1 << 64) - 4096, "working_set_bytes": 8192}, "local:{volume}"),
        ({"runtime_ns": 1, "read_back": True, "read_percent": 0, "block_size_bytes": 512}, "read_back"),
    ],
)
def test_a_working_set_that_cannot_be_is_refused(
    real_engine: Path, tmp_path: Path, document: dict[str, Any], where: str
) -> None:
    volume = tmp_path / "volume"
    with volume.open("wb") as file:
        file.truncate(256 << 30)
    given = LOAD | {"endpoint": f"local:{volume}", "options": {"direct": False}, "warmup_ns": 0} | document
    error = events(real_engine, given)[-1]
    assert error["event"] == "error", error
    assert error["where"] == where.format(volume=volume), error


def test_a_server_whose_threads_cannot_all_get_a_driver_ends(real_engine: Path) -> None:
    document = {"volumes": [VOLUME], "exports": [], "threads": 60}
    limited = ["sh", "-c", f"ulimit -n 80; exec {real_engine} serve"]
    with subprocess.Popen(limited, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(document) + "\n")
        process.stdin.flush()  # its input stays open
        error = json.loads(process.stdout.readlines()[-1])
        assert (error["event"], process.wait(timeout=180)) == ("error", 1), error


def test_a_thread_that_cannot_connect_ends_the_load_before_it_begins(real_engine: Path) -> None:
    told = events(real_engine, LOAD | {"endpoint": AWAY, "workers": 4, "threads": 2, "runtime_ns": 600_000_000_000})
    assert [each["event"] for each in told] == ["error"]
    assert told[-1]["kind"] == "refused"


def test_a_load_whose_input_ends_says_so(real_engine: Path, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.write_bytes(bytes(1 << 20))
    document = LOAD | {"endpoint": f"local:{volume}", "options": {"direct": False}, "runtime_ns": 600_000_000_000}
    process = subprocess.Popen([real_engine, "load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    said, _ = process.communicate(json.dumps(document) + "\n", timeout=180)
    error = json.loads(said.splitlines()[-1])
    assert (error["kind"], error["where"], process.returncode) == ("lost", "standard input", 1), error


def example_of_a_simulation() -> dict[str, Any]:
    reference = (Path(__file__).parents[3] / "docs" / "reference" / "engine.md").read_text(encoding="utf-8")
    return json.loads(reference.split("## simulate")[1].split("Input:\n\n")[1].split("\n\n")[0])


def test_the_references_example_of_a_simulation_runs(real_engine: Path) -> None:
    assert events(real_engine, example_of_a_simulation(), "simulate")[-1]["event"] == "result"


@pytest.mark.parametrize(("field", "value"), [("working_set_offset_bytes", 4096), ("data", {"compress": 2.0})])
def test_a_simulation_refuses_what_it_would_ignore(real_engine: Path, field: str, value: object) -> None:
    document = example_of_a_simulation()
    document["load"][field] = value
    error = events(real_engine, document, "simulate")[-1]
    assert (error["event"], error["kind"], error["where"]) == ("error", "usage", f"load.{field}")


FAIL = {"kind": "fail", "path": 1}


@pytest.mark.parametrize(
    ("paths", "what", "where", "reason"),
    [
        ({}, FAIL, "happenings", "set paths.portals"),
        ({"portals": True, "ports": 2}, FAIL | {"path": 3}, "happenings", "1 to the number of ports"),
        ({"portals": True}, {"kind": "flap", "path": 1, "every_ns": 0}, "happenings", "must flap 1 to 10,000 times"),
        ({"portals": True}, {"kind": "flap", "path": 1, "every_ns": 1}, "happenings", "must flap 1 to 10,000 times"),
        ({"portals": True, "failures": [{"path": 1, "at_ns": 1}]}, FAIL, "paths.portals", "without `failures`"),
    ],
)
def test_a_simulation_refuses_what_cannot_happen(
    real_engine: Path, paths: dict[str, Any], what: dict[str, Any], where: str, reason: str
) -> None:
    document = example_of_a_simulation()
    document["paths"] = paths
    document["happenings"] = [{"at_ns": 1_000_000, "lasts_ns": 1_000_000_000, "what": what}]
    error = events(real_engine, document, "simulate")[-1]
    assert (error["event"], error["kind"], error["where"]) == ("error", "usage", where)
    assert reason in error["message"]


def test_protocols_without_paths_refuse_several_portals_and_changes_of_access(real_engine: Path) -> None:
    document = example_of_a_simulation() | {"protocol": "nfs3", "paths": {"portals": True, "ports": 2}}
    assert events(real_engine, document, "simulate")[-1]["where"] == "paths.portals"
    access = {"kind": "access", "path": 1, "access": "inaccessible"}
    document |= {"paths": {"portals": True}, "happenings": [{"at_ns": 1, "lasts_ns": 1, "what": access}]}
    assert "reports no access" in events(real_engine, document, "simulate")[-1]["message"]
