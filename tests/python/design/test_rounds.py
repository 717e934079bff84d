"""Designs with rounds: from the study file and the order of slices to sessions that run, fail and are resumed."""

from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from faked import FakeEngine
from iotax.cli.app import app
from iotax.cli.run import run
from iotax.design import plan
from iotax.design.describe import describe
from iotax.design.rounds import rounds_of, session_rounds, williams
from iotax.labs.loopback import LoopbackLab
from iotax.notebook import Notebook
from iotax.rows import cpu_series_rows
from iotax.study import Study
from iotax.study.read import read_study
from iotax.study.source import StudyError
from iotax.trial import Trial
from waits import wait_for

ROUNDS = """\
name: rounds
question: Which protocol?
volume: {size: 1MiB}
factors:
  protocol: [local, nfs3, iscsi]
  outstanding: [1, 8]
load: {read: 70%}
design: {sessions: 3, rounds: 4, slice: 50ms, settle: 5ms}
baseline: {protocol: iscsi}
"""


def study(text: str = ROUNDS) -> Study:
    return read_study("s", text, Path.cwd())


@pytest.mark.parametrize("count", range(1, 14))
def test_each_treatment_follows_each_other_one_equally_often(count: int) -> None:
    rows = williams(count)
    assert all(sorted(row) == list(range(count)) for row in rows)
    assert all(len(set(Counter(column).values())) == 1 for column in zip(*rows, strict=True))
    followed = Counter(pair for row in rows for pair in itertools.pairwise(row))
    assert len(followed) == count * (count - 1)
    assert len(set(followed.values())) <= 1


def test_pairs_of_sessions_go_on_in_the_square_where_the_one_before_stopped() -> None:
    rows = [tuple(row) for session in range(1, 7) for row in rounds_of([6], 2, session, 42)]
    followed = Counter(pair for row in rows for pair in itertools.pairwise(row))
    assert set(followed.values()) == {2}
    assert rounds_of([6], 2, 2, 42) == rounds_of([6], 2, 2, 42) != rounds_of([6], 2, 2, 43)


@pytest.mark.parametrize("sizes", [[2], [5], [4, 4, 4], [3, 2]])
def test_what_opens_a_session_closes_the_first_round_of_its_pair(sizes: list[int]) -> None:
    for seed in range(20):
        for pair in range(3):
            one, other = (rounds_of(sizes, 4, 2 * pair + each, seed) for each in (1, 2))
            assert one == [row[::-1] for row in other]
    opened = Counter(rounds_of([2], 10, 1, seed)[0][0] for seed in range(400))
    assert all(160 <= count <= 240 for count in opened.values())  # within 4 standard deviations of a random draw


@pytest.mark.parametrize(("groups", "size"), [(2, 2), (3, 4), (2, 5), (5, 3), (6, 2), (4, 1)])
def test_what_is_compared_runs_side_by_side_and_balanced(groups: int, size: int) -> None:
    """Balanced over one pass through all rounds; within each group, over every few rounds too."""
    orders, within = len(williams(groups)), len(williams(size))
    rows = rounds_of([size] * groups, 2 * math.lcm(orders, max(1, within // 2)), 1, 42)
    assert all(sorted(row) == list(range(groups * size)) for row in rows)
    cut = [[row[at : at + size] for at in range(0, len(row), size)] for row in rows]
    assert all(len({each // size for each in part}) == 1 for row in cut for part in row)
    order_of_groups = [[part[0] // size for part in row] for row in cut]
    assert_balanced(order_of_groups, range(groups))
    for group in range(groups):
        own = [next(part for part in row if part[0] // size == group) for row in cut]
        for start in range(0, len(own), within):
            assert_balanced(own[start : start + within] if size > 1 else own, range(group * size, (group + 1) * size))
    # A group starts with the treatment that ended the previous group, so no treatment follows another one more often.
    borders = Counter((before[-1] % size, after[0] % size) for row in cut for before, after in itertools.pairwise(row))
    assert all(before == after for before, after in borders)
    assert len(borders) == size
    assert len(set(borders.values())) == 1


def assert_balanced(rows: list[list[int]], treatments: range) -> None:
    """Each treatment is equally often at each place, and equally often after each other treatment."""
    for column in zip(*rows, strict=True):
        assert sorted(Counter(column)) == list(treatments)
        assert len(set(Counter(column).values())) == 1
    followed = Counter(pair for row in rows for pair in itertools.pairwise(row))
    assert len(followed) == len(treatments) * (len(treatments) - 1)
    assert len(set(followed.values())) <= 1


@pytest.mark.parametrize(("groups", "size"), [(3, 4), (9, 2), (4, 3)])
def test_ratios_scatter_less_side_by_side_where_neighbours_are_disturbed_alike(groups: int, size: int) -> None:
    """Uses the autocorrelation of real slices: 0.45 from one to the next, 0.2 after ten."""

    def variance(rows: list[list[int]]) -> float:
        order = np.array([each for row in rows for each in row])
        apart = np.abs(np.subtract.outer(np.arange(len(order)), np.arange(len(order))))
        together = np.where(apart == 0, 1, 0.2 * 0.985**apart + 0.35 * 0.7**apart)
        ratios = [(order == arm) * 1.0 - (order == arm // size * size) for arm in range(groups * size) if arm % size]
        return float(np.mean([ratio @ together @ ratio for ratio in ratios]))

    side_by_side = [variance(rounds_of([size] * groups, 8, session, 42)) for session in range(1, 7)]
    apart = [variance(rounds_of([groups * size], 8, session, 42)) for session in range(1, 7)]
    assert sum(side_by_side) < 0.95 * sum(apart)


def test_groups_of_which_treatments_are_left_out_are_balanced_too() -> None:
    rows = rounds_of([3, 2, 3], 36, 1, 7)
    assert all(sorted(row) == list(range(8)) for row in rows)
    for members in (range(3), range(3, 5), range(5, 8)):
        assert_balanced([[each for each in row if each in members] for row in rows], members)


def test_place_of_a_treatment_is_by_its_levels_however_trials_are_listed() -> None:
    some = study()
    trials = [trial for trial in plan(some).trials if trial.block == 1]

    def told(listed: Sequence[Trial]) -> list[list[str]]:
        return [[listed[each].levels for each in row] for row in session_rounds(some, listed, 1)]

    assert told(trials) == told(trials[::-1])
    loads = [[levels.split("/")[1] for levels in row] for row in told(trials)]
    assert {tuple(row) for row in loads} == {("1", "1", "1", "8", "8", "8"), ("8", "8", "8", "1", "1", "1")}


def test_design_that_names_a_part_of_rounds_has_all_of_it() -> None:
    part = study(ROUNDS.replace("sessions: 3, rounds: 4, slice: 50ms, settle: 5ms", "rounds: 20"))
    slices = part.design.slices
    assert slices is not None
    assert (part.design.replicates, slices.rounds, slices.slice_ns, slices.settle_ns) == (
        6,
        20,
        250_000_000,
        10_000_000,
    )
    assert part.design.sessions == 6
    kept = Study.model_validate_json(part.model_dump_json())
    assert (kept, kept.digest()) == (part, part.digest())
    assert Study.model_validate_json(study().model_dump_json()) == study()


def test_settings_of_a_treatment_say_how_long_its_slices_are_together() -> None:
    load = study().settings({"protocol": "iscsi", "outstanding": 8}).load
    assert (load.warmup, load.runtime) == (5_000_000, 200_000_000)


def test_plan_has_a_trial_for_each_treatment_in_each_session() -> None:
    made = plan(study())
    assert (made.blocks, len(made.trials)) == (3, 18)
    # 24 slices of 50 + 5 ms in each session take 4 s; the starts of sessions are included in the limit of 8 s.
    assert 4e9 < made.duration_ns < 8e9
    said = "\n".join(describe(study(), made))
    assert "3 sessions, each with new processes" in said
    assert "4 rounds of 6 slices" in said


@pytest.mark.parametrize(
    ("change", "to", "place", "words"),
    [
        ("load: {read: 70%}", "load: {read: 70%, runtime: 5s}", "load", "slice:"),
        ("load: {read: 70%}", "load: {read: 70%, generator: fio}", "design", "fio starts anew"),
        ("slice: 50ms", "slice: 5ms", "design", "20 ms or longer"),
        ("size: 1MiB", "size: 1MiB, refill: trial", "volume", "refill: block"),
        ("outstanding: [1, 8]", "media: [memory, file]", "design", "one server at a time"),
        ("outstanding: [1, 8]", "polling: [never, auto]\n  media: [file, memory]", "design", "polling takes a server"),
        ("outstanding: [1, 8]", "polling: [never, always]", "design", "polling: auto"),
        ("sessions: 3", "sessions: 3, replicates: 4", "design", "sessions are the replicates"),
        ("sessions: 3", "sessions: 3, sentinels: 3", "design", "rounds hold every treatment"),
    ],
)
def test_what_cannot_be_sliced_is_refused_with_the_reason(change: str, to: str, place: str, words: str) -> None:
    text = ROUNDS.replace(change, to)
    assert text != ROUNDS
    text = text.replace("{size: 1MiB}", "{size: 1MiB, path: x.img}") if "media:" in to else text
    with pytest.raises(StudyError) as refused:
        study(text)
    assert any(place in line and words in line for line in refused.value.lines()), refused.value.lines()


def test_volumes_of_rounds_stand_side_by_side_and_must_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iotax.labs.loopback.memory_free_bytes", lambda: 1 << 30)
    text = ROUNDS.replace("outstanding: [1, 8]", "burn: [0us, 1us, 2us]").replace("1MiB", "300MiB")

    def refused(text: str) -> list[str]:
        asked = study(text)
        lab = LoopbackLab(asked, plan(asked), Path("engine"))
        return [each.message for each in lab._check_machine() if each.kind == "error"]

    [said] = refused(text)
    assert said.startswith("3 memory volumes of 900MiB in all do not fit into the 1024 MiB free")
    assert refused(text.replace("300MiB", "200MiB")) == []
    waiting = text.replace("burn: [0us, 1us, 2us]", "polling: [never, auto]").replace("300MiB", "400MiB")
    [said] = refused(waiting)
    assert said.startswith("2 memory volumes of 800MiB in all do not fit")
    one_after_another = "{replicates: 3}"
    assert refused(text.replace("{sessions: 3, rounds: 4, slice: 50ms, settle: 5ms}", one_after_another)) == []


def measured(tmp_path: Path, engine: FakeEngine) -> Path:
    file, notebook = tmp_path / "rounds.yaml", tmp_path / "n.iotax"
    file.write_text(ROUNDS)
    del engine
    run(str(file), notebook, report=False)
    return notebook


def test_every_session_is_one_process_that_measures_all_treatments(tmp_path: Path, engine: FakeEngine) -> None:
    with Notebook(measured(tmp_path, engine)) as notebook:
        attempts = notebook.attempts()
    assert len(attempts) == 18
    assert all(each.status == "done" and each.result and len(each.result.slices) == 4 for each in attempts)
    sessions = engine.documents("session")
    assert [len(each["loads"]) for each in sessions] == [6, 6, 6]
    assert all(each["settle_ns"] == 5_000_000 and len(each["rounds"]) == 4 for each in sessions)
    # Each session starts its own server. In every second session server and load exchange processors.
    servers = engine.documents("serve")
    assert len(servers) == 3
    if servers[0]["cpus"]:
        cpus = [
            (server["cpus"], session["loads"][0]["load"]["cpus"])
            for server, session in zip(servers, sessions, strict=True)
        ]
        assert cpus[0] == cpus[2] == cpus[1][::-1]


def test_stopping_rule_is_asked_after_each_session(tmp_path: Path, engine: FakeEngine) -> None:
    """The fake engine's sessions are identical, so their intervals have width 0."""
    file, notebook = tmp_path / "rounds.yaml", tmp_path / "n.iotax"
    file.write_text(ROUNDS.replace("settle: 5ms", "settle: 5ms, stop: {half_width: 5%, at_least: 2}"))
    run(str(file), notebook, report=False)
    with Notebook(notebook) as reader:
        assert {each.trial.block for each in reader.attempts()} == {1, 2}
    assert len(engine.documents("session")) == 2


def test_more_sessions_are_added_to_those_that_ran(tmp_path: Path, engine: FakeEngine) -> None:
    file, notebook = tmp_path / "rounds.yaml", tmp_path / "n.iotax"
    for sessions in (3, 5):
        file.write_text(ROUNDS.replace("sessions: 3", f"sessions: {sessions}"))
        said = CliRunner().invoke(app, ["run", str(file), str(notebook), "--no-report"]).output
    assert "Adding sessions 4 to 5, 12 trials, to the run that this notebook holds." in said
    with Notebook(notebook) as reader:
        assert len(reader.runs()) == 1
        assert Counter(each.trial.block for each in reader.attempts()) == dict.fromkeys(range(1, 6), 6)
    assert len(engine.documents("session")) == 5


def test_open_loops_are_asked_of_a_session_as_of_single_runs(tmp_path: Path, engine: FakeEngine) -> None:
    file, notebook = tmp_path / "rounds.yaml", tmp_path / "n.iotax"
    file.write_text(ROUNDS.replace("{read: 70%}", "{rate_iops: 5k, arrivals: poisson}"))
    run(str(file), notebook, report=False)
    paces = [each["load"]["pacing"] for each in engine.documents("session")[0]["loads"]]
    assert len(paces) == 6
    assert all((pace["kind"], pace["rate_iops"], pace["arrivals"]) == ("open", 5000, "poisson") for pace in paces)


def test_aa_and_compare_work_on_rounds(tmp_path: Path, engine: FakeEngine) -> None:
    file, notebook = tmp_path / "rounds.yaml", tmp_path / "n.iotax"
    file.write_text(ROUNDS)
    done = CliRunner().invoke(app, ["aa", str(file), str(notebook), "--replicates", "3"])
    with Notebook(notebook) as reader:
        attempts = reader.attempts()
    assert len(attempts) == 6
    assert all(each.result and len(each.result.slices) == 4 for each in attempts), done.output
    assert len(engine.documents("session")) == 3
    for label in ("before", "after"):
        run(str(file), tmp_path / "c.iotax", label=label, report=False)
    levels = CliRunner().invoke(app, ["compare", "nfs3", "iscsi", str(tmp_path / "c.iotax")])
    assert levels.exit_code == 0, levels.output


def test_session_that_fails_is_tried_once_more_whole(tmp_path: Path, engine: FakeEngine) -> None:
    engine.faults(run_2="die")
    with Notebook(measured(tmp_path, engine)) as notebook:
        attempts = notebook.attempts()
    failed = [each for each in attempts if each.status == "failed"]
    assert {each.trial.block for each in failed} == {2}
    assert len(failed) == 6
    assert "SIGKILL" in failed[0].reason
    assert sum(each.status == "done" for each in attempts) == 18


def test_study_killed_within_a_session_goes_on_at_its_border(tmp_path: Path, engine: FakeEngine) -> None:
    engine.faults(run_2="slow")
    file, notebook = tmp_path / "rounds.yaml", tmp_path / "n.iotax"
    file.write_text(ROUNDS)
    command = [sys.executable, "-m", "iotax", "run", str(file), "--notebook", str(notebook), "--no-report"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: len(engine.documents("session")) == 2, "the second session")
        os.kill(process.pid, signal.SIGKILL)
    engine.faults()
    measured(tmp_path, engine)
    with Notebook(notebook) as reader:
        attempts = reader.attempts()
    done = Counter(each.trial.block for each in attempts if each.status == "done")
    assert done == {1: 6, 2: 6, 3: 6}
    assert {each.trial.block for each in attempts if each.status == "abandoned"} == {2}
    # The first session did not run again.
    assert len(engine.documents("session")) == 4


def test_a_plan_of_rounds_lists_treatments_once_and_no_order_that_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "rounds.yaml"
    path.write_text(ROUNDS)
    said = [line.split() for line in CliRunner().invoke(app, ["plan", "--long", str(path)]).output.splitlines()]
    assert said[1] == ["treatment", "protocol", "outstanding"]
    assert said[2:8] == [
        [str(number), *levels]
        for number, levels in enumerate(itertools.product(("local", "nfs3", "iscsi"), "18"), start=1)
    ]
    assert "3 sessions of 4 rounds of 6 treatments, each once per round, about" in " ".join(itertools.chain(*said))


def test_cpu_over_time_of_rounds_is_that_of_their_slices(tmp_path: Path, engine: FakeEngine) -> None:
    path = measured(tmp_path, engine)
    with Notebook(path) as notebook:
        [first, *_] = notebook.attempts()
        rows = [row for row in cpu_series_rows(notebook, notebook.run()) if row["trial"] == first.trial.id]
    assert first.result is not None
    assert not first.result.cpu_series
    over_time = first.result.cpu_over_time
    assert [each.busy_ns["initiator"] for each in over_time] == [each.initiator_cpu_ns for each in first.result.slices]
    assert {row["role"] for row in rows} >= {"initiator", "machine"}
    initiator = [(row["at_ns"], row["busy_ns"]) for row in rows if row["role"] == "initiator"]
    assert initiator == [(each.at_ns, each.busy_ns["initiator"]) for each in over_time]
    assert initiator[0][0] == 0
    assert [at_ns for at_ns, _ in initiator] == sorted(at_ns for at_ns, _ in initiator)
