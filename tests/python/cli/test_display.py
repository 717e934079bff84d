"""What a run shows, on a terminal and in a log."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from iotax.cli import display
from iotax.cli.display import Display, LiveDisplay, PlainDisplay
from iotax.design import Plan, plan
from iotax.expected import Clock
from iotax.labs.base import Sample, Step
from iotax.study.read import load_study
from iotax.trial import Attempt, CpuUse, Direction, Histogram, Outstanding, TrialResult, Window


@pytest.fixture(autouse=True)
def a_terminal_that_moves_its_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets a terminal that can move its cursor, whatever terminal runs the tests."""
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def planned(tiny: Path) -> Plan:
    return plan(load_study(str(tiny))[0])


def result(iops: int) -> TrialResult:
    latencies = {"latency_sum_ns": iops * 20_000, "latency_min_ns": 20_000, "latency_max_ns": 20_000}
    histogram = {"counts": [(20_000, iops)]}
    stream = Direction.model_validate({"ios": iops, "bytes": iops * 4096, **latencies, "histogram": histogram})
    none = Direction(ios=0, bytes=0, latency_sum_ns=0, latency_min_ns=0, latency_max_ns=0)
    return TrialResult(
        engine_version="0",
        driver="fake",
        endpoint="local:/x",
        window=Window(start_unix_ns=0, start_ns=0, duration_ns=1_000_000_000),
        read=stream,
        write=none,
        cpu=CpuUse.model_validate({"initiator": None}),
        outstanding=Outstanding(workers=1, per_worker=1, mean=1.0),
    )


def play(shown: Display, planned: Plan) -> None:
    """Plays a study as the runner reports it: one attempt fails, all others succeed."""
    shown.step(Step("starting the server"))
    shown.planned(planned, list(planned.trials), resumed=False)
    for trial in planned.trials:
        shown.started([trial], 1)
        shown.sample(Sample("warmup", 0, 90_000.0, None, None))
        shown.sample(Sample("run", 5_000_000, 123_456.0, 20_000, 45_600))
        if trial.order == 3:
            ended = {"trial": trial, "number": 1, "started_unix_ns": 0, "ended_unix_ns": 1}
            shown.ended(Attempt.model_validate({**ended, "status": "failed", "reason": "it broke"}))
            shown.started([trial], 2)
        shown.ended(
            Attempt(
                trial=trial, number=1, status="done", reason="", started_unix_ns=0, ended_unix_ns=1, result=result(1000)
            )
        )
    shown.close()


def test_a_terminal_sees_trial_rate_latency_and_time_left(planned: Plan) -> None:
    out = io.StringIO()
    play(LiveDisplay(Console(file=out, force_terminal=True, width=120, color_system=None)), planned)
    said = out.getvalue()
    for part in ("starting the server", "0/8", "7/8", "left", "123k IOPS", "p50 20.0 µs, p99 45.6 µs", "warming up"):
        assert part in said
    assert f"{planned.trials[2].id}: attempt 1 failed: it broke" in said


def test_a_terminal_sees_what_each_arm_gave_so_far_and_no_verdict(tiny: Path, planned: Plan) -> None:
    out = io.StringIO()
    shown = LiveDisplay(Console(file=out, force_terminal=True, width=80, height=24, color_system=None))
    shown.asked(load_study(str(tiny))[0])
    play(shown, planned)
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())
    trials = {row[1]: int(row[2]) for row in re.findall(r"((Local|iSCSI) +(\d) +1000 +20.*)", drawn)}
    assert trials == {"Local": 4, "iSCSI": 4}
    assert "so far" in drawn
    assert not re.search(r"faster|slower|inconclusive|equivalent", drawn)


def test_a_log_gets_few_lines_and_no_control_characters(planned: Plan) -> None:
    out = io.StringIO()
    play(PlainDisplay(Console(file=out, width=120)), planned)
    lines = out.getvalue().splitlines()
    last = planned.trials[-1].id
    assert "\x1b" not in out.getvalue()
    assert lines == [
        "Starting the server.",
        "8 trials in 2 blocks, about 2 s.",
        f"1/8 {planned.trials[0].id}: 1.00k IOPS, p50 20.0 µs, p99 20.0 µs; about 1 s left",
        f"{planned.trials[2].id}: attempt 1 failed: it broke",
        f"{planned.trials[2].id}: trying again.",
        f"8/8 {last}: 1.00k IOPS, p50 20.0 µs, p99 20.0 µs; about 0 s left",
    ]


def test_a_log_leaves_out_latencies_that_a_result_does_not_have(planned: Plan) -> None:
    out, trial, known = io.StringIO(), planned.trials[0], result(1000)
    without = known.read.model_copy(update={"latency": "mean", "histogram": Histogram()})
    shown = PlainDisplay(Console(file=out, width=120))
    shown.planned(planned, list(planned.trials), resumed=False)
    shown.started([trial], 1)
    told = known.model_copy(update={"read": without})
    shown.ended(
        Attempt(trial=trial, number=1, status="done", reason="", started_unix_ns=0, ended_unix_ns=1, result=told)
    )
    shown.close()
    assert f"1/8 {trial.id}: 1.00k IOPS; about" in out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_the_line_of_a_terminal_never_wraps_and_keeps_what_counts(planned: Plan, width: int) -> None:
    out = io.StringIO()
    shown = LiveDisplay(Console(file=out, force_terminal=True, width=width, color_system=None))
    shown.planned(planned, list(planned.trials), resumed=False)
    shown.started([planned.trials[0]], 1)
    shown.sample(Sample("warmup", 5_000_000, 1_234_567.0, 20_000, 45_600))
    shown.step(Step("writing the pattern to nvme-tcp://192.0.2.10:4420/nqn.2014-08.org.example:a-long-name", 0.5))
    shown.sample(Sample("run", 5_000_000, 123_456.0, 20_000, 45_600))
    said = out.getvalue()
    shown.close()
    drawn = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]", said)]
    assert max(map(len, drawn)) <= width
    last = [line for line in drawn if "0/8" in line][-1]
    assert "local/8/r1  123k IOPS" in last
    assert ("p99 45.6 µs" in last) == (width > 60)
    # One line is overwritten, never two.
    assert "\x1b[1A" not in said


def test_a_session_of_rounds_says_where_it_is_and_how_long_all_takes(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All trials of a session end at once, so the rounds show its progress, and the time left never jumps."""
    study = load_study(str(tiny))[0]
    rounds = {"replicates": 3, "rounds": 4, "slice": 250_000_000, "settle": 10_000_000}
    study = study.model_copy(update={"design": study.design.model_copy(update=rounds)})
    made = plan(study)
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(display, "PLAIN_EVERY_S", 0.0)
    out = io.StringIO()
    shown = PlainDisplay(Console(file=out, width=120))
    shown.planned(made, list(made.trials), resumed=False)
    sessions = [[trial for trial in made.trials if trial.block == block] for block in (1, 2, 3)]
    each_s = sum(made.trial_ns[trial.id] for trial in sessions[0]) / 1e9
    for session in sessions:
        shown.started(session, 1)
        for number in range(1, 5):
            for trial in session:
                now[0] += 1.5 * each_s / 4 / len(session)
                shown.sample(Sample("run", 250_000_000, 5_000.0, 20_000, 45_600, trial.id, number))
        for trial in session:
            times = {"started_unix_ns": 0, "ended_unix_ns": 1}
            ended = {"trial": trial, "number": 1, "status": "done", "reason": "", "result": result(1000)}
            shown.ended(Attempt.model_validate(ended | times))
    lines = out.getvalue().splitlines()[1:]
    count = len(sessions[0])
    assert re.fullmatch(
        rf"0/{3 * count} session 1, round 1, \S+: 5.00k IOPS, p50 20.0 µs, p99 45.6 µs; about \d+ s left", lines[0]
    )
    assert [line.partition(";")[0] for line in lines if ": done" in line] == [
        f"{number * count}/{3 * count} session {number}: done" for number in (1, 2, 3)
    ]
    assert any("session 2, round 4" in line for line in lines)
    left_s = [int(re.search(r"about (\d+) s left", line)[1]) for line in lines]
    learnt = next(at for at, line in enumerate(lines) if "session 1: done" in line)
    # The first session took 1.5 times as long as planned. From its end on, the time left only decreases.
    assert left_s[learnt] == round(2 * 1.5 * each_s)
    assert left_s[learnt:] == sorted(left_s[learnt:], reverse=True)
    assert left_s[-1] == 0


def test_a_log_tells_now_and_then_how_far_a_long_step_is(planned: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    shown = PlainDisplay(Console(file=out, width=120))
    shown.planned(planned, list(planned.trials), resumed=False)
    trial = planned.trials[0]
    shown.started([trial], 1)
    for second in range(60):
        now[0] += 1
        shown.step(Step("simulated some of it, 1 min left", second / 100))
    lines = out.getvalue().splitlines()[1:]
    assert lines == [
        f"0/{len(planned.trials)} {trial.id}: simulated some of it, 1 min left, {percent} %"
        for percent in (14, 29, 44, 59)
    ]


def test_time_left_learns_how_long_trials_really_take(planned: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    clock = Clock(planned, list(planned.trials))
    each_s = planned.trial_ns[planned.trials[0].id] / 1e9
    assert clock.left_s() == pytest.approx(8 * each_s)
    for trial in planned.trials[:4]:
        now[0] += 2 * each_s
        clock.finish(trial)
    assert clock.left_s() == pytest.approx(4 * 2 * each_s)


def test_no_color_leaves_a_terminal_without_colour(planned: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """https://no-color.org"""
    said = {}
    for value in ("", "1"):
        monkeypatch.setenv("NO_COLOR", value)
        out = io.StringIO()
        play(LiveDisplay(Console(file=out, force_terminal=True, width=120, color_system="standard")), planned)
        said[value] = re.findall(r"\x1b\[(?:3\d|9\d)m", out.getvalue())
    assert said[""] and not said["1"]
