"""Attempts, retries and resumption, with an engine that fails on purpose."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import ClassVar

import pytest

from faked import FakeEngine
from iotax.analysis import summarise
from iotax.collected import study_data
from iotax.design import plan
from iotax.engine import find_engine
from iotax.labs import load as labs_load
from iotax.labs import loopback
from iotax.labs.base import LabUnusable, Outcome, Progress, Step, TrialFailed
from iotax.labs.loopback import LoopbackLab, share_cpus
from iotax.notebook import Notebook, Writer
from iotax.runner import Ending, Listener, run_study
from iotax.study.read import load_study
from iotax.trial import Attempt, Trial
from iotax.waiting import WAIT_FOR_TARGET_S


class Log(Listener):
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.steps: list[str] = []
        self.resumed: bool | None = None
        self.left = 0

    def planned(self, plan: object, left: list, resumed: bool) -> None:
        del plan
        self.left, self.resumed = len(left), resumed

    def warning(self, message: str) -> None:
        self.warnings.append(message)

    def step(self, step: Step) -> None:
        self.steps.append(step.text)


def run(
    path: Path,
    study_path: Path,
    log: Log | None = None,
    *,
    anew: bool = False,
    label: str = "",
    lab: type[LoopbackLab] = LoopbackLab,
    wait_for_target_s: float = WAIT_FOR_TARGET_S,
) -> Ending:
    study, source = load_study(str(study_path))
    planned = plan(study)
    with Writer(path) as writer:
        return run_study(
            study,
            planned,
            lab(study, planned, find_engine()),
            writer,
            source=source,
            label=label,
            anew=anew,
            wait_for_target_s=wait_for_target_s,
            environment={"test": True},
            listener=log or Log(),
        )


def attempts(path: Path) -> list[Attempt]:
    with Notebook(path) as notebook:
        return notebook.attempts()


def test_a_study_runs_in_its_planned_order(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    del engine
    path = tmp_path / "n.iotax"
    assert run(path, tiny) == Ending(1, 8, (), interrupted=False)
    assert [each.trial.id for each in attempts(path)] == [each.id for each in plan(load_study(str(tiny))[0]).trials]
    first = attempts(path)[0]
    assert first.status == "done"
    assert first.connected is not None
    assert first.connected.found == {"Key": "Value"}, "a later engine's word is kept"
    assert first.result is not None
    assert first.result.rate_iops == pytest.approx(100_000 * int(first.trial.treatment["outstanding"]))
    with Notebook(path) as notebook:
        assert notebook.environment() == {"test": True}
        assert [each.block for each in notebook.backgrounds()] == [1, 2]
        assert notebook.study() == load_study(str(tiny))[0]
        assert notebook.run().source == tiny.read_text()


def test_the_engine_is_asked_what_the_treatment_says(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    run(tmp_path / "n.iotax", tiny)
    documents = engine.documents("load", task="run")
    assert len(documents) == 8
    served = [each for each in documents if each["endpoint"].startswith("iscsi")]
    assert [each["outstanding"] for each in served].count(8) == 2
    assert all(each["watch_pids"] for each in served)
    assert all(not each["watch_pids"] for each in documents if each["endpoint"].startswith("local:/proc"))
    some = documents[0]
    assert (some["block_size_bytes"], some["read_percent"], some["random_percent"]) == (4096, 75, 100)
    assert (some["warmup_ns"], some["runtime_ns"], some["working_set_bytes"]) == (0, 10_000_000, 1 << 20)
    assert len({each["seed"] for each in documents}) == 2
    [server] = engine.documents("serve")
    assert [each["protocol"] for each in server["exports"]] == [
        "nfs3", "nfs4.1", "iscsi", "nvme-tcp", "fcp", "fc-nvme",
    ]  # fmt: skip
    assert server["volumes"][0]["size_bytes"] == 1 << 20


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("die", "the load process was ended by SIGKILL"),
        ("malformed", "the engine wrote a line that is not an event: '{this is not JSON'"),
        ("wrong_shape", "the engine's line does not fit its own interface: engine_version: Field required"),
        ("no_ios", "no I/O completed within the measured window"),
        ("error:verify", "the load was told to fail (fake)"),
    ],
)
def test_a_failed_attempt_is_kept_and_tried_once_more(
    engine: FakeEngine, tiny: Path, tmp_path: Path, fault: str, reason: str
) -> None:
    engine.faults(run_3=fault)
    log = Log()
    assert run(tmp_path / "n.iotax", tiny, log) == Ending(1, 8, (), interrupted=False)
    found = attempts(tmp_path / "n.iotax")
    assert len(found) == 9
    assert [(each.number, each.status) for each in found[2:4]] == [(1, "failed"), (2, "done")]
    assert found[2].trial == found[3].trial
    assert found[2].reason == reason
    assert f"run 3 {fault}" in found[2].log
    assert found[2].result is None


def test_a_trial_that_fails_twice_is_left_and_the_study_goes_on(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    engine.faults(run_3="die", run_4="die")
    summary = run(tmp_path / "n.iotax", tiny)
    assert summary.done == 7
    assert len(summary.failed) == 1
    # A second run of the study runs only that trial.
    log = Log()
    assert run(tmp_path / "n.iotax", tiny, log) == Ending(1, 1, (), interrupted=False)
    assert (log.resumed, log.left) == (True, 1)
    assert attempts(tmp_path / "n.iotax")[-1].number == 3


@pytest.mark.parametrize("kind", ["too_small", "denied", "foreign_data", "in_use"])
def test_what_cannot_go_otherwise_is_not_tried_again(engine: FakeEngine, tiny: Path, tmp_path: Path, kind: str) -> None:
    engine.faults(run_3=f"error:{kind}")
    summary = run(tmp_path / "n.iotax", tiny)
    assert (summary.done, len(summary.failed)) == (7, 1)
    assert len(attempts(tmp_path / "n.iotax")) == 8


class AwayLab(LoopbackLab):
    """Its target answers after `looks` checks."""

    looks = 3

    def answers(self, trial: object) -> bool:
        del trial
        self.looks -= 1
        return self.looks <= 0


@pytest.mark.parametrize("kind", ["refused", "lost"])
def test_a_target_that_is_gone_is_waited_for_and_costs_one_attempt(
    engine: FakeEngine, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("iotax.runner.waits_s", lambda: itertools.repeat(0.01))
    log = Log()
    engine.faults(run_3=f"error:{kind}")
    assert run(tmp_path / "n.iotax", tiny, log, lab=AwayLab).done == 8
    assert len([step for step in log.steps if step.startswith("the target does not answer")]) == 2
    assert len(attempts(tmp_path / "n.iotax")) == 9


def test_a_target_that_stays_away_ends_the_run_and_burns_no_trials(
    engine: FakeEngine, tiny: Path, tmp_path: Path
) -> None:
    engine.faults(every="error:refused")
    summary = run(tmp_path / "n.iotax", tiny, lab=AwayLab, wait_for_target_s=0)
    assert summary.done == 0
    assert len(attempts(tmp_path / "n.iotax")) == 1


class UndoneLab(LoopbackLab):
    """A lab whose third trial has an event that is not undone."""

    trials: ClassVar[int] = 0

    def run(self, trial: Trial, progress: Progress) -> Outcome:
        UndoneLab.trials += 1
        if UndoneLab.trials == 3:
            raise TrialFailed("h1: the event `x`: `y` failed twice", kind="not_undone", host="h1")
        return super().run(trial, progress)


def test_an_event_that_is_not_undone_ends_the_run_and_does_not_happen_again(
    engine: FakeEngine, tiny: Path, tmp_path: Path
) -> None:
    del engine
    path = tmp_path / "n.iotax"
    ended = run(path, tiny, lab=UndoneLab)
    assert ended == Ending(1, 2, (), interrupted=False, not_undone="h1: the event `x`: `y` failed twice")
    assert [each.status for each in attempts(path)] == ["done", "done", "failed"]
    assert run(path, tiny, lab=UndoneLab).done == 6, "the same command goes on"


@pytest.mark.parametrize("fault", ["kill_server", "kill_server_later"])
def test_a_server_that_dies_is_named_and_started_again(
    engine: FakeEngine, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The load may detect the server's death before the system has ended the server."""
    monkeypatch.setattr(loopback, "_DYING_S", 30.0)
    tiny.write_text(tiny.read_text().replace("[local, iscsi]", "[nfs3, iscsi]"))
    engine.faults(run_3=fault)
    assert run(tmp_path / "n.iotax", tiny).done == 8
    failed = attempts(tmp_path / "n.iotax")[2]
    assert failed.reason.startswith(
        "the serve process was ended by SIGKILL; the load then said: the connection went away"
    )
    assert len(engine.documents("serve")) == 2


def test_a_hanging_load_is_given_up(
    engine: FakeEngine, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labs_load, "SILENCE_S", 0.3)
    engine.faults(run_2="hang")
    assert run(tmp_path / "n.iotax", tiny).done == 8
    assert attempts(tmp_path / "n.iotax")[1].reason == "the load process fell silent and was ended"


def test_a_server_that_does_not_come_up_stops_the_study_before_it_begins(
    engine: FakeEngine, tiny: Path, tmp_path: Path
) -> None:
    engine.faults(serve="port_taken")
    with pytest.raises(LabUnusable, match="the server did not come up: the server was told to fail"):
        run(tmp_path / "n.iotax", tiny)
    assert list(tmp_path.glob("n.iotax*")) == []


def test_a_complete_study_is_left_alone(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "n.iotax"
    assert run(path, tiny).done == 8
    asked = engine.documents("load")
    assert run(path, tiny) == Ending(1, 0, (), interrupted=False, finished=True)
    assert engine.documents("load") == asked
    with Notebook(path) as notebook:
        assert len(notebook.environments()) == 1


@pytest.mark.parametrize("blocks", ["replicate", "none"])
def test_more_replicates_are_added_to_what_is_there(
    engine: FakeEngine, tiny: Path, tmp_path: Path, blocks: str
) -> None:
    path = tmp_path / "n.iotax"
    tiny.write_text(tiny.read_text().replace("seed: 7", f"seed: 7, blocks: {blocks}, sentinels: 2"))
    run(path, tiny)
    before = attempts(path)
    engine.faults(run_13="die", run_14="die")
    tiny.write_text(tiny.read_text().replace("replicates: 2", "replicates: 4"))
    log = Log()
    assert len(run(path, tiny, log).failed) == 1
    assert log.resumed is True
    assert [each for each in log.warnings if "so its ratios get no verdict" in each]
    # Added trials that failed are resumed like any others.
    assert run(path, tiny) == Ending(1, 1, (), interrupted=False)
    found = attempts(path)
    assert found[: len(before)] == before
    done = [each.trial for each in found if each.status == "done"]
    assert len({trial.id for trial in done}) == len(done)
    assert sorted(trial.order for trial in done) == list(range(1, len(done) + 1))
    compared = [trial for trial in done if trial.compared]
    assert {trial.id for trial in compared} == {
        trial.id for trial in plan(load_study(str(tiny))[0]).trials if trial.compared
    }
    # Added trials never share a block with earlier ones.
    last = max(each.trial.block for each in before)
    assert {trial.block for trial in compared if trial.replicate > 2} == (
        {3, 4} if blocks == "replicate" else {last + 1}
    )
    with Notebook(path) as notebook:
        assert [each.id for each in notebook.runs()] == [1]
        assert notebook.study().design.replicates == 4
        assert [(each.results, each.replicates, each.raised_to) for each in notebook.looks()] == [(10, 2, 4)]
        found = summarise(study_data(notebook))
    assert found.comparisons
    assert not any(each.verdict for each in found.comparisons)


def test_a_new_seed_begins_a_new_run_that_gets_verdicts(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    del engine
    path = tmp_path / "n.iotax"
    run(path, tiny)
    tiny.write_text(tiny.read_text().replace("seed: 7", "seed: 8").replace("replicates: 2", "replicates: 4"))
    assert run(path, tiny).run == 2
    with Notebook(path) as notebook:
        assert notebook.looks() == []


def test_a_complete_study_runs_anew_and_both_runs_are_kept(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    del engine
    path = tmp_path / "n.iotax"
    assert [run(path, tiny).run, run(path, tiny, anew=True).run] == [1, 2]
    with Notebook(path) as notebook:
        assert [len(notebook.attempts(each.id)) for each in notebook.runs()] == [8, 8]


def test_labels_and_changed_studies_are_runs_of_their_own(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "n.iotax"
    engine.faults(every="die")
    assert run(path, tiny, label="before").failed
    engine.faults()
    log = Log()
    assert run(path, tiny, log, label="after").run == 2
    assert log.resumed is False
    tiny.write_text(tiny.read_text().replace("seed: 7", "seed: 8"))
    assert run(path, tiny, label="before").run == 3


def test_new_begins_again_although_trials_are_left(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "n.iotax"
    engine.faults(every="die")
    run(path, tiny)
    engine.faults()
    assert run(path, tiny, anew=True) == Ending(2, 8, (), interrupted=False)


@pytest.mark.parametrize(("refill", "fills"), [("never", 0), ("block", 1), ("trial", 7)])
def test_the_pattern_is_restored_as_often_as_asked(
    engine: FakeEngine, tiny: Path, tmp_path: Path, refill: str, fills: int
) -> None:
    """The server fills its volume when it starts, so the first block or trial needs no further fill."""
    tiny.write_text(tiny.read_text().replace("1MiB", f"1MiB, refill: {refill}"))
    run(tmp_path / "n.iotax", tiny)
    assert len(engine.documents("serve-command", command="fill")) == fills


def test_a_volume_factor_gets_a_server_for_each_level(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    tiny.write_text(tiny.read_text().replace("outstanding: [1, 8]", "delay: [0us, 50us]"))
    run(tmp_path / "n.iotax", tiny)
    delays = {each["volumes"][0]["delay_ns"] for each in engine.documents("serve")}
    assert delays == {0, 50_000}


def test_digests_are_asked_only_of_protocols_that_have_them(engine: FakeEngine, tiny: Path, tmp_path: Path) -> None:
    tiny.write_text(tiny.read_text().replace("outstanding: [1, 8]", "data_digest: [true, false]"))
    run(tmp_path / "n.iotax", tiny)
    for document in engine.documents("load", task="run"):
        assert ("data_digest" in document["options"]) == document["endpoint"].startswith("iscsi")


@pytest.mark.parametrize(
    ("usable", "server", "load", "expected"),
    [
        ([0, 1], 1, 1, ([0], [1])),
        ([2, 5, 7, 9], 1, 2, ([2], [5, 7])),
        ([0], 1, 1, ([], [])),
        ([0, 1, 2], 2, 2, ([], [])),
    ],
)
def test_processes_get_processors_of_their_own_where_there_are_enough(
    usable: list[int], server: int, load: int, expected: tuple[list[int], list[int]]
) -> None:
    assert share_cpus(usable, server, load) == expected


class LosingLab(LoopbackLab):
    """A lab whose trials fail because of a host, until that host is left out."""

    left: ClassVar[list[str]] = []

    def run(self, trial: Trial, progress: Progress) -> Outcome:
        if not self.left:
            raise TrialFailed("h2: the engine there was ended by SIGKILL", kind="died", host="h2")
        return super().run(trial, progress)

    def leave_out(self, failed: TrialFailed) -> bool:
        self.left.append(failed.host)
        return True


def test_a_host_that_fails_twice_may_be_left_out_and_the_same_trial_runs(
    engine: FakeEngine, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del engine
    monkeypatch.setattr(LosingLab, "left", [])
    log = Log()
    assert run(tmp_path / "n.iotax", tiny, log, lab=LosingLab) == Ending(1, 8, (), interrupted=False)
    found = attempts(tmp_path / "n.iotax")
    assert [(each.number, each.status) for each in found[:3]] == [(1, "failed"), (2, "failed"), (3, "done")]
    assert len({each.trial.id for each in found[:3]}) == 1
    assert LosingLab.left == ["h2"]
    assert any(said.startswith("h2 is left out (the engine there was ended by SIGKILL)") for said in log.warnings)


class HostsAwayLab(LoopbackLab):
    """A lab whose trials with 8 outstanding I/Os run without a host while it is away."""

    away: ClassVar[dict[str, str]] = {}

    def prepare(self, progress: Progress) -> None:
        super().prepare(progress)
        self.absent = dict(self.away)

    def run(self, trial: Trial, progress: Progress) -> Outcome:
        outcome = super().run(trial, progress)
        left_out = tuple(self.away) if trial.treatment["outstanding"] == 8 else ()
        return dataclasses.replace(outcome, result=outcome.result.model_copy(update={"left_out": left_out}))


def test_trials_with_fewer_hosts_run_again_once_all_of_them_are_there(
    engine: FakeEngine, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del engine
    path = tmp_path / "n.iotax"
    monkeypatch.setattr(HostsAwayLab, "away", {"h2": "no answer"})
    assert run(path, tiny, lab=HostsAwayLab).done == 8
    assert run(path, tiny, lab=HostsAwayLab) == Ending(1, 0, (), interrupted=False, finished=True)
    with Notebook(path) as notebook:
        assert set(notebook.partial(1).values()) == {("h2",)}
        fewer = set(notebook.partial(1))
    assert len(fewer) == 4
    monkeypatch.setattr(HostsAwayLab, "away", {})
    log = Log()
    assert run(path, tiny, log, lab=HostsAwayLab) == Ending(1, 4, (), interrupted=False)
    assert any("4 trials that ran with fewer clients answer now: they are run again" in said for said in log.warnings)
    with Notebook(path) as notebook:
        assert notebook.partial(1) == {}
        data = study_data(notebook, 1)
    assert {run.trial.id for run in data.measured} >= fewer, "the later results count, each once"
    assert (len(data.measured), data.apart) == (8, [])
    assert run(path, tiny, lab=HostsAwayLab) == Ending(1, 0, (), interrupted=False, finished=True)
