"""Simulated trials in parallel: the same results in the same order as one after another, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from iotax.design import plan
from iotax.labs.base import Outcome, Progress, Step, TrialFailed
from iotax.labs.choice import open_lab
from iotax.labs.sim import side_by_side
from iotax.labs.sim.side_by_side import Begun, SideBySide, at_once
from iotax.notebook import Notebook
from iotax.study import Study
from iotax.study.read import read_study
from iotax.trial import Attempt, Trial
from waits import wait_for

WORLD: dict[str, Any] = {
    "name": "beside",
    "question": "Do simulations beside each other stay what they are?",
    "lab": {"sim": {}},
    "volume": {"size": "1MiB"},
    "factors": {"protocol": ["nfs3", "iscsi", "nvme-tcp"]},
    "load": {"outstanding": 8, "warmup": "1ms", "runtime": "5ms"},
    "topology": {"link_rate": "10Gbit"},
    "design": {"replicates": 2},
    "baseline": {"protocol": "iscsi"},
}


def study(tmp_path: Path) -> Study:
    return read_study("beside", yaml.safe_dump(WORLD), tmp_path)


def trials(count: int) -> list[Trial]:
    return [
        Trial(id=f"t{number}", study="beside", treatment={}, block=1, replicate=1, order=number)
        for number in range(count)
    ]


class Held:
    """Simulations that run until they are released; their result is the trial's name."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.running = 0
        self.most = 0
        self._lock = threading.Lock()
        self.go: dict[str, threading.Event] = {trial.id: threading.Event() for trial in trials(20)}

    def __call__(self, trial: Trial, progress: Progress, begun: Begun) -> Outcome:
        del begun
        with self._lock:
            self.begun.append(trial.id)
            self.running += 1
            self.most = max(self.most, self.running)
        progress(Step(f"{trial.id} under way"))
        self.go[trial.id].wait()
        with self._lock:
            self.running -= 1
        if trial.id == "t3" and self.begun.count("t3") == 1:
            raise TrialFailed("a fault")
        return Outcome(trial.id, None, "")  # type: ignore[arg-type]

    def release(self) -> None:
        for event in self.go.values():
            event.set()


@pytest.fixture
def held() -> Iterator[Held]:
    simulate = Held()
    yield simulate
    simulate.release()


def test_as_many_as_processors_run_at_a_time_and_few_are_begun_ahead(held: Held) -> None:
    some = trials(12)
    beside = SideBySide(held, 2)
    beside.expect(some)
    held.go["t0"].set()
    assert beside.outcome(some[0], lambda _: None).result == "t0"
    wait_for(lambda: held.running == 2, "two simulations at a time")
    held.release()
    assert beside.outcome(some[1], lambda _: None).result == "t1"
    # The second outcome was requested; up to four simulations ahead of it may have started.
    wait_for(lambda: len(held.begun) == 6 and held.running == 0, "those ahead to have ended")
    # Two threads may begin theirs in either order.
    assert sorted(held.begun) == ["t0", "t1", "t2", "t3", "t4", "t5"]
    assert held.most == 2
    beside.close()


def test_a_failure_is_of_its_trial_alone_which_can_be_tried_again(held: Held) -> None:
    some = trials(6)
    held.release()
    beside = SideBySide(held, 2)
    beside.expect(some)
    for trial in some[:3]:
        beside.outcome(trial, lambda _: None)
    with pytest.raises(TrialFailed, match="a fault"):
        beside.outcome(some[3], lambda _: None)
    assert beside.outcome(some[3], lambda _: None).result == "t3"
    assert [beside.outcome(trial, lambda _: None).result for trial in some[4:]] == ["t4", "t5"]
    beside.close()


def test_what_a_simulation_says_is_heard_when_its_trial_is_asked_for(held: Held) -> None:
    some = trials(3)
    held.release()
    beside = SideBySide(held, 3)
    beside.expect(some)
    heard: list[Any] = []
    for trial in some:
        beside.outcome(trial, heard.append)
    assert [step.text for step in heard] == ["t0 under way", "t1 under way", "t2 under way"]
    beside.close()


def test_trials_that_were_skipped_are_not_waited_for(held: Held) -> None:
    some = trials(4)
    held.release()
    beside = SideBySide(held, 2)
    beside.expect(some)
    assert beside.outcome(some[2], lambda _: None).result == "t2"
    assert beside.outcome(some[0], lambda _: None).result == "t0"
    beside.close()


def test_processors_and_memory_say_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side.os, "sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(side_by_side, "memory_free_bytes", lambda: 8 << 30)
    assert [at_once(size << 30) for size in (0, 1, 2, 100)] == [6, 4, 2, 1]


def test_results_are_those_of_a_serial_run(real_engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del real_engine
    monkeypatch.setattr(side_by_side.os, "sched_getaffinity", lambda _: {0, 1, 2})
    asked = study(tmp_path)
    planned = plan(asked)

    def results(*, beside: bool) -> list[Any]:
        lab = open_lab(asked, planned, [])
        try:
            if beside:
                lab.expect(planned.trials)
            return [lab.run(trial, lambda _: None).result for trial in planned.trials]
        finally:
            lab.close()

    assert results(beside=True) == results(beside=False)


# ------------------------------------------------------------------------------------------------------ real processes


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A study whose simulations take minutes each, so they are still running when a signal arrives."""
    file = tmp_path / "long.yaml"
    file.write_text(yaml.safe_dump(WORLD | {"load": {"outstanding": 64, "runtime": "60s"}}), encoding="utf-8")
    return file


def engines(parent: int) -> list[int]:
    """Simulations of this test, identified by a variable that `started` puts in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or "simulate" not in (entry / "cmdline").read_text().split("\0"):
                continue
            if f"BESIDE={parent}\0" in (entry / "environ").read_text():
                found.append(int(entry.name))
        except (OSError, UnicodeDecodeError):
            continue
    return found


def started(file: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "iotax", "run", str(file), str(file.with_suffix(".iotax")), "--no-report"]
    environment = os.environ | {"BESIDE": str(os.getpid())}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def attempts(file: Path) -> list[Attempt]:
    with Notebook(file.with_suffix(".iotax")) as notebook:
        return notebook.attempts()


@pytest.mark.parametrize(
    ("sent", "left"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "interrupted"), (signal.SIGKILL, "abandoned")]
)
def test_a_signal_ends_all_simulations_and_one_attempt(
    real_engine: Path, long: Path, sent: signal.Signals, left: str
) -> None:
    del real_engine
    process = started(long)
    try:
        wait_for(lambda: len(engines(os.getpid())) >= min(2, len(os.sched_getaffinity(0))), "simulations")
        process.send_signal(sent)
        process.communicate(timeout=180)
    finally:
        process.kill()
    wait_for(lambda: not engines(os.getpid()), "no simulation to be left")
    assert [each.status for each in attempts(long)] == [left]
