"""The rate of this machine's initiator with iotax's own target: `iotax check --initiator`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine_process import ready, started
from faked import TINY, FakeEngine
from iotax.notebook import Notebook

ARRAY = "iscsi://127.0.0.1:3260/iqn.2001-05.org.example:vol1/0"
OTHER = "nvme-tcp://127.0.0.1:4420/nqn.2014-08.org.example:v1?ns=1"
STUDY = """\
name: mine
question: Is it the initiator?
volume: {size: 64MiB, fill: zeros}
factors:
  protocol: {%s}
  outstanding: [%s]
  block_size: [%s]
load: {verify: false, warmup: 0s, runtime: 1s%s}
design: {replicates: 1}
baseline: {protocol: a}
"""
IN_FLIGHT, BLOCKS = "1, 4, 32", "4KiB, 16KiB, 64KiB, 1MiB"

Iotax = Callable[..., Any]


def written(protocols: str, in_flight: str = "8", blocks: str = "4KiB", load: str = "") -> Path:
    path = Path("mine.yaml")
    path.write_text(STUDY % (protocols, in_flight, blocks, load))
    return path


def findings(output: str) -> list[str]:
    return [line.partition("initiator: ")[2] for line in output.splitlines() if " initiator: " in line]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_INSTANT", "1")


def test_loads_are_measured_on_an_own_target_and_the_users_is_only_looked_at(engine: FakeEngine, iotax: Iotax) -> None:
    study = written(f'a: "{ARRAY}", b: "{OTHER}"', "8, 32", load=", read: 50%")
    told = findings(iotax("check", study, "--initiator").output)
    runs = engine.documents("load", task="run")
    assert {each["endpoint"] for each in runs} == {"iscsi://127.0.0.1:1/v0", "nvme-tcp://127.0.0.1:1/v0"}
    assert [each["task"] for each in engine.documents("load") if each["endpoint"] in (ARRAY, OTHER)] == ["check"] * 2
    assert [(each["outstanding"], each["read_percent"]) for each in runs] == [(32, 50)] * 2 + [(8, 50)] * 2
    assert told[0] == "iscsi, 4KiB 50% reads, random, 32 outstanding, unverified: 42.7k IOPS, 175 MB/s"
    assert len(told) == 5
    assert told[-1].startswith("these are rates on iotax's own target on this machine: a lower bound")


def test_nothing_is_measured_unless_asked(engine: FakeEngine, iotax: Iotax) -> None:
    assert findings(iotax("check", written(f'a: "{ARRAY}"')).output) == []
    assert engine.documents("load", task="run") == []


def test_of_many_loads_the_extremes_are_measured_and_the_others_counted(engine: FakeEngine, iotax: Iotax) -> None:
    study = written(f'a: "{ARRAY}", b: "{OTHER}"', IN_FLIGHT, BLOCKS)
    told = findings(iotax("check", study, "--initiator").output)
    runs = engine.documents("load", task="run")
    assert len(runs) == 8
    assert {each["outstanding"] for each in runs} == {32}
    first = [each["block_size_bytes"] for each in runs if each["endpoint"].startswith("iscsi")]
    assert first == [4096, 1 << 20, 16384, 65536]
    assert told[8].startswith("16 loads left out to save time: ")


def test_labels_that_differ_in_who_connects_and_rates_of_one_load_are_measured_once(
    engine: FakeEngine, iotax: Iotax
) -> None:
    """A load with a given rate is measured without its rate limit."""
    login = f'a: "{ARRAY}", b: {{protocol: "{ARRAY}", initiator: "iqn.2026-11.org.example:me"}}'
    study = written(login, load=", rate_iops: 500, arrivals: poisson")
    told = findings(iotax("check", study, "--initiator").output)
    [run] = engine.documents("load", task="run")
    assert run["pacing"] == {"kind": "closed"}
    assert "initiator" not in run["options"]
    assert len(told) == 2


def test_a_load_that_fails_is_named_and_the_others_are_measured(engine: FakeEngine, iotax: Iotax) -> None:
    engine.faults(run_1="error:internal")
    told = findings(iotax("check", written(f'a: "{ARRAY}", b: "{OTHER}"'), "--initiator").output)
    assert told[0] == "nvme-tcp, 4KiB random reads, 8 outstanding, unverified: 10.7k IOPS, 44 MB/s"
    assert told[1].startswith("iscsi, 4KiB random reads, 8 outstanding, unverified: not measured: ")


@pytest.mark.parametrize("protocols", ["a: iscsi, b: nvme-tcp", "a: ./disk.img"])
def test_without_an_external_target_nothing_is_measured(engine: FakeEngine, iotax: Iotax, protocols: str) -> None:
    Path("disk.img").write_bytes(b"")
    told = findings(iotax("check", written(protocols), "--initiator").output)
    assert told == ["not measured: this study has no external target that iotax's own initiator reaches"]
    assert engine.documents("load", task="run") == []


def test_other_labs_say_that_they_do_not_measure_it(engine: FakeEngine, iotax: Iotax) -> None:
    del engine
    Path("tiny.yaml").write_text(TINY)
    told = findings(iotax("check", "tiny.yaml", "--lab", "sim", "--initiator").output)
    assert told == ["not measured: only `lab: loopback` measures its initiator"]


def kept(notebook: Path) -> dict[str, float | None]:
    """Trial → the rate on iotax's own target that its result records."""
    with Notebook(notebook) as opened:
        return {each.trial.id: each.result.facts.own_target_rate_iops for each in opened.attempts() if each.result}


def test_a_run_keeps_with_each_result_what_its_load_reached_beforehand(engine: FakeEngine, iotax: Iotax) -> None:
    """The study takes 6 s: too short to measure two loads per protocol beforehand, so one of each is measured."""
    done = iotax("run", written(f'a: "{ARRAY}", b: "{OTHER}", c: iscsi', "1, 8"), "n.iotax", "--no-report").output
    assert "Measuring the initiator on iotax's own target, about 2 s." in done
    found = kept(Path("n.iotax"))
    assert len(found) == 6
    assert {trial: round(rate) for trial, rate in found.items() if rate} == {"a/8/4KiB/r1": 10667, "b/8/4KiB/r1": 10667}


def test_a_run_of_embedded_targets_measures_none_beforehand(engine: FakeEngine, iotax: Iotax) -> None:
    assert "Measuring the initiator" not in iotax("run", written("a: iscsi"), "n.iotax", "--no-report").output
    assert len(engine.documents("load", task="run")) == 1
    assert set(kept(Path("n.iotax")).values()) == {None}


def test_the_engine_measures_what_its_initiators_reach(real_engine: Path, iotax: Iotax) -> None:
    document = {
        "volumes": [{"name": "v0", "media": "memory", "size_bytes": 64 << 20, "fill": "zeros", "seed": 1}],
        "exports": [
            {"protocol": each, "listen": "127.0.0.1:0", "volume": "v0"} for each in ("nfs3", "iscsi", "nvme-tcp")
        ],
    }
    with started(real_engine, "serve", document) as server:
        endpoints = {each["protocol"]: each["endpoint"] for each in ready(server)["portals"]}
        named = f'a: "{endpoints["iscsi"]}", b: "{endpoints["nvme-tcp"]}", c: "{endpoints["nfs3"]}"'
        told = findings(iotax("check", written(named, load=", read: 70%"), "--initiator").output)
        assert server.stdin
        server.stdin.close()
    assert len(told) == 4
    for protocol, line in zip(("iscsi", "nvme-tcp", "nfs3"), told[:3], strict=True):
        assert re.fullmatch(
            rf"{protocol}, 4KiB 70% reads, random, 8 outstanding, unverified: [\d.]+[kM]? IOPS, \d+ MB/s", line
        )
