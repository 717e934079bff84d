"""When throughput recovers after an event, medians of censored times, and where they are shown."""

from __future__ import annotations

import math
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from iotax.analysis import StudyData, summarise
from iotax.analysis.interruptions import delays
from iotax.analysis.recovery import Recovery, median_recovery, rate_after_iops, recoveries
from iotax.analysis.validity import Severity, check_run
from iotax.cli.screen import screen
from iotax.cli.summary import run_document
from iotax.cli.treatments import tables
from iotax.notebook import Notebook
from iotax.records.interruptions import AFTER_EVENT, Counts, Happened
from iotax.report.charts.around_events import latencies_of_run, of_run
from iotax.report.page import Page
from iotax.rows import attempt_rows
from iotax.study import Study
from iotax.trial import Attempt, Look, Open, Second, TrialResult
from iotax.wording import recovery
from report.factory import QUICK, Simulation, write_notebook

MS = 1_000_000
EVENT = {"at": "1s", "do": {"freeze": "target"}, "for": "500ms"}


@pytest.fixture(scope="module")
def data() -> StudyData:
    told = {
        "factors": {"protocol": ["nfs3", "iscsi", "nvme-tcp"]},
        "responses": ["iops", "longest_gap", "slow_ios", "recovery_time"],
        "events": [EVENT],
    }
    return Simulation().data(Study.model_validate(QUICK | told))


def disturbed(result: TrialResult, ios: list[int], *began_ms: float) -> TrialResult:
    """The result with these I/Os per interval of 10 ms, and an event of 100 ms at each of these times."""
    events = tuple(
        Happened(
            what="freeze target", asked_ns=round(at * MS), began_ns=round(at * MS), undone_ns=round((at + 100) * MS)
        )
        for at in began_ms
    )
    return result.model_copy(update={"counted": Counts(interval_ns=10 * MS, ios=ios), "events": events})


def stopped(of: int, first: int, last: int, rate: int = 100) -> list[int]:
    """I/Os of `of` intervals, with none from `first` up to, but not including, `last`."""
    return [0 if first <= at < last else rate for at in range(of)]


@pytest.fixture(scope="module")
def some(data: StudyData) -> TrialResult:
    return data.runs[0].result


def test_throughput_is_back_where_it_stays_for_a_second(some: TrialResult) -> None:
    assert recoveries(disturbed(some, stopped(500, 100, 150), 1000)) == [Recovery(0.5)]
    # The event starts in the middle of an interval.
    assert recoveries(disturbed(some, stopped(500, 100, 150), 1005)) == [Recovery(0.495)]
    # 88 % is not recovered, and half a second at full throughput in between does not count.
    slow = [*stopped(150, 100, 150), *[100] * 50, *[88] * 100, *[100] * 200]
    assert recoveries(disturbed(some, slow, 1000)) == [Recovery(2.0)]
    # 96 % counts as recovered.
    assert recoveries(disturbed(some, [*stopped(150, 100, 150), *[96] * 200], 1000)) == [Recovery(0.5)]
    # The event had no visible effect.
    assert recoveries(disturbed(some, [100] * 500, 1000)) == [Recovery(0.0)]


def test_the_interval_in_which_an_event_begins_tells_nothing_of_the_recovery(some: TrialResult) -> None:
    """With few I/Os an interval is a second long; most of this one was before the event."""
    assert recoveries(disturbed(some, stopped(4000, 400, 3600, rate=1), 3990)) == [Recovery(32.01)]


def test_a_window_that_ends_first_gives_a_bound(some: TrialResult) -> None:
    assert recoveries(disturbed(some, stopped(500, 100, 500), 1000)) == [Recovery(3.0, is_bound=True)]
    # Throughput has been back for only half a second when the window ends.
    assert recoveries(disturbed(some, stopped(500, 100, 450), 1000)) == [Recovery(3.0, is_bound=True)]


def test_each_event_is_judged_up_to_the_next(some: TrialResult) -> None:
    ios = [0 if 100 <= at < 150 or 300 <= at < 320 else 100 for at in range(500)]
    assert recoveries(disturbed(some, ios, 1000, 3000)) == [Recovery(0.5), Recovery(0.2)]
    ios = [0 if 100 <= at < 320 else 100 for at in range(500)]
    assert recoveries(disturbed(some, ios, 1000, 3000)) == [Recovery(1.0, is_bound=True), Recovery(0.2)]


def test_intervals_are_as_wide_as_the_rate_asks_for(some: TrialResult) -> None:
    """At less than one I/O per interval, 22 are combined to get 20 I/Os. With too few I/Os there is no answer."""
    assert recoveries(disturbed(some, stopped(600, 100, 150, rate=1), 1000)) == [Recovery(0.54)]
    rare = [1 if at % 20 == 0 else 0 for at in range(600)]
    assert recoveries(disturbed(some, rare, 1000)) == []
    assert recoveries(some) == []


def test_medians_are_those_of_the_product_limit_estimate() -> None:
    """Weeks of remission (Freireich et al. 1963): the median is 23 with 6-MP and 8 with placebo."""
    back = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    lost = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    treated = median_recovery([*(Recovery(t) for t in back), *(Recovery(t, is_bound=True) for t in lost)])
    assert treated is not None
    assert (treated.seconds, treated.events, treated.unrecovered) == (23, 21, 12)
    placebo = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
    untreated = median_recovery(Recovery(t) for t in placebo)
    assert untreated is not None
    assert untreated.seconds == 8
    assert median_recovery([]) is None


def test_a_median_that_nobody_saw_is_longer_than_what_was_seen() -> None:
    found = median_recovery([Recovery(2.0), Recovery(21.0, is_bound=True), Recovery(19.0, is_bound=True)])
    assert found is not None
    assert (found.seconds, found.more_than_s) == (None, 21.0)
    assert recovery.median(found) == "more than 21.0"
    assert recovery.recovered(found) == "1 of 3"
    assert recovery.median(median_recovery([Recovery(2.0), Recovery(3.0, is_bound=True)])) == "2.00"


def with_events(data: StudyData, last_of: dict[str, int]) -> StudyData:
    def changed(attempt: Attempt) -> Attempt:
        assert attempt.result is not None
        last = last_of[str(attempt.trial.treatment["protocol"])]
        return attempt.model_copy(update={"result": disturbed(attempt.result, stopped(400, 100, last), 1000)})

    return replace(data, attempts=[changed(each) for each in data.attempts])


def printed(part: Any) -> str:
    out = StringIO()
    console = Console(file=out, width=250)
    for each in part(console) if callable(part) else part:
        console.print(each, soft_wrap=True)
    return out.getvalue()


def test_medians_and_bounds_are_shown_and_never_compared(data: StudyData, tmp_path: Path) -> None:
    told = with_events(data, {"iscsi": 150, "nvme-tcp": 112, "nfs3": 400})
    summary = summarise(told)
    assert "recovery_time" not in {response.key for response in summary.responses}
    said = "Median time until throughput was back at 95 %: NFSv3 more than 2.00 s (0 of 3 recovered), iSCSI 0.500 s, "
    assert recovery.sentence(summary) == said + "NVMe/TCP 0.120 s."
    assert "more than 2.00" in printed(lambda console: tables(console, summary, summary.responses[0]))
    page = Page(summary, "n.iotax").html()
    assert "Recovery time" in page
    assert "0 of 3" in page
    with Notebook(write_notebook(tmp_path / "n.iotax", told)) as notebook:
        rows = {row["trial"]: row for row in attempt_rows(notebook, notebook.run(1))}
        document = run_document(notebook, 1)
    told_of = {each["levels"]["protocol"]: each for each in document["recoveries"]}
    assert (told_of["nfs3"]["recovered"], told_of["nfs3"]["median_s"], told_of["nfs3"]["more_than_s"]) == (0, None, 2.0)
    assert told_of["iscsi"]["later_s"] is None, "the baseline"
    assert told_of["nvme-tcp"]["later_s"] == {"low": None, "high": None}, "too few events"
    row = rows["nfs3/r1"]
    assert (row["events"], row["events_began_ns"], row["recovery_s"]) == ("freeze target", "1000000000", ">2.000")
    assert rows["nvme-tcp/r1"]["recovery_s"] == "0.120"


def repeated(data: StudyData, last_of: dict[str, int], times: int) -> StudyData:
    """So many replicates, each its own block, with recoveries that are 10 ms longer in each further one."""
    attempts = []
    for each in data.attempts:
        if each.trial.block != 1 or each.result is None:
            continue
        last = last_of[str(each.trial.treatment["protocol"])]
        for more in range(times):
            trial = each.trial.model_copy(
                update={"id": f"{each.trial.levels}/r{more + 1}", "block": more + 1, "replicate": more + 1}
            )
            ios = stopped(400, 100, min(400, last + more))
            attempts.append(each.model_copy(update={"trial": trial, "result": disturbed(each.result, ios, 1000)}))
    return replace(data, attempts=attempts)


def test_recoveries_are_compared_event_by_event(data: StudyData) -> None:
    """The baseline's recovery was never seen, so the others are sooner by more than was seen."""
    summary = summarise(repeated(data, {"iscsi": 400, "nvme-tcp": 112, "nfs3": 150}, 7))
    [nfs3, nvme_tcp] = delays(summary)
    assert (nfs3.cell.arm, nvme_tcp.cell.arm) == ("nfs3", "nvme-tcp")
    # The last recoveries are the longest: 0.56 s, seen for 2 s.
    assert (nfs3.seconds.low, nfs3.seconds.high) == (-math.inf, pytest.approx(-1.44))
    assert (nfs3.events, nfs3.needed) == (7, 7)
    told = "Compared with iSCSI, throughput was back: NFSv3 over 1.44 s sooner, NVMe/TCP over 1.82 s sooner."
    assert recovery.compared(summary) == told
    assert told in printed(lambda console: screen(console, summary.data, 40))
    page = Page(summary, "n.iotax").html()
    assert "Back later" in page
    assert "Throughput is back at 95 % after 0.150 s (median; 7 of 7 recovered)." in page
    assert "under −1.44" in page


def test_each_events_line_begins_at_its_moment(data: StudyData) -> None:
    """Two events in a run; each line ends where the next event begins, and a bin never reaches over a begin."""
    ios = [*[100] * 103, *[0] * 50, *[100] * 97, *[0] * 20, *[100] * 130]
    told = with_events(data, {"iscsi": 150, "nvme-tcp": 112, "nfs3": 130})
    run = summarise(told).cells[0].runs[0]
    run = replace(run, result=disturbed(run.result, ios, 1030, 2500))
    first, second = of_run(run, 30 * MS)
    assert [rate for at, rate in first.items() if at < 0] == [10_000] * 34
    assert [rate for at, rate in first.items() if 0 < at < 0.48] == [0] * 16
    assert max(first) < 1.47
    assert min(second) > -1.47
    assert [rate for at, rate in second.items() if 0 < at < 0.18] == [0] * 6


def test_latencies_stand_where_ios_completed_and_share_a_grid(data: StudyData) -> None:
    """Intervals of 100 ms, and an event in the middle of one. No line reaches over another event."""
    run = data.runs[0]
    result = disturbed(run.result, [], 1050, 3000).model_copy(update={"series": tenths(40, without=(11, 12))})
    first, second = latencies_of_run(replace(run, result=result))
    # The interval around the event's begin belongs to what follows.
    assert [first.get(at) for at in (-0.05, 0.05, 0.15, 0.25, 0.35)] == [10.0, 11.0, None, None, 14.0]
    assert max(first) == pytest.approx(1.95)
    assert (min(second), second[0.05], max(second)) == (pytest.approx(-1.65), 31.0, pytest.approx(0.95))


def tenths(count: int, without: tuple[int, ...]) -> list[Second]:
    """Intervals of 100 ms, whose 99th percentile is 1 ms in the first, 2 ms in the second, and so on."""
    nothing = {"writes": 0, "read_bytes": 0, "write_bytes": 0, "duration_ns": 100 * MS}
    ms = [0 if at in without else at + 1 for at in range(count)]
    return [
        Second(at_ns=at * 100 * MS, reads=min(each, 1), latency_p99_ns=each * MS, **nothing)
        for at, each in enumerate(ms)
    ]


def test_report_shows_throughput_and_latency_around_events(data: StudyData) -> None:
    told = with_events(data, {"iscsi": 150, "nvme-tcp": 112, "nfs3": 130})
    attempts = [
        each.model_copy(update={"result": each.result.model_copy(update={"series": tenths(40, without=())})})
        if each.result
        else each
        for each in told.attempts
    ]
    drawings = Page(summarise(replace(told, attempts=attempts)), "n.iotax").drawings
    for name, unit in (("around-events", "IOPS"), ("p99-around-events", "p99, ms")):
        found = [drawing for drawing in drawings if drawing.name.startswith(name)]
        assert [drawing.title for drawing in found] == ["NFSv3", "iSCSI", "NVMe/TCP"]
        assert all(unit in str(drawing.draw(336)) for drawing in found)


def test_recoveries_that_were_all_seen_have_an_interval(data: StudyData) -> None:
    summary = summarise(repeated(data, {"iscsi": 130, "nfs3": 150, "nvme-tcp": 130}, 8))
    said = (
        "Compared with iSCSI, throughput was back: NFSv3 0.200 s later [0.200, 0.200]; no difference shown for 1 other."
    )
    assert recovery.compared(summary) == said
    same = summarise(repeated(data, {"iscsi": 130, "nfs3": 130, "nvme-tcp": 130}, 8))
    assert recovery.compared(same) == "No treatment's recovery was shown to take longer or shorter than that of iSCSI."


def test_too_few_events_are_not_compared(data: StudyData) -> None:
    told = with_events(data, {"iscsi": 150, "nvme-tcp": 112, "nfs3": 130})
    said = "To compare recovery times takes 7 events of each treatment; there are 3."
    assert recovery.compared(summarise(told)) == said
    assert recovery.compared(summarise(data)) == ""
    looked = replace(told, looks=[Look(at_unix_ns=0, results=9, replicates=3, raised_to=6)])
    assert recovery.compared(summarise(looked)) == ""


def test_a_run_with_events_is_not_called_unsteady(data: StudyData) -> None:
    run = with_events(data, {"iscsi": 150, "nvme-tcp": 112, "nfs3": 400}).runs[0]
    steady = next(check for check in check_run(run) if check.key == "steady")
    assert (steady.level, steady.text) == (Severity.GOOD, "not judged: the study makes something happen")


def test_a_rate_that_an_event_kept_from_being_held_does_not_make_a_run_doubtful(data: StudyData) -> None:
    run = with_events(data, {"iscsi": 150, "nvme-tcp": 112, "nfs3": 400}).runs[0]
    offered = Open(offered=1000, dropped=0, backlog_end=600, rate_iops=100, achieved=0.4)
    for events, level in ((run.result.events, Severity.GOOD), ((), Severity.DOUBTFUL)):
        result = run.result.model_copy(update={"open": offered, "events": events})
        held = next(check for check in check_run(replace(run, result=result)) if check.key == "achieved")
        assert held.level == level
        assert held.text.startswith("40.0 % of 1,000 I/Os offered; 0 dropped, 600 waiting at the end")


def test_wrong_data_after_an_event_are_the_first_line(data: StudyData) -> None:
    told = with_events(data, {"iscsi": 150, "nvme-tcp": 112, "nfs3": 400})
    reason = f"{AFTER_EVENT}: block 7 at byte 3584 holds an older write (iscsi://h)"
    first = told.attempts[0]
    lost = first.model_copy(update={"status": "failed", "reason": reason, "result": None})
    hit = replace(told, attempts=[lost, *told.attempts[1:]])
    summary = summarise(hit)
    said = f"1 attempt read {reason}. Trial {first.trial.id}. Its numbers do not count."
    assert recovery.wrong_data(hit) == said
    assert str(screen(Console(width=200), hit, 40)[0]) == said
    head = Page(summary, "n.iotax").html().partition("<header>")[2].replace("\u00a0", " ")
    assert head.lstrip().startswith(f'<p class="alarm" role="alert">{said}</p>')
    assert recovery.wrong_data(told) == ""
    assert "alarm" not in Page(summarise(told), "n.iotax").html().partition("<body>")[2]


def test_throughput_after_events_is_counted_from_each_undo_to_the_next_event(data: StudyData) -> None:
    result = data.runs[0].result
    events = (
        Happened(what="x", asked_ns=1000 * MS, began_ns=1000 * MS, undone_ns=1500 * MS),
        Happened(what="x", asked_ns=3000 * MS, began_ns=3050 * MS, undone_ns=3450 * MS),
    )
    # Ten intervals of 100 ms each: before, during, after the first, from the second on.
    ios = [100] * 10 + [0] * 5 + [80] * 15 + [1] * 5 + [60] * 5
    after = result.model_copy(update={"events": events, "counted": Counts(interval_ns=100 * MS, ios=ios)})
    assert rate_after_iops(after) == pytest.approx((15 * 80 + 5 * 60) / 2.0)
    assert rate_after_iops(after.model_copy(update={"events": ()})) == 0.0
    assert rate_after_iops(after.model_copy(update={"counted": None})) == 0.0
    late = (events[0].model_copy(update={"undone_ns": 4000 * MS}),)
    assert rate_after_iops(after.model_copy(update={"events": late})) == 0.0, "the window ended with the event"


def test_wrong_data_without_any_result_are_the_first_line(data: StudyData) -> None:
    reason = "h1: wrong data at byte 3584: expected zeros, found run 0x1, writer 2, sequence 3"
    failed = [each.model_copy(update={"status": "failed", "reason": reason, "result": None}) for each in data.attempts]
    none = replace(data, attempts=failed)
    lines = [str(line) for line in screen(Console(width=200), none, 40)]
    assert lines[0].startswith(f"{len(failed)} attempts read wrong data at byte 3584: expected zeros")
    assert lines[1:] == ["No trial was measured yet."]
