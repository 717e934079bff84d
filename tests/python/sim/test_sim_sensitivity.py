"""`iotax sim sensitivity`: a simulated study with each of its assumptions smaller and larger."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from iotax.cli.app import app
from iotax.cli.screen import LINES
from iotax.labs.sim.assumptions import assumptions
from iotax.study.read import read_study
from iotax.wording import SIMULATED
from iotax.wording.trust import SIMULATED_BRIEF

COST = {"ns": 0, "source": "nothing"}
PAID: dict[str, Any] = {
    "about": "a test",
    "protocols": {
        name: {
            "initiator": dict.fromkeys(("wake", "turn", "send", "kib", "segment"), COST) | {"io": io},
            "target": dict.fromkeys(("wake", "turn", "send", "kib", "segment"), COST)
            | {"io": {"ns": 20_000, "source": "one controller"}},
        }
        for name, io in (
            ("iscsi", {"ns": 10_000, "source": "a paper"}),
            ("nvme-tcp", {"ns": 20_000, "source": "another paper"}),
        )
    },
}
STUDY: dict[str, Any] = {
    "name": "assumed",
    "question": "What if it is not so?",
    "lab": {"sim": {"media": {"servers": 1, "service": "100us"}}},
    "volume": {"size": "1MiB"},
    "factors": {"protocol": ["iscsi", "nvme-tcp"]},
    "load": {"outstanding": 8, "warmup": "5ms", "runtime": "100ms"},
    "topology": {"link_rate": "10Gbit", "link_delay": "10us"},
    "design": {"replicates": 2},
    "baseline": {"protocol": "iscsi"},
    "responses": ["iops", "cpu_per_io"],
    "published": [
        {
            "source": "a paper",
            "response": "cpu_per_io",
            "figures": [{"of": {"protocol": "nvme-tcp"}, "relative": [130, 136]}],
        }
    ],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    table = tmp_path / "costs.yaml"
    table.write_text(yaml.safe_dump(PAID), encoding="utf-8")
    told = STUDY | {"lab": {"sim": STUDY["lab"]["sim"] | {"costs": str(table)}}}
    study = tmp_path / "study.yaml"
    study.write_text(yaml.safe_dump(told), encoding="utf-8")
    return study


def test_costs_of_one_source_are_one_assumption_and_those_of_nothing_are_none(file: Path) -> None:
    found = assumptions(read_study(file.name, file.read_text(encoding="utf-8"), file.parent))
    assert [(each.name, each.value) for each in found] == [
        ("an I/O, initiator: iscsi", "10.0 µs"),
        ("an I/O, target: iscsi, nvme-tcp", "20.0 µs"),
        ("an I/O, initiator: nvme-tcp", "20.0 µs"),
        ("media: service time", "100 µs"),
        ("link: delay", "10.0 µs"),
    ]


def test_a_field_that_is_a_factor_is_no_assumption(file: Path) -> None:
    told = yaml.safe_load(file.read_text(encoding="utf-8"))
    told["factors"]["link_delay"] = ["10us", "20us"]
    del told["topology"]["link_delay"]
    found = assumptions(read_study(file.name, yaml.safe_dump(told), file.parent))
    assert [each.name for each in found][-1] == "media: service time"


def test_how_adapters_coalesce_is_assumed_where_they_do(file: Path) -> None:
    told = yaml.safe_load(file.read_text(encoding="utf-8"))
    told["lab"]["sim"]["coalesce"] = "20us"
    study = read_study(file.name, yaml.safe_dump(told), file.parent)
    last = assumptions(study)[-1]
    assert (last.name, last.value) == ("adapters: interrupt coalescing", "20.0 µs")
    less, more = (last.in_study(study, times).lab.sim for times in (0.5, 1.5))
    assert less is not None and more is not None
    assert (less.coalesce, more.coalesce) == (10_000, 30_000)
    del told["lab"]["sim"]["coalesce"]
    told["factors"]["coalesce"] = ["0s", "20us"]
    found = assumptions(read_study(file.name, yaml.safe_dump(told), file.parent))
    assert "coalescing" not in found[-1].name


def test_each_assumption_moves_what_it_bears_on(file: Path, real_engine: Path) -> None:
    del real_engine
    done = CliRunner().invoke(app, ["sim", "sensitivity", str(file), "--json", "-"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["simulated"] is True

    def cpu(world: dict[str, Any]) -> float:
        return next(each["percent"] for each in world["ratios"] if each["response"] == "cpu")

    # Both sides together: 40 µs per I/O over NVMe/TCP, 30 µs over iSCSI.
    assert cpu(document["as_it_is"]) == pytest.approx(100 * 40 / 30, rel=0.02)
    assert (document["as_it_is"]["published_met"], document["as_it_is"]["published"]) == (1, 1)
    worlds = {each["name"]: each for each in document["assumptions"]}
    dearer = worlds["an I/O, initiator: nvme-tcp"]
    assert cpu(dearer["half"]) == pytest.approx(100, rel=0.02)
    assert cpu(dearer["half_more"]) == pytest.approx(100 * 50 / 30, rel=0.02)
    assert dearer["half"]["published_met"] == dearer["half_more"]["published_met"] == 0
    assert dearer["source"] == "another paper"
    both = worlds["an I/O, target: iscsi, nvme-tcp"]
    assert cpu(both["half"]) == pytest.approx(100 * 30 / 20, rel=0.02)
    for world in (worlds["media: service time"]["half"], worlds["link: delay"]["half_more"]):
        assert cpu(world) == pytest.approx(100 * 40 / 30, rel=0.02)


def test_the_first_screen_says_that_it_is_simulated_and_how_many_published_figures_are_met(
    file: Path, real_engine: Path
) -> None:
    del real_engine
    done = CliRunner().invoke(app, ["sim", "sensitivity", str(file)])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert len(lines) <= LINES
    said = " ".join(done.output.split())
    assert said.index(SIMULATED_BRIEF) < said.index("ratio that moves most")
    assert "Simulated values within the published ranges: 1 of 1 as it is, 0 to 1 with one assumption changed." in said


def test_the_largest_effects_come_first_and_long_has_all(file: Path, real_engine: Path) -> None:
    del real_engine
    brief = CliRunner().invoke(app, ["sim", "sensitivity", str(file)]).output
    done = CliRunner().invoke(app, ["sim", "sensitivity", str(file), "--long"])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert said.index(SIMULATED[:40]) < said.index("ratio that moves most")
    assert "none by 0.5 %" in said
    rows = [re.findall(r"(\d+|–) +(\d+|–) +(\d+|–)$", line) for line in brief.splitlines()]
    moves = [
        max(abs(int(each) - int(now)) / int(now) for each in around if each != "–")
        for [(now, *around)] in (row for row in rows if row)
    ]
    assert len(moves) > 2
    assert all(later <= earlier + 0.02 for earlier, later in itertools.pairwise(moves)), moves


def test_a_study_of_another_lab_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    told = {key: value for key, value in STUDY.items() if key not in ("lab", "topology", "published")}
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    done = CliRunner().invoke(app, ["sim", "sensitivity", str(file)])
    assert done.exit_code == 2
    assert "sensitivity is of studies with `lab: sim`" in " ".join(done.output.split())
