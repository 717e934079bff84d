"""Each checklist item can be answered no or unknown; each rule is tested both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from iotax.analysis import StudyData, summarise
from iotax.analysis.validity import check_run
from iotax.records import CpuTime, CpuUse
from iotax.report.sections.checklist import checklist
from iotax.report.sections.validity import limits_of
from iotax.trial import Checks, Latency, TrialResult, Verify
from report.factory import Simulation, study, with_facts

Change = Callable[[TrialResult], TrialResult]
SMALL = {"factors": {"protocol": ["local", "nfs3", "iscsi"], "outstanding": [1, 8]}}
OPEN = {"factors": {"protocol": ["nfs3", "iscsi"], "rate_iops": [2000, 5000]}, "load": {"outstanding": 64}}
ONCE = {"design": {"replicates": 1}}


def answers(data: StudyData) -> dict[str, tuple[str, str]]:
    summary = summarise(data)
    return {item.ask: (item.answer, item.because) for item in checklist(summary, limits_of(summary))}


def answer(data: StudyData, beginning: str) -> str:
    return next(said for ask, (said, _) in answers(data).items() if ask.startswith(beginning))


@pytest.fixture(scope="module")
def closed() -> StudyData:
    return Simulation().data(study(**SMALL))


@pytest.fixture(scope="module")
def once() -> StudyData:
    return Simulation().data(study(**SMALL, **ONCE))


@pytest.fixture(scope="module")
def paced() -> StudyData:
    return Simulation().data(study(**OPEN))


def changed(data: StudyData, change: Change) -> StudyData:
    attempts = [
        each if each.result is None else each.model_copy(update={"result": change(each.result)})
        for each in data.attempts
    ]
    return replace(data, attempts=attempts)


def checks(**more: Any) -> Change:
    return lambda result: result.model_copy(update={"checks": Checks(run_queue_wait=0.004, clock="x", **more)})


def parts(change: Callable[[CpuTime], CpuTime | None]) -> Change:
    def of(result: TrialResult) -> TrialResult:
        kept = [part for each in result.cpu if (part := change(each)) is not None]
        return result.model_copy(update={"cpu": CpuUse(kept)})

    return of


def late(result: TrialResult) -> TrialResult:
    assert result.open is not None
    ns = round(result.latency_mean_ns)
    slow = Latency(latency_sum_ns=ns, latency_min_ns=ns, latency_max_ns=ns, histogram={"counts": [(ns, 1)]})
    return result.model_copy(update={"open": result.open.model_copy(update={"lateness": slow})})


def unpaced(result: TrialResult) -> TrialResult:
    assert result.open is not None
    return result.model_copy(update={"open": result.open.model_copy(update={"lateness": None})})


def busy(layer: str, share: float) -> Change:
    """Makes this layer busy for this share of all its processors' time."""

    def of(part: CpuTime) -> CpuTime:
        if part.layer != layer or part.role == "target":
            return part
        return part.model_copy(update={"busy_ns": round(share * (part.window_ns or 0) * (part.processors or 1))})

    return parts(of)


GENERATOR = "The load generator"
SOUND = "Nothing above a physical limit"


def test_the_generator_is_the_bottleneck_where_it_waits_for_a_processor(closed: StudyData) -> None:
    idle = changed(closed, busy("process", 0.5))
    assert answer(idle, GENERATOR) == "yes"
    starved = changed(idle, lambda result: result.model_copy(update={"checks": Checks(run_queue_wait=0.92, clock="x")}))
    assert answer(starved, GENERATOR) == "no"
    nobody_looked = changed(idle, lambda result: result.model_copy(update={"checks": Checks(clock="x")}))
    assert answer(nobody_looked, GENERATOR) == "partly"


def test_the_generator_is_judged_by_how_busy_it_was_and_not_praised_where_nobody_knows(closed: StudyData) -> None:
    assert answer(changed(closed, busy("process", 0.99)), GENERATOR) == "partly"
    unread = changed(closed, parts(lambda part: part.model_copy(update={"processors": None})))
    assert answer(unread, GENERATOR) == "partly"


def test_the_generator_may_be_the_bottleneck_where_it_reaches_no_more_on_an_own_target(closed: StudyData) -> None:
    idle = changed(closed, busy("process", 0.5))
    assert answer(with_facts(idle, own_target_rate_iops=1.0), GENERATOR) == "partly"
    assert answer(with_facts(idle, own_target_rate_iops=1e9), GENERATOR) == "yes"


def test_of_a_load_at_a_rate_it_is_said_that_it_had_none_on_the_own_target(paced: StudyData) -> None:
    [run, *_] = with_facts(paced, own_target_rate_iops=1e9).runs
    text = next(each.text for each in check_run(run) if each.key == "generator")
    assert "reaches 1000M IOPS on iotax's own target" in text
    assert " under the same load without a limit to its rate, and " in text


def test_the_generator_is_the_bottleneck_where_it_is_late(paced: StudyData) -> None:
    assert answer(paced, GENERATOR) in ("yes", "partly")
    assert answer(changed(paced, late), GENERATOR) == "no"


@pytest.mark.parametrize(("over", "said"), [(0.0, "yes"), (0.018, "yes"), (0.08, "no")])
def test_ticks_are_no_more_processor_time_than_there_is(closed: StudyData, over: float, said: str) -> None:
    """The window is 1 s; both ends are read in ticks of 10 ms."""
    second = changed(
        closed,
        parts(lambda part: part.model_copy(update={"window_ns": 1_000_000_000, "resolution_ns": 10_000_000})),
    )
    assert answer(changed(second, busy("machine", 1 + over)), SOUND) == said


def test_wrong_data_and_unchecked_data_are_not_sound(closed: StudyData) -> None:
    def verified(verify: Verify | None) -> StudyData:
        return changed(closed, lambda result: result.model_copy(update={"verify": verify}))

    assert answer(closed, SOUND) == "yes"
    assert answer(verified(Verify(checked_blocks=9, never_written_blocks=0, wrong_blocks=1)), SOUND) == "no"
    assert answer(verified(None), SOUND) == "partly"
    reason = "wrong data at byte 3584: expected zeros, found run 0x1, writer 2, sequence 3"
    lost = closed.attempts[0].model_copy(update={"status": "failed", "reason": reason, "result": None})
    assert answer(replace(closed, attempts=[*closed.attempts, lost]), SOUND) == "no", "also in an attempt that failed"


def test_a_loop_is_stated_as_far_as_its_latency_is(paced: StudyData, closed: StudyData) -> None:
    ask = "Open or closed loop"
    assert [answer(data, ask) for data in (paced, closed)] == ["yes", "yes"]
    assert answer(changed(paced, unpaced), ask) == "partly"
    assert answer(replace(closed, attempts=[]), ask) == "no"
    load = closed.study.load.model_copy(update={"generator": "command"})
    by_command = replace(closed, study=closed.study.model_copy(update={"load": load}))
    assert answer(by_command, ask) == "no", "only the command knows"


@pytest.mark.parametrize(
    ("ask", "alone"),
    [
        ("Replicated, and", "no"),
        ("Index-100 charts", "no"),
        ("Interactions before averages", "no"),
        ("Effect size with its interval", "partly"),
        ("Variation by level", "partly"),
        ("Residual and run-order plots", "partly"),
    ],
)
def test_a_single_run_of_each_treatment_is_not_enough(closed: StudyData, once: StudyData, ask: str, alone: str) -> None:
    assert answer(closed, ask) in ("yes", "partly")
    assert answer(once, ask) == alone


@pytest.mark.parametrize("ask", ["Question, primary response", "Design, blocks, seed"])
def test_without_a_plan_nothing_shows_what_was_fixed_before_the_data(closed: StudyData, ask: str) -> None:
    assert answer(closed, ask) == "yes"
    assert answer(replace(closed, planned=()), ask) == "no"


def test_what_was_not_read_names_no_limiter(closed: StudyData) -> None:
    ask = "The bottleneck of each treatment"
    assert answer(closed, ask) == "yes"
    assert answer(changed(closed, parts(lambda _: None)), ask) == "no"


def test_errors_and_unsteady_runs_are_said(closed: StudyData) -> None:
    assert answer(changed(closed, checks(errors=3)), SOUND) == "no"
    short = changed(closed, lambda result: result.model_copy(update={"series": result.series[:3]}))
    assert answer(short, "Steady-state verdict") == "partly"


def test_littles_law_may_fail(closed: StudyData) -> None:
    ask = "Little’s law"
    assert answer(closed, ask) == "yes"
    half = changed(
        closed,
        lambda result: result.model_copy(
            update={"outstanding": result.outstanding.model_copy(update={"per_worker": 99})}
        ),
    )
    assert answer(half, ask) == "no"


def test_without_a_machine_and_versions_nothing_can_be_made_again(closed: StudyData) -> None:
    assert answer(closed, "Raw data and code version") == "yes"
    strange = replace(closed, environment={})
    assert answer(strange, "Raw data and code version") == "partly"
    assert answer(strange, "Full configuration") == "no"


def test_sizing_needs_processor_time(closed: StudyData) -> None:
    assert answer(closed, "Sizing states") in ("yes", "partly")
    assert answer(changed(closed, parts(lambda _: None)), "Sizing states") == "none"


def test_no_latencies_no_percentiles(closed: StudyData) -> None:
    def bare(result: TrialResult) -> TrialResult:
        empty = {"read": result.read.model_copy(update={"histogram": type(result.read.histogram)()})}
        empty["write"] = result.write.model_copy(update={"histogram": type(result.write.histogram)()})
        return result.model_copy(update=empty)

    assert answer(closed, "The full percentile curve") == "yes"
    assert answer(changed(closed, bare), "The full percentile curve") == "no"
