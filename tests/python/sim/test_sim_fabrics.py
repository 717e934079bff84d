"""Host queues, credits, failing paths and media of the simulated lab: how a study sets them, refusals, effects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from iotax.analysis.limits import bottleneck
from iotax.cli.app import app
from iotax.notebook import Notebook
from iotax.rows import attempt_rows
from iotax.study import Study
from iotax.study.service_times import ServiceTimesError, read_service_times
from iotax.study.source import StudyError
from simulated_worlds import document, is_refused, read_world

BASE: dict[str, Any] = {
    "name": "fabrics",
    "question": "What holds it back?",
    "volume": {"size": "8MiB"},
    "factors": {"protocol": ["fcp", "fc-nvme"]},
    "load": {"outstanding": 32, "warmup": "2ms", "runtime": "20ms"},
    "topology": {"link_rate": "10Gbit"},
    "design": {"replicates": 2},
    "baseline": {"protocol": "fcp"},
}
WIDE = {"costs": "esxi-7", "cores": 16, "target_cores": 16, "threads": 8}
TWO_PATHS = {"link_rate": "10Gbit", "paths": 2, "path_policy": "round-robin"}


def read(sim: dict[str, Any], folder: Path = Path(), **more: Any) -> Study:
    return read_world(BASE, sim, folder, **more)


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"credits": 8, "costs": "loopback"},
        {"factors": {"protocol": ["iscsi", "nfs3"]}, "baseline": {"protocol": "iscsi"}},
        "only Fibre Channel",
    ),
    ({"loss": "0.1%"}, {}, "only Ethernet loses segments"),
    ({"port_buffer": "256KiB"}, {}, "only Ethernet loses segments"),
    ({"port_buffer": "4KiB"}, {}, "port_buffer"),
    ({"loss": "20%"}, {}, "loss"),
    ({"luns": 4}, {}, "say `queue_depth: 32`"),
    ({}, {"topology": {"link_rate": "10Gbit", "queue_depth": 32}}, "fc-nvme has no LUN"),
    ({"path_noticed": "1ms"}, {}, "no path fails"),
    ({"path_failures": [{"path": 1, "at": "5ms"}]}, {}, "no path is left from 5ms on"),
    ({"path_failures": [{"path": 3, "at": "5ms"}]}, {"topology": TWO_PATHS}, "there are 2 paths"),
    ({"path_failures": [{"path": 1, "at": "25ms"}]}, {"topology": TWO_PATHS}, "after all is measured"),
    ({"path_failures": [{"path": 1, "at": "5ms", "back": "5ms"}]}, {"topology": TWO_PATHS}, "after it has failed"),
    (
        {
            "path_failures": [{"path": 1, "at": "5ms", "back": "8ms"}, {"path": 2, "at": "9ms"}],
            "path_noticed": "2ms",
        },
        {"topology": TWO_PATHS},
        "no path is left from 9ms to 10ms",
    ),
]


@pytest.mark.parametrize(("sim", "more", "reason"), REFUSED)
def test_fabrics_that_cannot_be_are_refused_with_line_and_reason(
    sim: dict[str, Any], more: dict[str, Any], reason: str
) -> None:
    is_refused(BASE, sim, more, reason)


def test_queues_are_those_of_each_used_path_and_belong_to_scsi_alone() -> None:
    labels = {"fcp": {"protocol": "fcp", "queue_depth": 32}, "fc-nvme": "fc-nvme"}
    study = read({"luns": 4, "adapter_depth": 100}, factors={"protocol": labels}, topology=TWO_PATHS)
    assert document(study, protocol="fcp")["queues"] == {"luns": 4, "lun_depth": 64, "adapter_depth": 200}
    assert document(study, protocol="fc-nvme")["queues"] == {"luns": 4, "lun_depth": None, "adapter_depth": 200}


def test_a_label_has_queues_of_its_own() -> None:
    labels = {
        "four": {"protocol": "fcp", "luns": 4, "queue_depth": 32},
        "one": {"protocol": "fcp", "queue_depth": 32},
        "port": {"protocol": "fcp", "adapter_depth": 16},
    }
    study = read({}, factors={"protocol": labels}, baseline={"protocol": "four"}, topology=TWO_PATHS)
    assert document(study, protocol="four")["queues"] == {"luns": 4, "lun_depth": 64, "adapter_depth": None}
    assert document(study, protocol="one")["queues"] == {"luns": 1, "lun_depth": 64, "adapter_depth": None}
    assert document(study, protocol="port")["queues"] == {"luns": 1, "lun_depth": None, "adapter_depth": 32}
    labels["one"].pop("queue_depth")
    labels["four"].pop("queue_depth")
    is_refused(BASE, {}, {"factors": {"protocol": labels}, "baseline": {"protocol": "four"}}, "say `queue_depth: 32`")
    assert "queues" not in document(read({}), protocol="fcp")


def test_what_a_study_does_not_say_changes_neither_its_document_nor_its_digest() -> None:
    assert "path_failures" not in read({}).model_dump_json()
    assert read({}).digest() == read({"luns": 1}).digest()
    assert read({}).digest() != read({"adapter_depth": 8}).digest()
    told = document(read({}), protocol="fcp")
    assert told["paths"] == {"controllers": 1, "target_ports": 1, "ports": 1, "policy": "fixed"}
    assert "credits" not in told["link"]


def test_what_ethernet_loses_is_no_matter_of_fibre_channel() -> None:
    factors = {"protocol": ["fcp", "nvme-tcp"], "loss": ["0.01%", "1%"]}
    study = read({"port_buffer": "256KiB"}, factors=factors)
    link = document(study, protocol="nvme-tcp", loss=study.levels()["loss"][0].value)["link"]
    assert (link["lost_per_million"], link["buffer_bytes"]) == (100, 262_144)
    assert "lost_per_million" not in document(study, protocol="fcp")["link"]


def test_interrupts_are_coalesced_at_every_port_and_may_be_a_factor() -> None:
    study = read({}, factors={"protocol": ["fcp", "nvme-tcp"], "coalesce": ["0s", "20us"]})
    levels = [level.value for level in study.levels()["coalesce"]]
    assert [document(study, protocol="fcp", coalesce=each)["link"].get("coalesce_ns") for each in levels] == [
        None,
        20_000,
    ]
    with pytest.raises(StudyError, match="coalesce"):
        read({"coalesce": "11ms"})


def test_service_times_come_from_a_file_beside_the_study(tmp_path: Path) -> None:
    (tmp_path / "times.txt").write_text("# of a drive\n90us\n110us\n\n4ms  # garbage collected\n", encoding="utf-8")
    study = read({"media": {"servers": 4, "service_times": "times.txt"}}, tmp_path)
    told = document(study, protocol="fcp")["media"]
    assert (told["distribution"], told["times_ns"]) == ("empirical", [90_000, 110_000, 4_000_000])
    again = Study.model_validate_json(study.model_dump_json())
    assert again.digest() == study.digest()
    assert read({"media": {"servers": 4, "service_times": ["90us", "110us", "4ms"]}}).digest() == study.digest()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no service times"),
        ("90us\nsoon\n", "line 2: 'soon'"),
        ("-3\n", "line 1"),
        ("2h\n", "longer than an hour"),
        (None, "there is no file"),
        ("90us\n" * (4 << 20), "more than 16 MiB"),
    ],
)
def test_bad_file_of_service_times_is_refused_with_its_line(text: str | None, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "times.txt"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ServiceTimesError, match=r"times\.txt") as refused:
        read_service_times(file)
    assert reason in str(refused.value)
    with pytest.raises(StudyError, match=r"study\.yaml:"):
        read({"media": {"service_times": "times.txt"}}, tmp_path)


def test_many_service_times_are_reduced_and_keep_their_mean(tmp_path: Path) -> None:
    file = tmp_path / "times.txt"
    file.write_text("\n".join(f"{number}us" for number in range(1, 100_001)), encoding="utf-8")
    times = read_service_times(file)
    assert len(times) == 10_000
    assert sum(times) / len(times) == pytest.approx(50_000_500, rel=0.001)


def test_what_holds_back_limits_only_where_nothing_that_works_is_saturated() -> None:
    assert bottleneck(1.0, {"link": 0.97}, {"queue": 1.0}).limit == "link"
    found = bottleneck(1.0, {"link": 0.5}, {"queue": 1.0, "credits": 0.2})
    assert (found.limit, found.next, found.rise_max) == ("queue", "link", 1.0)
    assert bottleneck(1.0, {"link": 0.5}, {"queue": 0.4}).limit is None


def what_if(told: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(BASE | told), encoding="utf-8")
    done = CliRunner().invoke(app, ["sim", "what-if", str(file), "--json", "-"])
    assert done.exit_code == 0, done.output
    return {each["treatment"]: each["as_it_is"] for each in json.loads(done.stdout)["treatments"]}


def test_full_queue_of_a_lun_and_want_of_credits_are_what_limits(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    media = {"servers": 64, "service": "200us"}
    labels = {"fcp": {"protocol": "fcp", "queue_depth": 4}, "fc-nvme": "fc-nvme"}
    load = BASE["load"] | {"workers": 8, "outstanding": 4, "threads": 8}
    told = {"lab": {"sim": WIDE | {"media": media}}, "factors": {"protocol": labels}, "load": load}
    found = what_if(told, tmp_path)
    fcp, nvme = found["fcp"], found["fc-nvme"]
    assert (fcp["limit"], nvme["limit"]) == ("LUNs' queues", None)
    assert 0.5 < fcp["rate_iops"] / (4 / 200e-6) < 1.0
    assert nvme["rate_iops"] > 3 * fcp["rate_iops"]
    far = {"link_rate": "10Gbit", "link_delay": "250us"}
    # A wait counts when it ends, and each I/O waits for milliseconds.
    load = BASE["load"] | {"block_size": "64KiB", "runtime": "400ms"}
    starved = {"lab": {"sim": WIDE | {"credits": 8}}, "topology": far, "load": load}
    assert {each["limit"] for each in what_if(starved, tmp_path).values()} == {"credits"}


def test_path_that_fails_leaves_a_dip_and_no_error(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    told = BASE | {
        "responses": ["iops", "longest_gap", "slow_ios"],
        "lab": {"sim": WIDE | {"path_failures": [{"path": 1, "at": "5ms", "back": "12ms"}], "path_noticed": "3ms"}},
        "topology": TWO_PATHS,
    }
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    done = CliRunner().invoke(app, ["run", str(file), str(tmp_path / "out.iotax"), "--no-report"])
    assert done.exit_code == 0, done.output
    with Notebook(tmp_path / "out.iotax") as notebook:
        rows = list(attempt_rows(notebook, notebook.run(None)))
    # All outstanding I/Os soon use the failed path, so nothing completes until the failure is detected.
    assert rows
    assert all(2.4e6 < row["longest_gap_ns"] < 4e6 and row["longest_gap_of"] == "all" for row in rows), rows
    assert {row["ios_over_100_ms"] for row in rows} == {0}
