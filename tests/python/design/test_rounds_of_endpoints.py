"""Rounds over endpoints outside the lab: the user's files, and targets on other machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine_process import ready, started
from iotax.cli.app import app
from iotax.cli.run import run
from iotax.design import plan
from iotax.labs.base import Sample, TrialFailed
from iotax.labs.choice import open_lab
from iotax.labs.loopback import LoopbackLab
from iotax.listener import Listener
from iotax.notebook import Notebook, Writer
from iotax.runner import run_study
from iotax.study.read import read_study

MIB = 1 << 20
STUDY = """\
name: endpoints
question: Which?
volume: {{size: 4MiB}}
factors:
  protocol: {{{protocols}}}
  outstanding: [1, 4]
load: {{read: 70%}}
design: {{sessions: 2, rounds: 2, slice: 250ms, settle: 5ms}}
baseline: {{protocol: base}}
"""

# A stalled machine completes no I/O in a slice.
pytestmark = [pytest.mark.machine, pytest.mark.usefixtures("real_engine")]


def zeros(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(4 * MIB)
    return path


def measured(folder: Path, protocols: str) -> None:
    """Runs the study, and checks that all treatments of both sessions have slices."""
    file, notebook = folder / "s.yaml", folder / "n.iotax"
    file.write_text(STUDY.format(protocols=protocols))
    run(str(file), notebook, report=False)
    with Notebook(notebook) as reader:
        attempts = reader.attempts()
    assert [(each.status, each.reason) for each in attempts if each.status != "done"] == []
    assert len({each.trial.id for each in attempts}) == len(attempts)
    assert all(each.result and each.result.ios and len(each.result.slices) == 2 for each in attempts)


@pytest.mark.slow
def test_treatments_of_one_file_share_it_with_each_other_and_with_the_server(tmp_path: Path) -> None:
    """Each load of a session opens the file that the study holds open; no load locks another out."""
    measured(tmp_path, f"mine: {zeros(tmp_path / 'a')}, other: {zeros(tmp_path / 'b')}, base: iscsi")


@pytest.mark.slow
def test_targets_elsewhere_are_measured_in_rounds(tmp_path: Path, real_engine: Path) -> None:
    document = {
        "volumes": [{"name": "v0", "media": "memory", "size_bytes": 4 * MIB, "fill": "zeros", "seed": 1}],
        "exports": [
            {"protocol": each, "listen": "127.0.0.1:0", "volume": "v0"} for each in ("nfs3", "iscsi", "nvme-tcp")
        ],
    }
    with started(real_engine, "serve", document) as server:
        endpoints = {each["protocol"]: each["endpoint"] for each in ready(server)["portals"]}
        named = f'base: "{endpoints["iscsi"]}", nvme: "{endpoints["nvme-tcp"]}", nfs: "{endpoints["nfs3"]}"'
        measured(tmp_path, named)
        assert server.stdin
        server.stdin.close()


def test_slices_before_a_path_failed_are_kept_and_are_no_result(tmp_path: Path, real_engine: Path) -> None:
    class Kills(Listener):
        """Kills the server once slices are told; by then a session has told what ended before."""

        heard = 0

        def sample(self, sample: Sample) -> None:
            self.heard += 1
            if self.heard == 4:
                server.kill()

    document = {
        "volumes": [{"name": "v0", "media": "memory", "size_bytes": 4 * MIB, "fill": "zeros", "seed": 1}],
        "exports": [{"protocol": each, "listen": "127.0.0.1:0", "volume": "v0"} for each in ("iscsi", "nvme-tcp")],
    }
    with started(real_engine, "serve", document) as server:
        endpoints = {each["protocol"]: each["endpoint"] for each in ready(server)["portals"]}
        text = STUDY.format(protocols=f'base: "{endpoints["iscsi"]}", nvme: "{endpoints["nvme-tcp"]}"')
        study = read_study("s", text.replace("rounds: 2", "rounds: 200"), tmp_path)
        made, path = plan(study), tmp_path / "n.iotax"
        lab = open_lab(study, made, [*endpoints.values()])
        with Writer(path) as writer:
            ending = run_study(
                study, made, lab, writer, source=text, label="", anew=True, environment={}, listener=Kills(),
                wait_for_target_s=0,
            )  # fmt: skip
    assert ending.away
    with Notebook(path) as notebook:
        attempts = notebook.attempts()
    assert {each.status for each in attempts} == {"failed"}
    assert all(endpoints["iscsi"] in each.reason or endpoints["nvme-tcp"] in each.reason for each in attempts)
    assert all(each.result is None for each in attempts)
    places = sorted(part.place for each in attempts for kept in each.kept for part in kept.slices)
    assert len(places) >= 4
    assert places == list(range(1, len(places) + 1))
    shown = CliRunner().invoke(app, ["show", str(path), "--long"]).output
    assert all(f"; {sum(len(kept.slices) for kept in each.kept)} slices kept" in shown for each in attempts)


def test_file_that_somebody_wrote_to_between_sessions_is_left_alone(tmp_path: Path, real_engine: Path) -> None:
    path = zeros(tmp_path / "a")
    study = read_study("s", STUDY.format(protocols=f"base: {path}, embedded: iscsi"), tmp_path)
    made = plan(study)
    lab = LoopbackLab(study, made, real_engine)
    try:
        lab.prepare(lambda _: None)
        first, second = ([trial for trial in made.trials if trial.block == block] for block in (1, 2))
        assert all(outcome.result.ios for outcome in lab.run_rounds(first, lambda _: None))
        theirs = b"somebody's thesis, chapter 1. " * 1000
        with path.open("r+b") as file:
            file.write(theirs)
        with pytest.raises(TrialFailed, match="somebody wrote to it since the study began") as failed:
            lab.run_rounds(second, lambda _: None)
        assert failed.value.permanent
    finally:
        lab.close()
    assert path.read_bytes()[: len(theirs)] == theirs
