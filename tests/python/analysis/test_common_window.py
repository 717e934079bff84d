"""The time in which all hosts worked, and the host that shortened it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

import pytest

from iotax.analysis import Run, Severity, summarise
from iotax.analysis.common_window import common_window
from iotax.analysis.validity import check_run
from iotax.report.page import Page
from iotax.trial import Client, TrialResult
from iotax.wording import clients as wording
from report.factory import Simulation, study

S = 1_000_000_000
INTERVALS = 60
SCATTER = (500, 510, 490, 505, 495)
EVEN = list(islice(cycle(SCATTER), INTERVALS))


@pytest.fixture(scope="module")
def run() -> Run:
    return next(r for r in Simulation().data(study()).runs if r.trial.id == "iscsi/8/r1")


def client(run: Run, host: str, counts: Sequence[int], late_ns: int = 0) -> Client:
    whole_ns = run.result.window.duration_ns
    return Client(
        host=host,
        started_after_ns=late_ns,
        clock_error_ns=50_000,
        duration_ns=whole_ns,
        ios=sum(counts),
        bytes=4096 * sum(counts),
        latency_sum_ns=1,
        intervals=tuple(((index + 1) * whole_ns // len(counts), ios) for index, ios in enumerate(counts)),
    )


def of(run: Run, *clients: Client) -> TrialResult:
    return run.result.model_copy(update={"clients": clients})


def finding(run: Run, result: TrialResult):
    return next(check for check in check_run(Run(run.trial, result)) if check.key == "common")


def test_hosts_that_work_from_start_to_end_differ_in_nothing(run: Run) -> None:
    found = common_window(of(run, client(run, "h1", EVEN), client(run, "h2", EVEN[::-1])))
    assert found is not None
    assert (found.duration_ns, found.stragglers, found.differing) == (found.whole_ns, (), ())


def test_a_host_that_stopped_early_is_named_with_what_it_changed(run: Run) -> None:
    stopped = EVEN[:36] + [0] * 24
    # If the target is the limit, the other host gets what is left, so the total shows nothing.
    other = [500] * 36 + [1000] * 24
    result = of(run, client(run, "h1", other), client(run, "h2", stopped))
    found = common_window(result)
    assert found is not None
    assert found.duration_ns == found.whole_ns * 36 // 60
    assert [(each.host, each.early_ns) for each in found.stragglers] == [("h2", found.whole_ns * 24 // 60)]
    assert {each.host for each in found.differing} == {"h1", "h2"}
    assert next(each for each in found.differing if each.host == "h2").ratio == pytest.approx(60 / 36, rel=1e-3)
    said = finding(run, result)
    assert said.level is Severity.DOUBTFUL
    assert "h2 completed nothing in the last " in said.text
    assert "h2 by +66.7 %" in said.text


def test_a_host_that_began_late_is_named_by_its_own_clock(run: Run) -> None:
    late_ns = run.result.window.duration_ns // 5
    found = common_window(of(run, client(run, "h1", EVEN), client(run, "h2", EVEN, late_ns)))
    assert found is not None
    # The late host shortens the window at the start, the first host at the end.
    assert {each.host: (each.late_ns, each.early_ns) for each in found.stragglers} == {
        "h1": (0, late_ns),
        "h2": (late_ns, 0),
    }
    assert found.duration_ns == found.whole_ns - late_ns


def test_guests_with_clocks_of_their_own_worked_together_as_long_as_the_quicker_one_did(run: Run) -> None:
    quick, slow = (
        client(run, host, EVEN).model_copy(update={"pace": pace})
        for host, pace in (("initiator 1", 0.5), ("initiator 2", 0.25))
    )
    result = of(run, quick, slow)
    found = common_window(result)
    assert found is not None
    own_ns = run.result.window.duration_ns
    assert (found.duration_ns, found.whole_ns) == (2 * own_ns, 4 * own_ns)
    assert found.stragglers[0].host == "initiator 1"
    assert finding(run, result).level is Severity.DOUBTFUL


def test_what_scatter_explains_is_no_difference(run: Run) -> None:
    # With so few I/Os, intervals without any occur by chance.
    rare = list(islice(cycle([0, 0, 1, 0, 2, 0, 1, 0]), INTERVALS))
    found = common_window(of(run, client(run, "h1", EVEN), client(run, "h2", rare)))
    assert found is not None
    assert [each.host for each in found.stragglers] == ["h2"]
    assert found.differing == ()


def test_a_host_alone_and_older_results_have_no_common_window(run: Run) -> None:
    assert common_window(of(run, client(run, "h1", EVEN))) is None
    assert finding(run, of(run, client(run, "h1", EVEN))).level is Severity.GOOD
    unknown = client(run, "h2", EVEN).model_copy(update={"intervals": ()})
    assert common_window(of(run, client(run, "h1", EVEN), unknown)) is None
    assert finding(run, of(run, client(run, "h1", EVEN), unknown)).level is Severity.UNKNOWN


def test_hosts_that_never_worked_together_are_no_run(run: Run) -> None:
    first, second = [500] * 30 + [0] * 30, [0] * 30 + [500] * 30
    said = finding(run, of(run, client(run, "h1", first), client(run, "h2", second)))
    assert said.level is Severity.INVALID
    assert "worked together for 0 s" in said.text


def test_the_sentences_of_terminal_and_report_name_the_straggler(run: Run) -> None:
    data = Simulation().data(study())
    stopped = EVEN[:36] + [0] * 24
    for attempt in data.attempts:
        if attempt.result is not None:
            pair = (client(run, "h1", EVEN), client(run, "h2", stopped))
            object.__setattr__(attempt.result, "clients", pair)
    summary = summarise(data)
    line = wording.sentences(summary)[0]
    runs = len(summary.cells[0].runs)
    assert f"; h2 did I/Os for a shorter part of the window than the others in {runs} of {runs} runs" in line
    page = Page(summary, "n.iotax").html()
    assert "h2 completed nothing in the last " in page
    assert "h2 did I/Os for a shorter part of the window" in page
