"""Gaps without I/O and slow I/Os: what a run records of them, what is compared, and where they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from iotax.analysis import StudyData, Summary, summarise
from iotax.analysis.interruptions import interruptions, worth_showing
from iotax.analysis.responses import LONGEST_GAP, SLOW, Run
from iotax.analysis.verdict import Cause
from iotax.cli.treatments import tables
from iotax.notebook import Notebook
from iotax.report.page import Page
from iotax.rows import attempt_rows
from iotax.study import Study
from iotax.study.read import read_study
from iotax.study.source import StudyError
from iotax.trial import Gaps, Histogram, TrialResult
from report.factory import QUICK, Simulation, study, write_notebook

MS = 1_000_000
ASKED = ["iops", "longest_gap", "slow_ios"]


def asked(**more: Any) -> Study:
    return Study.model_validate(QUICK | {"responses": ASKED} | more)


def with_gaps(data: StudyData, by_protocol: Mapping[str, Gaps]) -> StudyData:
    """The same data, with these gaps in every run of a protocol."""

    def changed(attempt: Any) -> Any:
        gaps = by_protocol.get(attempt.trial.treatment["protocol"])
        return attempt.model_copy(update={"result": attempt.result.model_copy(update={"gaps": gaps})})

    return replace(data, attempts=[changed(each) if each.result else each for each in data.attempts])


def slowed(result: TrialResult, more: Mapping[int, int]) -> TrialResult:
    """The same result with additional reads of these latencies."""
    counts = sorted([*result.read.histogram.counts, *more.items()])
    read = result.read.model_copy(update={"histogram": Histogram(counts=counts)})
    return result.model_copy(update={"read": read})


@pytest.fixture(scope="module")
def data() -> StudyData:
    return Simulation().data(asked())


def a_run(data: StudyData) -> Run:
    return next(run for run in data.runs if run.trial.id == "iscsi/8/r1")


def shown(summary: Summary) -> str:
    out = StringIO()
    console = Console(file=out, width=200)
    for table in tables(console, summary, summary.responses[0]):
        console.print(table)
    return out.getvalue()


def test_slow_ios_are_those_beyond_a_limit_of_reads_and_writes_together(data: StudyData) -> None:
    run = a_run(data)
    slow = slowed(run.result, {99 * MS: 5, 101 * MS: 3, 1100 * MS: 2})
    assert [slow.slow_ios(over_ns) for over_ns in SLOW.values()] == [5, 2]
    assert run.result.slow_ios(100 * MS) == 0
    unknown = run.result.read.model_copy(update={"latency": "mean", "histogram": Histogram()})
    assert run.result.model_copy(update={"read": unknown}).slow_ios(100 * MS) is None
    found = interruptions([Run(run.trial, slow), run])
    assert dict(found.slow) == {"over 100 ms": 2.5, "over 1 s": 1.0}


def test_longest_gaps_are_compared_as_any_response(data: StudyData) -> None:
    gap = {name: Gaps(longest_ns=ms * MS, listed_from_ns=MS) for name, ms in (("iscsi", 40), ("nvme-tcp", 10))}
    summary = summarise(with_gaps(data, gap))
    assert [response.key for response in summary.responses] == ["iops", "longest_gap"]
    overall = next(o for o in summary.overalls if o.response is LONGEST_GAP and o.arm == "nvme-tcp")
    assert overall.comparison.ratio.value == pytest.approx(0.25)
    assert not [o for o in summary.overalls if o.response is LONGEST_GAP and o.arm == "nfs3"]


def test_upper_bounds_on_both_sides_are_no_verdict(data: StudyData) -> None:
    bound = Gaps(longest_ns=MS - 1, is_bound=True, listed_from_ns=MS)
    sure = Gaps(longest_ns=5 * MS, listed_from_ns=MS)
    summary = summarise(with_gaps(data, {"local": sure, "iscsi": bound, "nvme-tcp": bound, "nfs3": sure}))
    of = {o.arm: o.comparison for o in summary.overalls if o.response is LONGEST_GAP}
    assert of["nvme-tcp"].withheld is not None
    assert of["nvme-tcp"].withheld.cause is Cause.BOUNDS
    assert of["nfs3"].verdict is not None
    assert "≤ 1.00" in Page(summary, "n.iotax").html()


def test_they_are_shown_where_they_are_asked_for_and_where_something_stood_still(data: StudyData) -> None:
    summary = summarise(data)
    assert all(title in shown(summary) for title in ("gap", "over 100 ms", "over 1 s"))
    assert "Interruptions" in Page(summary, "n.iotax").html()
    unasked = Simulation().data(study())
    quiet = summarise(unasked)
    assert not worth_showing(quiet)
    assert "Interruptions" not in Page(quiet, "n.iotax").html()
    assert "over 100 ms" not in shown(quiet)
    stalled = summarise(with_gaps(unasked, {"iscsi": Gaps(longest_ns=1200 * MS, listed_from_ns=MS)}))
    page = Page(stalled, "n.iotax").html()
    assert "Interruptions" in page
    assert "1,200" in page
    assert "of all workers together" in page


def test_a_second_without_io_is_usual_at_a_low_rate() -> None:
    rare = Study.model_validate(
        QUICK | {"factors": {"protocol": ["nfs3", "iscsi"], "rate_iops": [3]}, "load": {"runtime": "60s"}}
    )
    gap = Gaps(longest_ns=1500 * MS, listed_from_ns=MS)
    assert not worth_showing(summarise(with_gaps(Simulation().data(rare), {"iscsi": gap, "nfs3": gap})))


def test_gaps_of_one_client_are_called_so(data: StudyData) -> None:
    apart = Gaps(longest_ns=1200 * MS, listed_from_ns=MS, of="client")
    summary = summarise(with_gaps(data, {"iscsi": apart}))
    assert "of any one client, since their clocks run apart" in Page(summary, "n.iotax").html()


def test_a_notebook_keeps_them_and_rows_have_them(data: StudyData, tmp_path: Path) -> None:
    gaps = Gaps(longest_ns=1200 * MS, listed_from_ns=MS, listed=[(3 * MS, 1200 * MS)])
    file = write_notebook(tmp_path / "n.iotax", with_gaps(data, {"iscsi": gaps}))
    with Notebook(file) as notebook:
        kept = {each.trial.id: each.result for each in notebook.each_attempt(1)}
        rows = {row["trial"]: row for row in attempt_rows(notebook, notebook.run(1))}
    assert kept["iscsi/8/r1"].gaps == gaps
    row = rows["iscsi/8/r1"]
    assert (row["longest_gap_ns"], row["longest_gap_of"]) == (1200 * MS, "all")
    assert (row["ios_over_100_ms"], row["ios_over_1_s"]) == (0, 0)
    assert rows["nfs3/8/r1"]["longest_gap_ns"] is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"responses": ["slow_ios"]}, "responses[1]: slow_ios is counted, not compared; name another one first"),
        (
            {"design": {"replicates": 3, "stop": {"half_width": "5%", "response": "slow_ios"}}},
            "design.stop.response: slow_ios is counted, not compared; name another one",
        ),
    ],
)
def test_counts_are_no_primary_response(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(StudyError) as refused:
        read_study("study.yaml", yaml.safe_dump(QUICK | change, sort_keys=False), Path())
    assert reason in str(refused.value)
