"""`--lab sim` simulates a study of another lab."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from iotax.cli.app import app
from iotax.notebook import Notebook
from iotax.study.as_simulated import as_simulated, load_simulated
from iotax.study.read import builtin_studies
from iotax.study.sim import read_costs
from iotax.study.source import StudyError

SIMULATED = {
    "block-size", "block-size-full", "controller-loss", "cpu-cost", "cpu-cost-full", "disks", "fcp-vs-fc-nvme",
    "fcp-vs-fc-nvme-full",
    "grid", "grid-full", "ip-vs-fc", "ip-vs-fc-full", "kernel-exact", "kernel-outstanding", "kernel-quick",
    "nfs-vs-fc-cpu", "nfs-vs-fc-cpu-full", "outstanding", "outstanding-full", "path-loss", "patterns", "patterns-full",
    "quick", "sim-quick", "tr-3808", "tr-3808-full",
}  # fmt: skip
OF_SIM = {"controller-loss", "fcp-vs-fc-nvme-full", "ip-vs-fc-full", "nfs-vs-fc-cpu-full", "sim-quick", "tr-3808-full"}
REFUSED = {
    "database": "loads with iotax only",
    "database-clients": "loads with iotax only",
    "datastores": "simulated guests reach the target themselves",
    "encryption-tax": "the tables of costs know no encryption",
    "generators": "loads with iotax only",
    "oltp": "simulated machines have no database",
    "kernel-clients": "simulated clients share one volume",
    "kernel-clients-full": "simulated clients share one volume",
    "kernel-path-loss": "simulated initiators have no such timeout",
    "kernel-patterns": "loads with iotax only",
    "kernel-releases": "a simulation runs no kernel",
    "virtual-disks": "simulated guests reach the target themselves",
    "virtual-disks-aio": "simulated guests reach the target themselves",
    "targets-exact": "the simulated targets are iotax's own",
}


def test_every_built_in_study_is_simulated_or_refused() -> None:
    assert set(builtin_studies()) == SIMULATED | REFUSED.keys()


def test_the_guide_names_every_study_that_is_refused() -> None:
    guide = Path(__file__).parents[3] / "docs/guide/simulator.md"
    [said] = re.findall(r"It runs every built-in study except:(.+?)\n\n", guide.read_text(), re.DOTALL)
    assert set(re.findall(r"`([a-z-]+)`", said)) == REFUSED.keys()


@pytest.mark.parametrize("name", sorted(SIMULATED))
def test_a_study_is_simulated_under_a_name_of_its_own(name: str) -> None:
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


def test_what_was_published_beside_a_protocol_that_is_left_out_is_left_out() -> None:
    whole, simulated = builtin_studies()["fcp-vs-fc-nvme"], load_simulated("fcp-vs-fc-nvme")[0]
    assert "baseline: {protocol: fcp-loop}" in whole
    assert [each.response for each in simulated.published] == ["iops", "latency"]


TWO_KERNELS = dict.fromkeys(("ip-vs-fc", "kernel-outstanding", "kernel-quick", "tr-3808"), "linux-6.1")
ONE_KERNEL = dict.fromkeys(("fcp-vs-fc-nvme", "kernel-exact", "nfs-vs-fc-cpu"), "linux-6.1-one-kernel")


@pytest.mark.parametrize(("name", "costs"), (TWO_KERNELS | ONE_KERNEL).items())
def test_a_study_of_kernels_is_simulated_at_what_they_cost(name: str, costs: str) -> None:
    study, _, said = load_simulated(name)
    assert study.lab.sim is not None
    assert (study.lab.sim.costs, study.lab.sim.cores, study.lab.sim.target_cores) == (costs, 1, 1)
    assert {endpoint.protocol for endpoint in study.endpoints().values()} <= read_costs(costs).protocols.keys()
    assert any("a simulation runs no kernel" in each for each in said)
    # The simulation draws its costs, and two or three draws are too few for an interval.
    assert study.design.replicates == 10
    assert "each replicate draws what is unknown of the costs: 10 replicates" in said


def test_protocols_that_the_simulator_does_not_speak_are_left_out_and_named() -> None:
    study, _, said = load_simulated("kernel-exact")
    assert set(study.endpoints()) == {"nfs3", "iscsi", "nvme-tcp", "fcp", "fc-nvme"}
    assert said[:3] == [
        "the simulator serves no volume without a protocol: `local` is left out",
        "the simulator does not speak iser, nvme-rdma, fcp-loop: left out",
        "linux-6.1-one-kernel has no costs of nfs4.1: left out",
    ]
    labels = {"RDMA": {"protocol": "iser", "io_queues": 1}, "TCP": "iscsi", "too": {"protocol": "iscsi", "mtu": 9000}}
    told: dict[str, Any] = {"name": "mine", "lab": "vm", "factors": {"protocol": labels}}
    assert list(as_simulated(told)[0]["factors"]["protocol"]) == ["TCP", "too"]


def test_of_controllers_of_a_hypervisor_only_what_a_guest_itself_does_is_simulated() -> None:
    study, _, said = load_simulated("ip-vs-fc")
    assert "attach" not in study.levels()
    assert (study.design.exclude, study.design.hard_to_change) == ([], ["protocol"])
    assert study.baseline == {"protocol": "fcp"}
    assert any("only `attach: guest` is simulated" in each for each in said)
    # Published figures of a datastore, or relative to one, are left out with it.
    assert [figure.of for each in study.published for figure in each.figures] == [
        {"protocol": name} for name in ("nvme-tcp", "fc-nvme")
    ]


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
    # The input is unchanged.
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
