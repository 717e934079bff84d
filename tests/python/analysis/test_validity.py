import numpy as np
import pytest

from iotax.analysis import Run, Severity, summarise
from iotax.analysis.steady import Label, mser5, rounds_of, steady_state
from iotax.analysis.validity import check_run, near_own_target, worst_of
from iotax.records import CpuUse
from iotax.records.interruptions import Happened
from iotax.trial import Client, ModelledMedia, Paths, PathUse
from iotax.units import show_rate
from iotax.wording import trust
from iotax.wording.brief import validity
from report.factory import Simulation, study, with_facts


@pytest.fixture(scope="module")
def run():
    return next(r for r in Simulation().data(study()).runs if r.trial.id == "iscsi/8/r1")


def changed(run, **changes):
    return Run(run.trial, run.result.model_copy(update=changes))


def finding(run, key):
    return next(c for c in check_run(run) if c.key == key)


def test_a_good_run_has_no_finding(run):
    assert {c.level for c in check_run(run)} <= {Severity.GOOD, Severity.NOTE}


def test_errors_invalidate(run):
    checks = run.result.checks.model_copy(update={"errors": 2})
    assert finding(changed(run, checks=checks), "errors").level is Severity.INVALID


def test_wrong_and_never_written_blocks(run):
    verify = run.result.verify.model_copy(update={"wrong_blocks": 1, "never_written_blocks": 5})
    bad = changed(run, verify=verify)
    assert finding(bad, "data").level is Severity.INVALID
    assert finding(bad, "unwritten").level is Severity.DOUBTFUL
    assert finding(changed(run, verify=None), "data").level is Severity.UNKNOWN


def test_littles_law_finds_a_queue_that_was_not_kept_full(run):
    half = run.result.outstanding.model_copy(update={"per_worker": 16})
    bad = finding(changed(run, outstanding=half), "little")
    assert bad.level is Severity.DOUBTFUL
    assert bad.text.endswith("49.3 %")


def test_waiting_for_a_processor(run):
    checks = run.result.checks.model_copy(update={"run_queue_wait": 0.12})
    assert finding(changed(run, checks=checks), "wait").level is Severity.DOUBTFUL


def with_part(run, part, **changes):
    """The run with one part of its CPU list changed, or left out."""
    instead = [part.model_copy(update=changes)] if changes else []
    return changed(run, cpu=CpuUse([*(each for each in run.result.cpu if each is not part), *instead]))


def test_foreign_load_is_what_neither_we_nor_interrupts_account_for(run):
    cpu, machine = run.result.cpu, run.result.cpu.part("other", "machine")
    interrupts_ns = sum(core.softirq_ns for core in machine.cores)
    ours_ns = cpu.initiator.busy_ns + cpu.target.busy_ns
    bad = with_part(run, machine, busy_ns=ours_ns + interrupts_ns + run.result.window.duration_ns // 2)
    assert finding(bad, "foreign").level is Severity.DOUBTFUL
    assert finding(bad, "foreign").text.startswith("0.50")
    assert finding(with_part(run, machine), "foreign").level is Severity.UNKNOWN


def test_start_skew(run):
    checks = run.result.checks.model_copy(update={"start_skew_ns": run.result.window.duration_ns // 20})
    assert finding(changed(run, checks=checks), "skew").level is Severity.DOUBTFUL


@pytest.mark.parametrize(
    ("late_share", "error_share", "level"),
    [
        (0.0005, 0.0001, Severity.GOOD),
        (0.005, 0.0001, Severity.NOTE),
        (0.02, 0.0001, Severity.INVALID),
        # If the clock error is that large, the run stays valid.
        (0.02, 0.01, Severity.NOTE),
    ],
)
def test_a_host_that_began_late_is_named(run, late_share, error_share, level):
    window_ns = run.result.window.duration_ns
    common = {"duration_ns": window_ns, "ios": 1, "bytes": 1, "latency_sum_ns": 1}
    error_ns = round(error_share * window_ns)
    clients = (
        Client(host="h1", started_after_ns=0, clock_error_ns=error_ns, **common),
        Client(host="h2", started_after_ns=round(late_share * window_ns), clock_error_ns=error_ns, **common),
    )
    found = finding(changed(run, clients=clients), "skew")
    assert found.level is level
    assert found.text.startswith("h2 began ")
    assert ("% of the window" in found.text) == (level is not Severity.GOOD)


def test_the_paces_of_guests_are_told_beside_their_start(run):
    common = {"duration_ns": run.result.window.duration_ns, "ios": 1, "bytes": 1, "latency_sum_ns": 1}
    clients = tuple(
        Client(host=f"initiator {number}", started_after_ns=0, clock_error_ns=1, pace=pace, **common)
        for number, pace in ((1, 0.57), (2, 0.26))
    )
    text = finding(changed(run, clients=clients), "skew").text
    assert text.endswith("; each guest's clock had a pace of its own, 0.26 to 0.57 of the host's")


def test_a_busy_generator_is_noted_not_condemned(run):
    full = with_part(run, run.result.cpu.initiator, busy_ns=run.result.window.duration_ns)
    assert finding(full, "generator").level is Severity.NOTE
    for polling in ("auto", "always"):
        polls = changed(full, facts=full.result.facts.model_copy(update={"polling": polling}))
        assert finding(polls, "generator").level is Severity.UNKNOWN


def beside_own_target(run, share):
    """The run with a rate that is this share of its initiator's rate on iotax's own target."""
    reached_iops = share and run.result.rate_iops / share
    facts = run.result.facts.model_copy(update={"own_target_rate_iops": reached_iops})
    return changed(run, facts=facts)


@pytest.mark.parametrize(
    ("share", "level"), [(0.3, Severity.GOOD), (0.79, Severity.GOOD), (0.81, Severity.NOTE), (1.5, Severity.NOTE)]
)
def test_a_rate_near_what_the_initiator_reaches_on_an_own_target_is_noted(run, share, level):
    idle = with_part(run, run.result.cpu.initiator, busy_ns=run.result.window.duration_ns // 2)
    found = finding(beside_own_target(idle, share), "generator")
    assert found.level is level
    reaches, here = show_rate(run.result.rate_iops / share), show_rate(run.result.rate_iops)
    said = {Severity.GOOD: "its processor was 50 % busy;", Severity.NOTE: "the initiator may be the bottleneck:"}[level]
    assert found.text == (
        f"{said} it reaches {reaches} IOPS on iotax's own target on the same machine under the same load, and {here} "
        "here"
    )


def test_without_a_rate_on_an_own_target_only_the_busy_share_counts(run):
    for none in (None, 0):
        assert finding(beside_own_target(run, none), "generator") == finding(run, "generator")
        assert near_own_target(beside_own_target(run, none)) is None


def test_a_rate_far_below_clears_an_initiator_that_polls_but_none_that_was_busy(run):
    full = beside_own_target(with_part(run, run.result.cpu.initiator, busy_ns=run.result.window.duration_ns), 0.3)
    assert finding(full, "generator").text == "its processor was 100 % busy: the initiator bounds the throughput"
    polls = changed(full, facts=full.result.facts.model_copy(update={"polling": "always"}))
    assert finding(polls, "generator").level is Severity.GOOD
    assert finding(polls, "generator").text.startswith("it reaches ")


def test_people_are_told_of_runs_that_the_initiator_may_have_limited():
    data = with_facts(Simulation().data(study()), own_target_rate_iops=1.0)
    summary, count = summarise(data), len(data.runs)
    said = next(each.text for each in trust(summary) if each.subject == "generator")
    assert said.startswith(f"The initiator may be the bottleneck in {count} of {count} runs: ")
    assert f", the initiator may limit {count}" in validity(summary)
    far = summarise(with_facts(data, own_target_rate_iops=1e9))
    assert "generator" not in {each.subject for each in trust(far)}
    assert "initiator" not in validity(far)


def test_steady_state():
    data = Simulation(unsteady=["iscsi/8/r1"]).data(study())
    bad = next(r for r in data.runs if r.trial.id == "iscsi/8/r1")
    assert finding(bad, "steady").level is Severity.DOUBTFUL
    short = changed(bad, series=bad.result.series[:4])
    assert finding(short, "steady").text == "too short to say"
    fine = next(r for r in data.runs if r.trial.id == "iscsi/8/r2")
    assert finding(fine, "steady").level is Severity.GOOD


def test_the_weightiest_finding_of_a_cell_says_how_many_runs_have_it(run):
    checks = run.result.checks.model_copy(update={"run_queue_wait": 0.12})
    worst = worst_of([check_run(r) for r in (run, changed(run, checks=checks), run)])
    assert next(c.text for c in worst if c.key == "wait") == "12.0 % of the window (1 of 3 runs)"


def test_rounds_cover_the_whole_window():
    assert rounds_of([9, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]) == [1, 2, 3, 4, 5]
    assert rounds_of([1, 2, 3]) == []


def test_mser_cuts_the_warm_up_and_refuses_to_cut_half():
    assert mser5([100.0] * 10 + [10.0, 10.1] * 20) == 10
    assert mser5([10.0, 10.1] * 25) == 0
    assert mser5([float(x) for x in range(100)]) is None
    assert mser5([1.0] * 10) is None


def test_a_warm_up_that_reached_into_the_window_is_noted_with_what_it_changes():
    rng = np.random.default_rng(1)
    settled = 1000 + 10 * rng.standard_normal(100)
    early = np.concatenate((np.full(10, 800.0), settled))
    found = steady_state(early)
    assert found.label is Label.STEADY
    assert found.warmup_more == 10
    assert found.warmup_bias == pytest.approx(0.2 * 10 / 110, rel=0.1)
    assert found.warmup_too_short


def test_a_warm_up_that_was_too_short_says_how_much_more_would_do(run):
    ios = [*([800] * 10), *(1000 + number % 5 for number in range(100))]
    series = [run.result.series[0].model_copy(update={"reads": each, "writes": 0}) for each in ios]
    window = run.result.window.model_copy(update={"duration_ns": 55_000_000_000})
    found = finding(changed(run, series=series, window=window), "steady")
    assert found.text == "steady, but the warm-up was too short: it changes the mean by 1.8 %; 5.0 s more would do"


def test_steady_noise_is_rarely_called_a_warm_up():
    rng = np.random.default_rng(2)
    alarms = [steady_state(1000 + 20 * rng.standard_normal(100)).warmup_too_short for _ in range(200)]
    assert sum(alarms) <= 10


def test_too_short_a_series_has_no_steady_state_to_speak_of():
    assert steady_state([1, 2, 3, 4]).label is Label.UNKNOWN


def with_rules(rules, **how):
    return Simulation(**how).data(study(exclude=rules))


def test_a_study_leaves_out_what_its_rules_name_and_says_so():
    data = with_rules(["data"], wrong_data=["iscsi/8/r1", "nfs3/1/r2"])
    assert [each.run.trial.id for each in data.excluded if each.findings[0].key == "data"] == [
        run.trial.id for run in data.measured if run.trial.id in ("iscsi/8/r1", "nfs3/1/r2")
    ]
    assert len(data.runs) == len(data.measured) - 2
    summary = summarise(data)
    assert sum(len(cell.runs) for cell in summary.cells) == 34
    finding = next(f for f in trust(summary) if f.subject == "excluded")
    assert finding.text.startswith("2 of 36 measured runs are excluded")
    assert "iscsi/8/r1 (data)" in finding.text
    assert any("without them" in line and "with them" in line for line in finding.details)
    assert sum(len(cell.runs) for cell in summary.unexcluded.cells) == 36
    assert trust(summary)[0].text.startswith("36 of 36")


def test_without_rules_a_bad_run_is_shown_but_stays():
    data = with_rules([], wrong_data=["iscsi/8/r1"])
    assert not data.excluded
    assert len(data.runs) == 36
    assert summarise(data).unexcluded is None


def test_rules_name_every_check_of_a_run():
    from typing import get_args

    from iotax.analysis.validity import TITLES
    from iotax.study.fields import Rule

    assert set(get_args(Rule)) == set(TITLES) - {"noise"}


def test_a_cell_known_less_well_than_the_margin_is_noted():
    summary = summarise(Simulation(run_cv=0.2).data(study()))
    noisy = next(c for c in summary.cells[4].checks if c.key == "noise")
    assert noisy.level is Severity.NOTE
    assert noisy.text.endswith("the margin is 5 %")
    quiet = summarise(Simulation(run_cv=0.001, block_cv=0.001).data(study()))
    assert next(c for c in quiet.cells[4].checks if c.key == "noise").level is Severity.GOOD
    assert "Noise floor: runs of one treatment scatter by" in trust(summary)[-1].text


def over(policy, even, *ios):
    return Paths(policy=policy, even=even, used=[PathUse(name=f"sd{i}", ios=n, bytes=0) for i, n in enumerate(ios)])


def test_a_policy_that_promises_balance_is_held_to_it(run):
    assert finding(run, "balance").level is Severity.GOOD
    assert finding(changed(run, paths=over("round-robin", True, 500, 520)), "balance").level is Severity.GOOD
    uneven = finding(changed(run, paths=over("round-robin", True, 1000, 0)), "balance")
    assert (uneven.level, uneven.text) == (Severity.DOUBTFUL, "round-robin: sd0 100 %, sd1 0 %")
    assert finding(changed(run, paths=over("fixed", False, 1000, 0)), "balance").level is Severity.GOOD
    assert finding(changed(run, paths=over("fixed", False, 0, 0)), "balance").level is Severity.UNKNOWN


def test_a_path_that_no_event_failed_makes_a_run_doubtful(run):
    lost = PathUse(name="10.0.0.5", ios=600, bytes=0, losses=2, lost=8, down_ns=1_500_000_000)
    other = PathUse(name="10.0.1.5", ios=400, bytes=0)
    paths = Paths(policy="fixed", even=False, used=[lost, other])
    found = finding(changed(run, paths=paths), "balance")
    assert found.level is Severity.DOUBTFUL
    assert "a path was lost that no event failed" in found.text
    assert "10.0.0.5 60 % (lost 2 times, down 1.5 s), 10.0.1.5 40 %" in found.text
    failed = Happened(what="fail path 1", asked_ns=0, began_ns=0, undone_ns=1)
    assert finding(changed(run, paths=paths, events=(failed,)), "balance").level is Severity.GOOD


def test_a_path_that_refused_io_without_an_event_makes_a_run_doubtful(run):
    refused = PathUse(name="10.0.0.5", ios=600, bytes=0, refused=3)
    paths = Paths(policy="fixed", even=False, used=[refused, PathUse(name="10.0.1.5", ios=400, bytes=0)])
    found = finding(changed(run, paths=paths), "balance")
    assert found.level is Severity.DOUBTFUL
    assert "refused I/O on a path that no event made inaccessible" in found.text
    assert "10.0.0.5 60 % (3 I/Os refused), 10.0.1.5 40 %" in found.text
    happened = Happened(what="make path 1 inaccessible", asked_ns=0, began_ns=0, undone_ns=1)
    assert finding(changed(run, paths=paths, events=(happened,)), "balance").level is Severity.GOOD


def modelled(late_sum_ns, told=1000):
    return ModelledMedia(
        operations=2000, busy_ns=2_000_000_000, told=told, late_sum_ns=late_sum_ns, late_max_ns=late_sum_ns
    )


def test_media_that_are_a_model_are_noted_where_their_operations_end_late(run):
    assert finding(run, "media").level is Severity.GOOD
    assert finding(changed(run, media=modelled(20_000_000)), "media").level is Severity.GOOD
    late = finding(changed(run, media=modelled(80_000_000)), "media")
    assert late.level is Severity.NOTE
    assert late.text.startswith("operations ended 80.0 µs late on average, 80000 µs at most: 8.0 %")
    assert late.text.endswith("from connecting to the end, warm-up included")
    assert finding(changed(run, media=modelled(0, told=0)), "media").level is Severity.GOOD
