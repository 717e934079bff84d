"""`--lab sim`: a study of another lab, simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from iotax.cli.app import app
from iotax.notebook import Notebook
from iotax.study.as_simulated import as_simulated, load_simulated
from iotax.study.read import builtin_studies
from iotax.study.source import StudyError

SIMULATED = {
    "block-size", "block-size-full", "cpu-cost", "cpu-cost-full", "disks", "fcp-vs-fc-nvme-full", "grid", "grid-full",
    "ip-vs-fc-full", "nfs-vs-fc-cpu-full", "outstanding", "outstanding-full", "patterns", "patterns-full", "quick",
    "sim-quick", "tr-3808-full",
}  # fmt: skip
OF_SIM = {"fcp-vs-fc-nvme-full", "ip-vs-fc-full", "nfs-vs-fc-cpu-full", "sim-quick", "tr-3808-full"}
REFUSED = {
    "fcp-vs-fc-nvme": "has no costs of fc-nvme",
    "generators": "loads with iotax only",
    "ip-vs-fc": "has no costs of fc-nvme",
    "kernel-exact": "does not serve",
    "kernel-outstanding": "has no costs of fcp",
    "kernel-quick": "does not serve",
    "nfs-vs-fc-cpu": "has no costs of fcp",
    "tr-3808": "loopback has no costs of fcp",
    "targets-exact": "the simulated targets are iotax's own",
}


def test_every_built_in_study_is_simulated_or_refused() -> None:
    assert set(builtin_studies()) == SIMULATED | REFUSED.keys()


@pytest.mark.parametrize("name", sorted(SIMULATED))
def test_a_study_of_sockets_is_simulated(name: str) -> None:
    study, text, said = load_simulated(name)
    assert study.lab.sim is not None
    assert study.name == (name if name in OF_SIM else f"{name}-sim")
    assert bool(said) == (name not in OF_SIM)
    assert yaml.safe_load(text)["name"] == study.name


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_what_the_simulator_cannot_do_is_refused_with_its_reason(name: str, reason: str) -> None:
    with pytest.raises(StudyError) as refused:
        load_simulated(name)
    assert any(reason in line for line in refused.value.lines())


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_the_same_question_at_full_size_is_named_where_the_simulator_has_it(name: str) -> None:
    with pytest.raises(StudyError) as refused:
        load_simulated(name)
    named = f"{name} with --lab sim: cannot be simulated; {name}-full asks the same of the simulator, at its full size"
    assert (refused.value.lines()[0] == named) == (f"{name}-full" in OF_SIM)


def test_what_is_changed_is_said() -> None:
    told: dict[str, Any] = {
        "name": "mine",
        "factors": {"protocol": ["local", "iscsi"], "link_rate": ["1Gbit", "10Gbit"]},
        "volume": {"size": "16MiB", "refill": "block"},
        "design": {"sessions": 4, "rounds": 8, "seed": 7},
        "floor": "local",
    }
    data, said = as_simulated(told)
    assert data["factors"] == {"protocol": ["iscsi"], "link_rate": ["1Gbit", "10Gbit"]}
    assert data["design"] == {"seed": 7, "replicates": 4}
    assert data["volume"] == {"size": "16MiB"}
    assert "topology" not in data
    assert "floor" not in data
    assert len(said) == 3
    # What was given stays as it was.
    assert told["factors"]["protocol"] == ["local", "iscsi"]
    assert told["floor"] == "local"


def test_media_that_are_a_model_are_simulated_as_they_are_served() -> None:
    study, _, said = load_simulated("disks")
    assert "media" not in study.levels()
    assert study.lab.sim is not None
    media = study.lab.sim.media
    assert media is not None
    assert (media.servers, media.seek, media.rpm, media.destage) == (16, 3_400_000, 15_000, 25.0)
    assert media.read_hits(1) == pytest.approx(0.02, abs=0.001)
    assert any("only `media: model` is simulated" in each for each in said)
    assert [figure.of for each in study.published for figure in each.figures] == [
        {"protocol": "nfs3", "workers": workers} for workers in (3, 10, 16)
    ]


def test_a_measured_study_runs_simulated_beside_its_measurements(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    told = {
        "name": "mine",
        "question": "How fast?",
        "lab": "loopback",
        "volume": {"size": "1MiB"},
        "factors": {"protocol": ["local", "iscsi"]},
        "load": {"rate_iops": 2000, "outstanding": 8},
        "design": {"sessions": 2, "rounds": 2},
        "baseline": {"protocol": "iscsi"},
    }
    file, notebook = tmp_path / "mine.yaml", tmp_path / "mine.iotax"
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    done = CliRunner().invoke(app, ["run", str(file), str(notebook), "--lab", "sim", "--no-report"])
    assert done.exit_code == 0, done.output
    assert "note: the simulator serves no volume without a protocol" in done.output
    with Notebook(notebook) as kept:
        [run] = kept.runs()
        assert run.name == "mine-sim"
        assert "lab:\n  sim: {}" in run.source
        assert [each.status for each in kept.attempts()] == ["done"] * 2
        assert all(each.result is not None and each.result.facts.simulated for each in kept.attempts())
    for command in ("plan", "check"):
        done = CliRunner().invoke(app, [command, str(file), "--lab", "sim"])
        assert done.exit_code == 0, done.output
    refused = CliRunner().invoke(app, ["run", str(file), str(notebook), "--lab", "sim", "--driver", "epoll"])
    assert refused.exit_code == 2
    assert "no I/O that a driver could do" in refused.output
