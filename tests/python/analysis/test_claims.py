"""What a report may claim: no verdict on what the study itself sets, none without an interval, and doubt is stated."""

from __future__ import annotations

import re

import pytest

from iotax.analysis import Verdict, summarise
from iotax.analysis.change import changes
from iotax.analysis.precision import half_width
from iotax.analysis.verdict import Cause
from iotax.report.sections.figures import main_groups
from iotax.report.sections.verdict import cards
from iotax.study import Study
from iotax.wording import trust, verdicts
from report.factory import OPEN, Simulation, study

HELD = [5000, 20000]


def open_loop(**changes: object) -> Study:
    factors = {"protocol": ["nfs3", "iscsi"], "rate_iops": HELD}
    return Study.model_validate({**OPEN, "factors": factors, "responses": ["iops", "latency", "cpu_per_io"], **changes})


@pytest.fixture(scope="module")
def held():
    return Simulation().data(open_loop())


def test_an_imposed_rate_is_no_response(held):
    summary = summarise(held)
    assert [r.key for r in summary.responses] == ["cpu", "latency"]
    said = verdicts(summary)
    assert said[0].response_key == "cpu"
    assert not any("IOPS" in f.text for f in said)
    assert {line.response for card in cards(summary) for line in card.lines} == {
        "CPU per I/O, initiator + target",
        "Mean latency",
    }


@pytest.mark.parametrize("key", ["iops", "bandwidth"])
def test_no_verdict_is_given_on_an_imposed_rate(held, key):
    found = [c for c in summarise(held).comparisons if c.response.key == key]
    assert found
    assert all(c.verdict is None and c.withheld.cause is Cause.IMPOSED for c in found)


def test_a_study_that_asks_for_the_rate_alone_is_answered_by_cpu_and_latency():
    summary = summarise(Simulation().data(open_loop(responses=["iops"])))
    assert [r.key for r in summary.responses] == ["cpu", "latency"]


def test_two_runs_at_an_imposed_rate_are_not_compared_by_it(held):
    found = changes(held, Simulation(seed=2).data(open_loop()), 5)
    assert {c.response.key for c in found.found} == {"cpu", "latency"}


def test_an_imposed_rate_is_not_precise_enough_to_stop(held):
    wide = Simulation(run_cv=0.2).data(open_loop())
    assert half_width(wide) > 0.05


def test_a_rate_that_was_not_achieved_is_a_finding():
    of = open_loop(factors={"protocol": ["nfs3", "iscsi"], "rate_iops": [5000, 80000]})
    said = verdicts(summarise(Simulation().data(of)))
    behind = next(f for f in said if f.verb == "completed" and f.subject == "NFSv3")
    assert re.fullmatch(
        r"NFSv3 completed only a part of the offered I/Os: \d+ % with 80,000 IOPS offered \(slowest run of each\)\.",
        behind.sentence,
    )
    assert not any(f.verb == "completed" for f in verdicts(summarise(Simulation().data(open_loop()))))


def test_of_many_loads_that_fell_behind_the_worst_are_named_and_the_others_counted():
    of = open_loop(factors={"protocol": ["nfs3", "iscsi"], "rate_iops": [5000, *range(80000, 140000, 10000)]})
    said = verdicts(summarise(Simulation().data(of)))
    behind = next(f for f in said if f.verb == "completed" and f.subject == "NFSv3")
    assert behind.text.count("IOPS offered") == 2
    assert "with 130,000 IOPS offered, " in behind.text
    assert behind.text.endswith(", and less than all under 4 more loads (slowest run of each)")


def test_one_run_of_each_claims_no_ratio():
    summary = summarise(Simulation().data(study(design={"replicates": 1, "blocks": "none", "seed": 1})))
    said = verdicts(summary)
    assert said
    assert not any(re.search(r"\d+(\.\d+)? (%|times)|µs", f.text) for f in said), [f.text for f in said]
    assert {line.ratio for card in cards(summary) for line in card.lines} == {"–"}
    for group in main_groups(summary):
        for row in group.rows:
            if row.arm not in ("iscsi",):
                assert [f.value for f in row.figures[1::2]] == ["–"] * (len(row.figures) // 2)


def interval_in(text: str) -> bool:
    return "95 % CI" in text


@pytest.mark.parametrize("replicates", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_no_sentence_states_a_difference_without_an_interval(replicates, seed):
    of = study(design={"replicates": replicates, "blocks": "replicate", "seed": 1})
    for finding in verdicts(summarise(Simulation(seed=seed, run_cv=0.1).data(of))):
        for text in (finding.text, *finding.details):
            assert interval_in(text) or text.startswith("no comparison with") or ": no comparison with" in text, text


def test_an_answer_from_mostly_doubtful_runs_says_so():
    of = study()
    every = [f"{p}/{n}/r{r}" for p in ("nfs3", "iscsi") for n in (1, 8, 32) for r in (1, 2, 3)]
    summary = summarise(Simulation(unsteady=every).data(of))
    said = {f.subject: f for f in verdicts(summary) if f.response_key == "iops"}
    assert said["NFSv3"].text.endswith("; but all 18 runs are doubtful (steady state)")
    assert said["NFSv3"].tone == "warning"
    # 9 of the 18 runs behind NVMe/TCP's answer are iSCSI's: half is not most.
    assert "doubtful" not in said["NVMe/TCP"].text
    badges = {card.name: [line.verdict for line in card.lines] for card in cards(summary)}
    assert all("doubtful" in badge for badge in badges["NFSv3"])
    assert not any("doubtful" in badge for badge in badges["NVMe/TCP"])
    assert trust(summary)[1].tone == "warning"


def test_a_cell_of_mostly_doubtful_runs_is_marked():
    summary = summarise(Simulation(unsteady=["nfs3/8/r1", "nfs3/8/r2", "nfs3/1/r1"]).data(study()))
    marked = {c.cell for c in summary.cells if c.doubt.most}
    assert marked == {("nfs3", "8")}


def test_verdicts_of_a_closed_loop_stay():
    summary = summarise(Simulation().data(study()))
    assert [r.key for r in summary.responses] == ["iops", "latency", "cpu"]
    assert any(c.verdict is Verdict.BETTER for c in summary.comparisons if c.response.key == "iops")
