"""For each kind of design, a run that is killed in the middle continues in the planned order."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import ran
from faked import FakeEngine
from iotax.design import plan
from iotax.design.plan import trial_seed
from iotax.notebook import Notebook
from iotax.study.read import load_study
from iotax.trial import Attempt
from waits import wait_for

STUDY = """\
name: resumed
question: Does it go on as it began?
volume: {{size: 1MiB}}
factors: {{protocol: [nfs3, iscsi], read: [0%, 100%], outstanding: [1, 8]}}
load: {{warmup: 0s, runtime: 10ms}}
design: {{seed: 11, {design}}}
baseline: {{protocol: iscsi}}
"""

DESIGNS = {
    "complete blocks": "replicates: 2",
    "one random order": "replicates: 2, blocks: none",
    "split plot": "replicates: 2, hard_to_change: [protocol]",
    "half fraction": "replicates: 3, fraction: 1/2",
    "D-optimal with exclusions": (
        "replicates: 3, runs: 5, effects: main, exclude: [{protocol: iscsi, read: 0%, outstanding: 8}]"
    ),
    "sentinels": "replicates: 2, sentinels: 3",
    "split plot with sentinels": "replicates: 2, hard_to_change: [protocol], sentinels: 4",
}
EVERY_TIME = ("complete blocks", "D-optimal with exclusions", "split plot with sentinels")
"""The other designs are less common, and similar to one of these."""
KILLED_AT = 6


def run_killed_once(engine: FakeEngine, study: Path, notebook: Path, at: int) -> list[Attempt]:
    """All attempts of a run that got SIGKILL during its trial `at`, was resumed, and ran to its end."""
    engine.faults(**{f"run_{at}": "slow"})
    runs = engine.folder / "runs"
    words = ["run", str(study), "--notebook", str(notebook), "--no-report"]
    with subprocess.Popen([sys.executable, "-m", "iotax", *words], stdout=subprocess.DEVNULL) as process:
        wait_for(lambda: runs.exists() and runs.read_text() == str(at), f"run {at}")
        process.kill()
    again = ran(*words)
    assert again.exit_code == 0, again.output
    with Notebook(notebook) as reader:
        assert len(reader.runs()) == 1
        return reader.attempts()


@pytest.mark.parametrize(
    "kind", [pytest.param(each, marks=() if each in EVERY_TIME else pytest.mark.long) for each in DESIGNS]
)
def test_a_killed_plan_goes_on_in_its_own_order(kind: str, engine: FakeEngine, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(STUDY.format(design=DESIGNS[kind]))
    study = load_study(str(path))[0]
    expected = plan(study).trials
    found = run_killed_once(engine, path, tmp_path / "n.iotax", KILLED_AT)
    assert [each.trial for each in found if each.status == "done"] == list(expected)
    # Only the interrupted trial runs again.
    again = [(each.trial, each.number, each.status) for each in found if each.trial.order == KILLED_AT]
    assert again == [(expected[KILLED_AT - 1], 1, "abandoned"), (expected[KILLED_AT - 1], 2, "done")]
    # Each trial gets the seed that was drawn for it.
    asked = [document["seed"] for document in engine.documents("load", task="run")]
    seeds = [trial_seed(study, trial) for trial in expected]
    assert asked == [*seeds[:KILLED_AT], *seeds[KILLED_AT - 1 :]]


@pytest.mark.slow
def test_a_killed_study_ends_by_its_own_rule_all_the_same(engine: FakeEngine, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(STUDY.format(design="replicates: 9, stop: {half_width: 2%, at_least: 3}"))
    found = run_killed_once(engine, path, tmp_path / "n.iotax", 20)
    # The fake's results do not vary: three blocks of eight are enough, although the third was interrupted.
    expected = plan(load_study(str(path))[0]).trials[:24]
    assert [each.trial for each in found if each.status == "done"] == list(expected)


def test_sentinels_stand_between_whole_plots(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(STUDY.format(design="replicates: 3, hard_to_change: [protocol], sentinels: 5"))
    trials = plan(load_study(str(path))[0]).trials
    assert sum(not trial.replicate for trial in trials) == 5
    plots = [
        key for key, _ in itertools.groupby(trials, lambda t: (t.replicate, t.replicate and t.treatment["protocol"]))
    ]
    assert sum(replicate > 0 for replicate, _ in plots) == 6
