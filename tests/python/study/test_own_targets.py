"""`--with-target` adds a target that the user built to a study."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from iotax.cli.app import app
from iotax.design import plan
from iotax.study import Study
from iotax.study.own_target import load_with_targets
from iotax.study.read import load_study, read_study

STUDY = """name: listed
question: Which target?
lab: {vm: {guests: 1}}
factors: {protocol: [nfs3, nvme-tcp], outstanding: [1, 8]}
baseline: {protocol: nfs3}
"""


def targets(study: Study) -> set[tuple[str, str]]:
    """Protocol and target of each trial."""
    asked = [study.settings(trial.treatment) for trial in plan(study).trials]
    return {(each.endpoint.protocol, each.topology.target) for each in asked}


def test_a_built_in_study_gets_a_level_and_a_name_of_its_own() -> None:
    study, text = load_with_targets("targets-exact", ["/opt/spdk/bin/nvmf_tgt"])
    built_in, _ = load_study("targets-exact")
    assert study.name == "targets-exact-own"
    levels = [level.label for level in study.levels()["protocol"]]
    assert levels == [*(level.label for level in built_in.levels()["protocol"]), "nvme-tcp nvmf_tgt"]
    assert ("nvme-tcp", "/opt/spdk/bin/nvmf_tgt") in targets(study)
    assert study.baseline == built_in.baseline
    assert read_study("again", text, Path.cwd()) == study


def test_two_builds_are_told_apart_by_the_names_that_the_user_gives(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    study, _ = load_with_targets(str(path), ["before=/a/nvmf_tgt", "after=/b/nvmf_tgt"])
    assert [level.label for level in study.levels()["protocol"]] == ["nfs3", "nvme-tcp", "before", "after"]
    with pytest.raises(ValueError, match="two levels have the name nvme-tcp nvmf_tgt; name each target"):
        load_with_targets(str(path), ["/a/nvmf_tgt", "/b/nvmf_tgt"])


def test_a_path_starts_where_the_command_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "studies").mkdir()
    path = tmp_path / "studies" / "study.yaml"
    path.write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    study, _ = load_with_targets("studies/study.yaml", ["build/bin/nvmf_tgt"])
    assert ("nvme-tcp", str(tmp_path / "build/bin/nvmf_tgt")) in targets(study)


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("quick", "/a/nvmf_tgt", "quick runs in the loopback lab; only the vm lab starts targets"),
        ("targets-exact", "/a/tgtd", "/a/tgtd: the lab does not know this program; it can start nvmf_tgt"),
        ("targets-exact", "iscsi LIO=/a/nvmf_tgt", "two levels have the name iscsi LIO"),
    ],
)
def test_what_cannot_be_compared_is_refused(name: str, target: str, said: str) -> None:
    for command in ("plan", "check", "run"):
        done = CliRunner().invoke(app, [command, name, "--with-target", target])
        assert done.exit_code == 2
        assert said in done.output


def test_a_study_without_protocols_as_a_factor_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    without = STUDY.replace("protocol: [nfs3, nvme-tcp], ", "").replace("{protocol: nfs3}", "{outstanding: 1}")
    path.write_text(without)
    with pytest.raises(ValueError, match="listed compares no protocols or targets: it has no factor `protocol`"):
        load_with_targets(str(path), ["/a/nvmf_tgt"])


def test_a_simulation_has_no_targets_of_the_user() -> None:
    done = CliRunner().invoke(app, ["plan", "targets-exact", "--lab", "sim", "--with-target", "/a/nvmf_tgt"])
    assert done.exit_code == 2
    assert "the simulated targets are iotax's own" in done.output
