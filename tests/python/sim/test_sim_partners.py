"""Paths through a controller's partner, and takeovers, in the simulated lab: how a study sets them, what is refused,
and their effect."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from iotax.cli.app import app
from iotax.labs.sim.assumptions import assumptions
from iotax.notebook import Notebook
from iotax.study import Study
from iotax.study.asked import asked
from iotax.study.read import read_study
from iotax.study.source import StudyError
from simulated_worlds import document, is_refused, read_world

BASE: dict[str, Any] = {
    "name": "partners",
    "question": "What do paths to the partner cost?",
    "volume": {"size": "8MiB"},
    "factors": {"protocol": ["fcp", "iscsi"]},
    "load": {"clients": 4, "outstanding": 8, "warmup": "2ms", "runtime": "20ms"},
    "topology": {"link_rate": "10Gbit"},
    "design": {"replicates": 2},
    "baseline": {"protocol": "fcp"},
}
INTERCONNECT = {"interconnect_rate": "10Gbit", "interconnect_delay": "5us", "interconnect_cpu": "3us"}
PAIR = {"controllers": 2, **INTERCONNECT}
BY_PARTNER = PAIR | {"paths_to": "partner"}
BOTH = PAIR | {"paths_to": "both"}
TWO_PATHS = {"link_rate": "10Gbit", "paths": 2, "path_policy": "fixed"}
ZONES = {"red": {"clients": [1, 2], "ports": [1]}, "blue": {"clients": [3, 4], "ports": [2]}}
WITH_NFS = {"factors": {"protocol": ["fcp", "nfs3"]}}


def read(sim: dict[str, Any], **more: Any) -> Study:
    return read_world(BASE, sim, **more)


def paths(study: Study, **treatment: Any) -> dict[str, Any]:
    return document(study, **({"protocol": "fcp"} | treatment))["paths"]


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (BY_PARTNER | {"controllers": 3}, {}, "say `controllers: 2`"),
    ({"takeover": 1}, {}, "say `controllers: 2`"),
    ({"controllers": 2, "takeover": 3}, {}, "there are 2 controllers"),
    ({"controllers": 2, "takeover": 0}, {}, "lab.sim.takeover"),
    ({"controllers": 2, "takeover": "all"}, {}, "lab.sim.takeover"),
    ({"controllers": 2, "paths_to": "other"}, {}, "one of owner, partner, both is expected"),
    (
        {"controllers": 2, "paths_to": "partner"},
        {},
        "say your array's `interconnect_rate:`, `interconnect_delay:` and `interconnect_cpu:` too",
    ),
    (
        {"controllers": 2, "paths_to": "both", "interconnect_rate": "10Gbit", "interconnect_delay": "0s"},
        {},
        "say your array's `interconnect_cpu:` too",
    ),
    (PAIR, {}, "nothing crosses the interconnect; say `paths_to: partner` too"),
    (BY_PARTNER, WITH_NFS, "an nfs3 mount goes to one address"),
    (BOTH, {"topology": TWO_PATHS}, "say `path_policy: round-robin`"),
    (BOTH, {"topology": {"link_rate": "10Gbit", "path_policy": "queue-depth"}}, "say `path_policy: round-robin`"),
    (BY_PARTNER, {"topology": {"link_rate": "10Gbit", "path_policy": "round-robin"}}, "one path leaves nothing"),
    (BY_PARTNER | {"takeover": 2}, {}, "clients of controller 1 reach it through controller 2 alone, which is gone"),
    (
        BY_PARTNER | {"path_failures": [{"path": 1, "at": "5ms", "back": "9ms"}]},
        {"topology": TWO_PATHS},
        "only paths to a volume's owner fail",
    ),
    (BY_PARTNER | {"loss": "0.1%"}, {}, "only paths to a volume's owner lose segments"),
    (
        BY_PARTNER | {"switches": 1, "zones": ZONES},
        {},
        "client 1 shares no zone with a target port of controller 2, 2 to 2",
    ),
    (
        {"controllers": 2, "takeover": 2, "switches": 1, "zones": ZONES},
        {},
        "client 3 shares no zone with a target port of controller 1, 1 to 1",
    ),
    (
        BOTH | {"controllers": 4, "takeover": 4},
        {"topology": {"link_rate": "10Gbit", "queue_depth": 8}},
        "queues of LUNs are alike on all clients",
    ),
]


@pytest.mark.parametrize(("sim", "more", "reason"), REFUSED)
def test_partners_that_cannot_be_are_refused_with_line_and_reason(
    sim: dict[str, Any], more: dict[str, Any], reason: str
) -> None:
    is_refused(BASE, sim, more, reason)


def test_study_without_partners_keeps_its_document_and_its_digest() -> None:
    plain = read({"controllers": 2})
    assert not {"to", "interconnect", "takeover"} & set(paths(plain))
    assert plain.digest() == read({"controllers": 2, "paths_to": "owner", "takeover": "none"}).digest()
    assert len({plain.digest(), read(BY_PARTNER).digest(), read({"controllers": 2, "takeover": 2}).digest()}) == 3


def test_paths_and_takeover_are_factors_and_in_the_document_of_what_has_them() -> None:
    factors = {"protocol": ["fcp"], "paths_to": ["owner", "partner", "both"], "takeover": ["none", 2]}
    exclude = [{"paths_to": "partner", "takeover": 2}]
    study = read(PAIR, factors=factors, baseline={"paths_to": "owner"}, design={"replicates": 2, "exclude": exclude})
    assert [level.label for level in study.levels()["takeover"]] == ["none", "2"]
    found = paths(study, paths_to="both", takeover=2)
    assert (found["to"], found["takeover"], found["policy"]) == ("both", 2, "round-robin")
    assert found["interconnect"] == {"rate_bits_per_s": 10_000_000_000, "delay_ns": 5000, "message_ns": 3000}
    found = paths(study, paths_to="owner", takeover="none")
    assert found["to"] == "owner" and not {"interconnect", "takeover"} & set(found)
    again = Study.model_validate_json(study.model_dump_json())
    assert again.digest() == study.digest()
    said = " ".join(asked(study))
    for words in (
        "paths_to owner, partner or both",
        "interconnect_rate 10Gbit",
        "interconnect_delay 5us",
        "interconnect_cpu 3us",
        "takeover none or 2",
    ):
        assert words in said


def test_label_has_paths_of_its_own_so_that_nfs_stands_beside() -> None:
    labels = {"near": "fcp", "far": {"protocol": "fcp", "paths_to": "partner"}, "files": "nfs3"}
    study = read(PAIR, factors={"protocol": labels}, baseline={"protocol": "near"})
    assert paths(study, protocol="far")["to"] == "partner"
    assert paths(study, protocol="files")["to"] == paths(study, protocol="near")["to"] == "owner"


def test_queues_of_luns_count_the_paths_to_both_controllers_and_those_of_adapters_their_ports() -> None:
    factors = {"paths_to": ["owner", "both"], "takeover": ["none", 2]}
    topology = TWO_PATHS | {"queue_depth": 8, "path_policy": "round-robin"}
    more = {"factors": factors, "baseline": {"paths_to": "owner"}, "topology": topology}
    study = read(PAIR | {"adapter_depth": 10}, connection={"protocol": "fcp"}, **more)
    for paths_to, takeover, depth in (("owner", "none", 16), ("both", "none", 32), ("both", 2, 16)):
        found = document(study, paths_to=paths_to, takeover=takeover)["queues"]
        assert (found["lun_depth"], found["adapter_depth"]) == (depth, 20)


def test_other_labs_refuse_partners_and_takeover_with_a_reason() -> None:
    for field, levels in (
        ("paths_to", ["owner", "partner"]),
        ("interconnect_rate", ["1Gbit", "10Gbit"]),
        ("interconnect_delay", ["1us", "5us"]),
        ("interconnect_cpu", ["1us", "5us"]),
        ("takeover", ["none", 1]),
    ):
        told = BASE | {"factors": {field: levels}, "baseline": {field: levels[0]}, "topology": {}}
        with pytest.raises(StudyError, match=r"it belongs to simulated machines; say `lab: \{sim: \{\}\}`"):
            read_world_of_another_lab(told)


def read_world_of_another_lab(told: dict[str, Any]) -> Study:
    return read_study("study.yaml", yaml.safe_dump(told, sort_keys=False), Path())


def test_interconnect_is_an_assumption_whose_weight_can_be_asked_for() -> None:
    study = read(BY_PARTNER)
    found = {each.field: each for each in assumptions(study) if each.field.startswith("interconnect")}
    assert {name: each.value for name, each in found.items()} == {
        "interconnect_delay": "5.00 µs",
        "interconnect_cpu": "3.00 µs",
        "interconnect_rate": "10Gbit",
    }
    slower = found["interconnect_rate"].in_study(study, 0.5)
    assert paths(slower)["interconnect"]["rate_bits_per_s"] == 5_000_000_000


def run(told: dict[str, Any], folder: Path) -> Path:
    file, notebook = folder / "study.yaml", folder / "out.iotax"
    file.write_text(yaml.safe_dump(told, sort_keys=False), encoding="utf-8")
    done = CliRunner().invoke(app, ["run", str(file), str(notebook), "--no-report"])
    assert done.exit_code == 0, done.output
    return notebook


def what_if(told: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(told, sort_keys=False), encoding="utf-8")
    done = CliRunner().invoke(app, ["sim", "what-if", str(file), "--json", "-"])
    assert done.exit_code == 0, done.output
    return {each["treatment"]: each["as_it_is"] for each in json.loads(done.stdout)["treatments"]}


WIDE = {"costs": "esxi-7", "cores": 16, "target_cores": 16, "threads": 8}
STATES = {
    "factors": {"paths_to": ["owner", "partner"], "takeover": ["none", 2]},
    "baseline": {"paths_to": "owner"},
    "connection": {"protocol": "fcp"},
    "design": {"replicates": 2, "exclude": [{"paths_to": "partner", "takeover": 2}]},
}


def test_thin_interconnect_and_a_survivor_are_what_limits(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    busy = {"load": BASE["load"] | {"outstanding": 64, "warmup": "50ms", "runtime": "400ms"}}
    thin = {"lab": {"sim": WIDE | PAIR | {"interconnect_rate": "200Mbit"}}}
    found = what_if(BASE | STATES | busy | thin, tmp_path)
    # One direction carries the reads of one volume, the other those of the other volume, in frames with headers.
    assert found["partner/none"]["limit"] == "interconnect"
    assert found["partner/none"]["rate_iops"] == pytest.approx(2 * 200e6 / 8 / 4400, rel=0.05)
    assert found["owner/none"]["utilisation"].get("interconnect") is None
    narrow = {"target_cores": 1, "threads": 1, "interconnect_cpu": "40us"}
    # Each controller has one processor and one thread, so the survivor has half of the CPU.
    found = what_if(BASE | STATES | busy | {"lab": {"sim": WIDE | PAIR | narrow}}, tmp_path)
    both, survivor, partner = found["owner/none"], found["owner/2"], found["partner/none"]
    assert both["limit"] == survivor["limit"] == partner["limit"] == "target's CPU"
    assert survivor["rate_iops"] / both["rate_iops"] == pytest.approx(0.5, rel=0.05)
    assert partner["rate_iops"] < 0.8 * both["rate_iops"]


def test_run_tells_how_busy_each_controller_was_and_who_took_over(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    costs = {"target_cores": 2, "threads": 2}
    notebook = run(BASE | STATES | {"lab": {"sim": WIDE | PAIR | costs}}, tmp_path)
    shown = CliRunner().invoke(app, ["show", str(notebook), "--long"])
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert re.search(r"owner, controller 2 taken over by controller 1: controller 1 [\d.]+ % busy\.", text)
    assert re.search(r"owner: controller 1 [\d.]+ % busy, controller 2 [\d.]+ % busy\.", text)
    assert re.search(r"MB/s forwarded, interconnect [\d.]+ % busy", text)
    assert "The interconnect’s rate, delay and CPU time come from the study" in text
    per_io = {}
    with Notebook(notebook) as stored:
        for attempt in stored.attempts():
            assert attempt.result is not None and attempt.result.simulated is not None
            state = attempt.trial.treatment["paths_to"], attempt.trial.treatment["takeover"]
            controllers = attempt.result.simulated.controllers
            assert controllers is not None
            assert [each.controller for each in controllers] == ([1] if state[1] == 2 else [1, 2])
            target = attempt.result.cpu.part("target")
            assert target is not None and target.processors == 2 * len(controllers)
            assert target.busy_ns == sum(each.busy_ns for each in controllers)
            per_io[state] = target.busy_ns / attempt.result.ios
    # Two or more messages cross the interconnect, and each costs both controllers 3 µs.
    added_ns = per_io["partner", "none"] - per_io["owner", "none"]
    assert 1_500 < added_ns < 12_500
    assert per_io["owner", 2] == pytest.approx(per_io["owner", "none"], rel=0.02)
