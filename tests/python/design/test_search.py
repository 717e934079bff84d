"""Load search against a server whose best load and knee are known."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from typer import Exit
from typer.testing import CliRunner

from command_line import ran
from faked import FakeEngine
from iotax.analysis import StudyData, summarise
from iotax.analysis.search import winners
from iotax.cli.app import app
from iotax.cli.run import run
from iotax.design import plan
from iotax.design.describe import describe
from iotax.design.plan import steps_max
from iotax.notebook import Notebook
from iotax.study.read import read_study
from iotax.study.source import StudyError
from iotax.wording.search import sentences
from waits import wait_for

BEST = """\
name: best
question: Which load is best?
volume: {size: 1MiB}
factors: {protocol: [nfs3, iscsi], workers: [1, 2, 4], outstanding: [1, 4, 16]}
load: {warmup: 0s, runtime: 1s}
design: {replicates: 2}
search: {latency_max: 1ms, percentile: 99, confirm: 3}
baseline: {protocol: iscsi}
"""

KNEE = """\
name: knee
question: Where is the knee?
volume: {size: 1MiB}
factors: {protocol: [nfs3, iscsi]}
load: {warmup: 0s, runtime: 1s, outstanding: 64}
search: {latency_max: 1ms, percentile: 99, rate_min: 5000, rate_max: 50000, precision: 5%, confirm: 2}
baseline: {protocol: iscsi}
"""


@pytest.fixture
def server(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """A fake server: 100 µs per request, at most 20,000 IOPS. The fake ends at once, whatever time it reports."""
    monkeypatch.setenv("FAKE_INSTANT", "1")
    (engine.folder / "server.json").write_text(json.dumps({"capacity_iops": 20_000}))
    return engine


def search(text: str, tmp_path: Path) -> StudyData:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    run(str(path), tmp_path / "n.iotax", report=False)
    with Notebook(tmp_path / "n.iotax") as notebook:
        return StudyData(notebook.study(), notebook.attempts(), notebook.trials())


def test_best_load_within_the_cap_is_found_and_run_afresh(server: FakeEngine, tmp_path: Path) -> None:
    data = search(BEST, tmp_path)
    # 2 outstanding I/Os reach the capacity. Up to 16 stay within 1 ms (16 / 20,000 s = 0.8 ms), 32 and 64 do not.
    found = winners(data.study, data.attempts)
    assert [winner.condition for winner in found] == ["nfs3", "iscsi"]
    for winner in found:
        assert winner.rate_iops == pytest.approx(20_000)
        assert winner.load not in (
            "2 workers × 16 outstanding",
            "4 workers × 16 outstanding",
            "1 workers × 1 outstanding",
        )
        assert len(winner.ties) == 5
        assert list(winner.confirmed.values()) == [20_000] * 3
    assert len(server.documents("load", task="run")) == 2 * 9 * 2 + 2 * 3
    # The confirming runs are listed next to the comparison.
    assert len(data.runs) == 36
    assert "on 3 fresh runs 20.0k IOPS" in sentences(data.study, data.attempts)[0]
    assert (
        "p99 within 1.00 ms in 3 of 3. That is 1.00 times iSCSI’s (95 % CI 1.00 to 1.00)."
        in sentences(data.study, data.attempts)[0]
    )
    assert "That is" not in sentences(data.study, data.attempts)[1]


def test_knee_is_bracketed_and_run_afresh(server: FakeEngine, tmp_path: Path) -> None:
    data = search(KNEE, tmp_path)
    # 100 µs / (1 − ρ) = 1 ms at ρ = 0.9.
    for winner in winners(data.study, data.attempts):
        assert 18_000 / 1.05 <= winner.rate_iops <= 18_000 * 1.05
        assert len(winner.fresh) == len(winner.knee.found) == 2
        assert all(18_000 / 1.05 <= knee <= 18_000 * 1.05 for knee in winner.knee.found.values())
    probes = [each.trial for each in data.attempts if each.trial.role == "probe"]
    search_of = data.study.search
    assert search_of is not None
    assert len(probes) <= 2 * 2 * steps_max(search_of)
    # Only the runs at the knee are compared.
    assert [len(cell.runs) for cell in summarise(data).cells] == [2, 2]
    said = sentences(data.study, data.attempts)[0]
    assert re.match(r"NFSv3: the knee is at 1[78]\.\dk IOPS \(95 % CI \S+ to \S+\), from 2 searches; ", said), said
    assert "fresh runs there: p99 within 1.00 ms in 2 of 2." in said


def in_rounds(text: str) -> str:
    """The same search, measured in rounds."""
    text = text.replace("warmup: 0s, runtime: 1s, ", "").replace("load: {warmup: 0s, runtime: 1s}\n", "")
    text = text.replace("design: {replicates: 2}\n", "")
    return text + "design: {sessions: 2, rounds: 4, slice: 50ms, settle: 5ms}\n"


def test_best_load_is_searched_in_rounds_and_its_winners_meet_in_sessions_of_their_own(
    server: FakeEngine, tmp_path: Path
) -> None:
    data = search(in_rounds(BEST), tmp_path)
    for winner in winners(data.study, data.attempts):
        assert winner.rate_iops == pytest.approx(20_000)
        assert list(winner.confirmed.values()) == pytest.approx([20_000] * 3)
    sessions = server.documents("session")
    assert [len(each["loads"]) for each in sessions] == [18, 18, 2, 2, 2]
    assert all(len(each.result.slices) == 4 for each in data.attempts if each.result)
    assert not server.documents("load", task="run")


def test_knee_is_searched_in_rounds_with_a_session_for_each_step(server: FakeEngine, tmp_path: Path) -> None:
    data = search(in_rounds(KNEE.replace("precision: 5%", "precision: 2.5%")), tmp_path)
    for winner in winners(data.study, data.attempts):
        assert 18_000 / 1.025 <= winner.rate_iops <= 18_000 * 1.025
        assert len(winner.fresh) == len(winner.knee.found) == 2
    # Both protocols are measured in turns, with one server for each of two searches.
    assert {len(each["loads"]) for each in server.documents("session")} <= {1, 2}
    assert len(server.documents("session")[0]["loads"]) == 2
    assert len(server.documents("serve")) == 2
    assert [len(cell.runs) for cell in summarise(data).cells] == [2, 2]


def test_slice_in_which_no_queue_grows_past_the_objective_is_refused(tmp_path: Path) -> None:
    said = "only after 100ms"
    text = in_rounds(KNEE.replace("latency_max: 1ms", "latency_max: 5ms"))
    with pytest.raises(StudyError) as caught:
        read_study("s", text, tmp_path)
    assert said in str(caught.value)
    read_study("s", text.replace("slice: 50ms", "slice: 100ms"), tmp_path)


def test_one_disturbed_probe_is_no_knee(server: FakeEngine, tmp_path: Path) -> None:
    server.faults(run_1="disturbed", run_2="disturbed", run_7="disturbed")
    data = search(KNEE, tmp_path)
    for winner in winners(data.study, data.attempts):
        assert 18_000 / 1.05 <= winner.rate_iops <= 18_000 * 1.05
    # A rate that missed the objective is probed once more; a rate that met it is not.
    probes = [each.trial for each in data.attempts if each.trial.role == "probe"]
    asked = Counter((trial.treatment["protocol"], trial.block, trial.treatment["rate_iops"]) for trial in probes)
    assert set(asked.values()) == {1, 2}


def test_a_search_goes_on_without_a_load_that_fails(server: FakeEngine, tmp_path: Path) -> None:
    server.faults(run_5="error:lost", run_6="error:lost")
    (tmp_path / "s.yaml").write_text(BEST)
    with pytest.raises(Exit) as ended:
        run(str(tmp_path / "s.yaml"), tmp_path / "n.iotax", report=False)
    assert ended.value.exit_code == 1
    with Notebook(tmp_path / "n.iotax") as notebook:
        found = winners(notebook.study(), notebook.attempts())
    assert [len(winner.confirmed) for winner in found] == [3, 3]


def test_interrupted_search_goes_on_where_it_was(server: FakeEngine, tmp_path: Path) -> None:
    server.faults(run_9="error:lost", run_10="error:lost")
    path = tmp_path / "s.yaml"
    path.write_text(KNEE)
    first = CliRunner().invoke(app, ["run", str(path), "--notebook", str(tmp_path / "n.iotax"), "--no-report"])
    assert first.exit_code != 0
    before = len(server.documents("load", task="run"))
    data = search(KNEE, tmp_path)
    assert len(server.documents("load", task="run")) > before
    assert all(len(winner.fresh) == 2 for winner in winners(data.study, data.attempts))
    assert len({each.trial.id for each in data.attempts if each.status == "done"}) == sum(
        each.status == "done" for each in data.attempts
    )


@pytest.mark.slow
def test_a_search_that_was_killed_goes_on_and_finds_the_same(server: FakeEngine, tmp_path: Path) -> None:
    whole = search(KNEE, tmp_path)
    (server.folder / "runs").unlink()
    server.faults(run_14="slow")
    path, notebook = tmp_path / "s.yaml", tmp_path / "killed.iotax"
    words = ["run", str(path), "--notebook", str(notebook), "--no-report"]
    process = subprocess.Popen([sys.executable, "-m", "iotax", *words], stdout=subprocess.DEVNULL)
    runs = server.folder / "runs"
    wait_for(lambda: runs.exists() and runs.read_text() == "14", "run 14")
    process.kill()
    process.wait()
    again = ran(*words)
    assert again.exit_code == 0, again.output
    with Notebook(notebook) as reader:
        assert [run.name for run in reader.runs()] == ["knee"]
        attempts = reader.attempts()
    done = [each.trial for each in attempts if each.status == "done"]
    assert done == [each.trial for each in whole.attempts]
    assert [each.status for each in attempts].count("abandoned") == 1


@pytest.mark.slow
def test_a_search_in_rounds_that_was_killed_loses_its_session_alone(server: FakeEngine, tmp_path: Path) -> None:
    text = in_rounds(KNEE)
    whole = search(text, tmp_path)
    (server.folder / "runs").unlink()
    server.faults(run_5="slow")
    path, notebook = tmp_path / "s.yaml", tmp_path / "killed.iotax"
    words = ["run", str(path), "--notebook", str(notebook), "--no-report"]
    process = subprocess.Popen([sys.executable, "-m", "iotax", *words], stdout=subprocess.DEVNULL)
    runs = server.folder / "runs"
    wait_for(lambda: runs.exists() and runs.read_text() == "5", "session 5")
    process.kill()
    process.wait()
    again = ran(*words)
    assert again.exit_code == 0, again.output
    with Notebook(notebook) as reader:
        attempts = reader.attempts()
    assert [each.trial for each in attempts if each.status == "done"] == [each.trial for each in whole.attempts]
    assert {each.trial.order for each in attempts if each.status == "abandoned"} == {9, 10}


def test_the_plan_says_how_many_trials_there_are_at_most(tmp_path: Path) -> None:
    for text, most in ((BEST, 36 + 2 * 3), (KNEE, 2 * 2 * (2 * (1 + 6) + 2))):
        study = read_study("s", text, tmp_path)
        assert f"{most} trials at most" in describe(study, plan(study))[-1]


def test_objective_that_nothing_holds_is_said(server: FakeEngine, tmp_path: Path) -> None:
    data = search(KNEE.replace("latency_max: 1ms", "latency_max: 50us"), tmp_path)
    assert sentences(data.study, data.attempts) == [
        f"{protocol}: nothing, not even 5.00k IOPS, met p99 within 50.0 µs." for protocol in ("NFSv3", "iSCSI")
    ]


def test_everything_holds_up_to_the_end_of_the_range(server: FakeEngine, tmp_path: Path) -> None:
    data = search(KNEE.replace("rate_min: 5000, rate_max: 50000", "rate_min: 2500, rate_max: 5000"), tmp_path)
    assert [winner.knee.beyond for winner in winners(data.study, data.attempts)] == [(1, 2), (1, 2)]
    assert sentences(data.study, data.attempts) == [
        f"{protocol}: no knee within the range: in 2 of 2 searches even 5.00k IOPS met p99 within 1.00 ms; "
        "raise `rate_max`."
        for protocol in ("NFSv3", "iSCSI")
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rate_max: 50000", "rate_max: 50", "not below rate_max"),
        ("outstanding: 64", "rate_iops: 5, outstanding: 64", "the search sets the rate"),
        (", rate_max: 50000", "", "needs `rate_max:`, or factors `workers` or `outstanding`"),
        (", outstanding: 64", "", "needs `outstanding:` under load"),
        ("latency_max: 1ms", "latency_max: 0s", "must be more than 0"),
    ],
)
def test_a_slip_is_named(old: str, new: str, said: str) -> None:
    with pytest.raises(StudyError) as caught:
        read_study("s", KNEE.replace(old, new), Path.cwd())
    assert said in str(caught.value)
