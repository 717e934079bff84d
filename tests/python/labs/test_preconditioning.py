"""Volumes are filled and overwritten until steady before the first trial. Completed steps are not repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotax.analysis.steady import progress_of
from iotax.collected import study_data
from iotax.design import plan
from iotax.design.conditioning import conditioned, described
from iotax.engine import find_engine
from iotax.labs.base import CheckItem, Lab, LabUnusable, Outcome, Progress, TrialFailed, Worked
from iotax.labs.loopback import LoopbackLab
from iotax.listener import Listener
from iotax.notebook import Notebook, Writer
from iotax.records import Conditioning
from iotax.runner import run_study
from iotax.study import Study
from iotax.study.precondition import Precondition
from iotax.study.read import read_study
from iotax.study.source import StudyError
from iotax.trial import Background, Trial
from iotax.wording.trust import preconditioned

MIB = 1 << 20
TEXT = """\
name: steady
question: Is it?
volume: {size: 8MiB}
factors: {protocol: {disk: ./volume}}
load: {runtime: 500ms, warmup: 0s, block_size: 16KiB, working_set: 4MiB}
precondition: {fill: 75%, passes: 2, round: 100ms, rounds_max: 6}
design: {replicates: 1}
baseline: {protocol: disk}
"""
ASKED = Precondition.model_validate({"passes": 2, "rounds_max": 6})


def step(kind: str, rate_iops: float | None = None, invocation: int = 1) -> Conditioning:
    return Conditioning.model_validate(
        {"endpoint": "e", "invocation": invocation, "kind": kind, "started_unix_ns": 0, "duration_ns": 1, "bytes": 1}
        | {"rate_iops": rate_iops}
    )


FILLED = [step("fill"), step("fill")]


def test_a_volume_is_steady_by_its_last_five_rounds() -> None:
    falling = [step("round", rate) for rate in (900.0, 500.0, 300.0, 200.0, 150.0)]
    done = progress_of(ASKED, "e", FILLED + falling, 1)
    assert (done.done, done.steady, done.rounds) == (False, False, 5)
    level = [step("round", rate) for rate in (900.0, 100.0, 101.0, 99.0, 100.0, 102.0)]
    done = progress_of(ASKED, "e", FILLED + level, 1)
    assert (done.done, done.steady, done.rounds) == (True, True, 6)
    never = [step("round", rate) for rate in (900.0, 500.0, 300.0, 200.0, 150.0, 100.0)]
    assert progress_of(ASKED, "e", FILLED + never, 1).done
    assert not progress_of(ASKED, "e", FILLED + never, 1).steady


def test_filling_is_kept_and_rounds_begin_afresh_after_a_rest() -> None:
    broken = [*FILLED, *(step("round", 100.0) for _ in range(4))]
    done = progress_of(ASKED, "e", broken, 2)
    assert (done.passes_left, done.rounds, done.done) == (0, 0, False)
    # Completed preconditioning is not repeated.
    assert progress_of(ASKED, "e", [*broken, step("round", 100.0)], 2).done
    assert progress_of(ASKED, "e", FILLED[:1], 2).passes_left == 1
    only_filled = ASKED.model_copy(update={"rounds_max": 0})
    assert progress_of(only_filled, "e", FILLED, 1).done
    assert not progress_of(only_filled, "e", [], 1).done


class Played(Lab):
    """Works on one volume whose rounds have these rates; fails when no rate is left."""

    def __init__(self, rates_iops: list[float]) -> None:
        self.rates_iops, self.did, self.seeds = rates_iops, [], []

    def check(self) -> list[CheckItem]:
        return []

    def prepare(self, progress: Progress) -> None:
        pass

    def volumes(self) -> list[str]:
        return ["e"]

    def fill(self, endpoint: str, progress: Progress) -> Worked:
        self.did.append("fill")
        return Worked(MIB)

    def overwrite(self, endpoint: str, number: int, progress: Progress) -> Worked:
        if not self.rates_iops:
            raise TrialFailed("the array is gone")
        self.did.append("round")
        self.seeds.append(number)
        return Worked(MIB, self.rates_iops.pop(0))

    def background(self, block: int) -> Background:
        raise TrialFailed("not asked for")

    def run(self, trial: Trial, progress: Progress) -> Outcome:
        self.did.append("trial")
        raise TrialFailed("enough seen", kind="usage")

    def close(self) -> None:
        pass


class Log(Listener):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, message: str) -> None:
        self.warnings.append(message)


def play(path: Path, lab: Lab, text: str = TEXT) -> Log:
    study, log = read_study("steady", text, path.parent), Log()
    with Writer(path) as writer:
        run_study(
            study, plan(study), lab, writer, source=text, label="", anew=False, environment={}, listener=log
        )  # fmt: skip
    return log


def test_an_interrupted_preconditioning_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "n.iotax"
    first = Played([100.0, 100.0, 100.0])
    with pytest.raises(LabUnusable, match="the array is gone"):
        play(path, first)
    assert first.did == ["fill", "fill", "round", "round", "round"]
    second = Played([100.0] * 6)
    assert not any("steady" in each for each in play(path, second).warnings)
    assert second.did == ["round"] * 5 + ["trial"]
    assert len(set(second.seeds)) == 5
    third = Played([])
    play(path, third)
    assert third.did == ["trial"]
    with Notebook(path) as notebook:
        kept = notebook.preconditionings()
    assert [each.kind for each in kept] == ["fill"] * 2 + ["round"] * 8
    assert [each.invocation for each in kept] == [1] * 5 + [2] * 5


def test_a_volume_that_stays_unsteady_is_measured_and_named(tmp_path: Path) -> None:
    path = tmp_path / "n.iotax"
    lab = Played([900.0, 500.0, 300.0, 200.0, 150.0, 100.0])
    log = play(path, lab)
    assert lab.did == ["fill", "fill", *["round"] * 6, "trial"]
    assert any("not in a steady state after 6 rounds" in each for each in log.warnings)
    with Notebook(path) as notebook:
        data = study_data(notebook)
    assert data.study.precondition is not None
    said = preconditioned(data.study.precondition, data.preconditionings)
    assert said["e"].startswith("filled 2 times with 1MiB; not in a steady state after 6 rounds of random writes")


@pytest.mark.machine  # a disk that stalls for a whole window completes no I/O in it
def test_the_engine_fills_and_overwrites_a_volume_that_reads_then_verify(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    volume, path = tmp_path / "volume", tmp_path / "n.iotax"
    with volume.open("wb") as file:
        file.truncate(8 * MIB)
    study = read_study("steady", TEXT, tmp_path)
    play(path, LoopbackLab(study, plan(study), find_engine()))
    with Notebook(path) as notebook:
        [attempt], kept = notebook.attempts(), notebook.preconditionings()
    assert [each.kind for each in kept][:2] == ["fill", "fill"]
    assert len(kept) >= 7
    assert {each.bytes for each in kept if each.kind == "fill"} == {6 * MIB}
    assert all(each.rate_iops and each.bytes for each in kept if each.kind == "round")
    written = volume.read_bytes()
    assert any(written[6 * MIB - 4096 : 6 * MIB])
    assert not any(written[6 * MIB :])
    assert attempt.result is not None
    assert attempt.result.verify is not None
    assert (attempt.result.verify.checked_blocks > 0, attempt.result.verify.wrong_blocks) == (True, 0)


@pytest.mark.machine
def test_foreign_data_are_not_preconditioned_without_an_explicit_word(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    volume = tmp_path / "volume"
    volume.write_bytes(b"my thesis".ljust(8 * MIB, b"\0"))
    # The study only reads, but preconditioning writes.
    only_reads = TEXT.replace("8MiB", "8MiB, fill: zeros").replace("working_set", "verify: false, working_set")
    study = read_study("steady", only_reads, tmp_path)
    path = tmp_path / "n.iotax"
    with pytest.raises(LabUnusable, match="--destroy") as refused:
        play(path, LoopbackLab(study, plan(study), find_engine()), only_reads)
    assert refused.value.refused
    assert volume.read_bytes().startswith(b"my thesis")
    assert not path.exists()
    play(path, LoopbackLab(study, plan(study), find_engine(), frozenset({f"local:{volume}"})), only_reads)
    assert not volume.read_bytes().startswith(b"my thesis")


def test_a_volume_smaller_than_what_is_filled_is_refused(real_engine: Path, tmp_path: Path) -> None:
    del real_engine
    with (tmp_path / "volume").open("wb") as file:
        file.truncate(5 * MIB)
    study = read_study("steady", TEXT, tmp_path)
    with pytest.raises(LabUnusable, match="preconditioning fills 6MiB"):
        LoopbackLab(study, plan(study), find_engine()).prepare(lambda _: None)


def test_the_plan_tells_the_time_of_it() -> None:
    study = read_study("steady", TEXT.replace("8MiB", "100GiB").replace("round: 100ms", "round: 1min"), Path("/x"))
    found = conditioned(study)
    assert found is not None
    assert found.least_ns - found.fill_ns == 5 * 60 * 10**9
    assert plan(study).duration_ns > found.least_ns > found.fill_ns > 0
    [line] = described(study)
    assert "2 passes of 75GiB each" in line
    assert "5 min 00 s to 6 min 00 s in all" in line


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("{disk: ./volume}", "[iscsi]"), "the lab's own server is new in each run"),
        (("rounds_max: 6", "rounds_max: 3"), "a steady state is judged over 5 rounds"),
        (("8MiB", "8MiB, refill: block"), "undoes the preconditioning"),
        (("working_set", "generator: fio, working_set"), "what fio lays out to verify"),
    ],
)
def test_what_cannot_be_preconditioned_is_refused(change: tuple[str, str], said: str) -> None:
    text = TEXT.replace(*change).replace("baseline: {protocol: disk}", "baseline: {protocol: iscsi}") if (
        "iscsi" in change[1]
    ) else TEXT.replace(*change)  # fmt: skip
    with pytest.raises(StudyError, match=said):
        read_study("steady", text, Path("/x"))


def test_a_study_without_it_is_as_before() -> None:
    study = read_study("steady", TEXT.replace("precondition: ", "# "), Path("/x"))
    assert isinstance(study, Study)
    assert (conditioned(study), described(study)) == (None, [])
