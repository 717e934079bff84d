"""Whole studies with known effects."""

import math
import re
from dataclasses import replace

import pytest

from iotax.analysis import Severity, Verdict, summarise
from iotax.analysis.compare import Comparison, Overall
from iotax.analysis.estimate import Estimate
from iotax.analysis.responses import IOPS
from iotax.analysis.validity import Check
from iotax.records import CpuUse
from iotax.wording import trust, verdicts
from iotax.wording.verdicts import against_baseline
from report.factory import PATHS, Costs, Simulation, study


@pytest.fixture(scope="module")
def quick():
    return summarise(Simulation().data(study()))


def ratios(summary, key, arm):
    return [c.ratios[key] for c in summary.cells if c.arm == arm]


def test_every_treatment_is_a_cell_in_the_studys_order(quick):
    assert [c.cell for c in quick.cells][:4] == [("local", "1"), ("local", "8"), ("local", "32"), ("nfs3", "1")]
    assert all(len(c.runs) == 3 for c in quick.cells)
    assert quick.grid.x_factor == "outstanding"
    assert quick.grid.baseline_arm == "iscsi"


def test_ratio_finds_the_simulated_cost(quick):
    true = (PATHS["nvme-tcp"].initiator_us + PATHS["nvme-tcp"].target_us) / (
        PATHS["iscsi"].initiator_us + PATHS["iscsi"].target_us
    )
    for comparison in ratios(quick, "cpu", "nvme-tcp"):
        assert comparison.verdict is Verdict.BETTER
        assert comparison.ratio.value == pytest.approx(true, rel=0.06)
    overall = next(o for o in quick.overalls if o.arm == "nvme-tcp" and o.response.key == "cpu")
    assert overall.comparison.ratio.low <= true <= overall.comparison.ratio.high
    assert not overall.depends


def test_throughput_ratio_that_depends_on_the_load_has_no_overall_answer(quick):
    overall = next(o for o in quick.overalls if o.arm == "nfs3" and o.response.key == "iops")
    assert overall.interaction_p < 0.01
    assert overall.depends
    finding = next(f for f in verdicts(quick) if f.subject == "NFSv3" and "IOPS" in f.text)
    assert re.match(
        r"NFSv3 delivers fewer IOPS than iSCSI under every load: "
        r"from \d+ % fewer with 32 outstanding I/Os \(95 % CI −\d+ % to −\d+ %\) "
        r"to [\d.]+ % fewer with 1 outstanding I/O \(",
        finding.sentence,
    )
    assert len(finding.details) == 3


def test_no_overall_winner_where_the_sign_flips():
    # Low path latency but a slow bottleneck: ahead when idle, behind under load.
    crossing = {**PATHS, "nfs3": Costs(14.0, 10.0, 8.0, 9.0)}
    summary = summarise(Simulation(paths=crossing, run_cv=0.01).data(study()))
    overall = next(o for o in summary.overalls if o.arm == "nfs3" and o.response.key == "iops")
    assert overall.flips
    finding = next(f for f in verdicts(summary) if f.subject == "NFSv3")
    assert finding.text.startswith("no overall winner")
    assert finding.tone == "inconclusive"


def test_equal_protocols_are_equivalent_not_merely_not_different():
    twins = {**PATHS, "nfs3": PATHS["iscsi"]}
    of = study(design={"replicates": 8, "blocks": "replicate", "seed": 1})
    summary = summarise(Simulation(paths=twins, run_cv=0.01).data(of))
    overall = next(o for o in summary.overalls if o.arm == "nfs3" and o.response.key == "iops")
    assert overall.comparison.verdict is Verdict.EQUIVALENT
    assert "equivalent" in next(f.text for f in verdicts(summary) if f.subject == "NFSv3")


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (
            Verdict.INCONCLUSIVE,
            "no significant difference from iSCSI in IOPS under any load (each 95 % CI within −1.0 % to +11 %)",
        ),
        (
            Verdict.EQUIVALENT,
            "equivalent to iSCSI in IOPS, within the margin under every load (each 95 % CI within −1.0 % to +11 %)",
        ),
        (
            Verdict.BETTER,
            "more IOPS than iSCSI under every load: from 1.0 % more with 1 (95 % CI −1.0 % to +3.0 %) "
            "to 9.0 % more with 32 (95 % CI +7.0 % to +11 %)",
        ),
    ],
)
def test_estimates_that_differ_by_load_are_no_finding_where_no_load_shows_one(verdict, said):
    estimates = {"1": Estimate(1.01, 0.99, 1.03), "32": Estimate(1.09, 1.07, 1.11)}
    found = [Comparison(IOPS, "nvme-tcp", load, ratio, verdict=verdict) for load, ratio in estimates.items()]
    overall = Overall(IOPS, "nvme-tcp", found[0], interaction_p=0.001, flips=False)
    finding = against_baseline(overall, found, "iSCSI", simulated=False)
    assert finding.text == said
    assert finding.tone == verdict.value


def test_tax_is_the_difference_to_local_under_the_same_load(quick):
    for tax in quick.taxes:
        cell = next(c for c in quick.cells if (c.arm, c.condition) == (tax.arm, tax.condition))
        local = next(c for c in quick.cells if (c.arm, c.condition) == ("local", tax.condition))
        latency = cell.values["latency"].value - local.values["latency"].value
        assert tax.latency_us.value == pytest.approx(latency)
        assert tax.latency_us.low < latency < tax.latency_us.high
        assert tax.cpu_us.value == pytest.approx(cell.values["cpu"].value - local.values["cpu"].value)
        lost = 100 * (1 - cell.values["iops"].value / local.values["iops"].value)
        assert tax.throughput_percent.value == pytest.approx(lost)
        assert tax.throughput_percent.low <= lost <= tax.throughput_percent.high
    assert {t.arm for t in quick.taxes} == {"nfs3", "iscsi", "nvme-tcp"}


def test_local_is_shown_relative_to_the_baseline_but_not_judged(quick):
    comparison = ratios(quick, "iops", "local")[0]
    assert comparison.ratio.value > 50
    assert comparison.verdict is None
    assert not any(o.arm == "local" for o in quick.overalls)


def test_latency_of_reads_and_of_writes_is_each_runs_own(quick):
    cell = quick.cells[0]
    for name in ("read", "write"):
        own = [getattr(run.result, name) for run in cell.runs]
        means = [each.latency_sum_ns / each.ios / 1e3 for each in own]
        assert cell.values[f"latency_{name}"].value == pytest.approx(math.prod(means) ** (1 / len(means)))
        tails = [each.percentile_ns(99) / 1e3 for each in own]
        assert cell.values[f"latency_{name}_p99"].value == pytest.approx(math.prod(tails) ** (1 / len(tails)))


def test_merged_histogram_holds_every_io(quick):
    cell = quick.cells[5]
    assert cell.latency.total == sum(run.result.ios for run in cell.runs)


def test_one_run_each_gives_numbers_but_no_verdict():
    summary = summarise(Simulation().data(study(design={"replicates": 1, "blocks": "none", "seed": 1})))
    comparison = ratios(summary, "iops", "nvme-tcp")[0]
    assert comparison.ratio.value > 1
    assert comparison.ratio.low is None
    assert comparison.verdict is None
    text = next(f.text for f in verdicts(summary) if f.subject == "NVMe/TCP")
    assert text == "no comparison with iSCSI in IOPS: too few runs for an interval"


def test_interrupted_study_is_summarised_as_far_as_it_got():
    data = Simulation().data(study())
    part = type(data)(data.study, list(data.attempts)[:15], data.planned, data.backgrounds, data.environment)
    summary = summarise(part)
    assert sum(len(c.runs) for c in summary.cells) == 15
    assert trust(summary)[0].text.startswith("15 of 36")
    assert trust(summary)[0].tone == "warning"


def test_study_without_any_run_is_an_empty_summary():
    data = Simulation().data(study())
    summary = summarise(type(data)(data.study, [], data.planned))
    assert summary.cells == []
    assert verdicts(summary) == []
    assert trust(summary)[0].text.startswith("0 of 36")


def test_failed_attempt_is_counted_and_its_retry_used():
    summary = summarise(Simulation(failed=["iscsi/8/r2"]).data(study()))
    assert sum(len(c.runs) for c in summary.cells) == 36
    assert "1 failed or interrupted attempt is listed" in trust(summary)[0].text


def test_lost_trial_leaves_its_cell_with_fewer_runs():
    summary = summarise(Simulation(lost=["iscsi/8/r2", "iscsi/8/r3"]).data(study()))
    cell = next(c for c in summary.cells if c.cell == ("iscsi", "8"))
    assert len(cell.runs) == 1
    beside = next(c for c in summary.cells if c.cell == ("nfs3", "8"))
    assert beside.ratios["iops"].ratio.low is None
    assert next(c for c in summary.cells if c.cell == ("nfs3", "1")).ratios["iops"].ratio.low is not None


def test_wrong_data_makes_a_cell_invalid():
    summary = summarise(Simulation(wrong_data=["iscsi/8/r2"]).data(study()))
    cell = next(c for c in summary.cells if c.cell == ("iscsi", "8"))
    assert cell.level is Severity.INVALID
    assert any("wrong data" in f.text for f in trust(summary))


def test_without_local_there_is_no_tax():
    factors = {"protocol": ["nfs3", "iscsi"], "outstanding": [1, 8]}
    summary = summarise(Simulation().data(study(factors=factors)))
    assert summary.taxes == []


def test_a_factor_other_than_protocol_may_be_compared():
    factors = {"data_digest": [False, True], "outstanding": [1, 8]}
    of = study(factors=factors, connection={"protocol": "iscsi"}, baseline={"data_digest": False})
    summary = summarise(Simulation().data(of))
    assert summary.grid.arms == ["off", "on"]
    assert summary.grid.baseline_arm == "off"
    assert {o.arm for o in summary.overalls} == {"on"}


def test_target_beyond_reach_is_compared_by_the_initiators_cpu():
    data = Simulation().data(study())
    blind = [
        a.model_copy(
            update={
                "result": a.result.model_copy(
                    update={"cpu": CpuUse([part for part in a.result.cpu if part.role != "target"])}
                )
            }
        )
        for a in data.attempts
    ]
    summary = summarise(type(data)(data.study, blind, data.planned))
    assert [r.key for r in summary.responses] == ["iops", "latency", "cpu_initiator"]
    assert {t.cpu_of.key for t in summary.taxes} == {"cpu_initiator"}


def test_a_name_that_all_treatments_share_is_no_part_of_their_condition():
    shared = {"protocol": ["iscsi"], "media": ["memory", "null"], "outstanding": [8]}
    data = Simulation().data(study(factors=shared, baseline={"media": "memory"}))
    assert {cell.condition for cell in summarise(data).cells} == {"outstanding 8"}


def test_most_of_the_variation_is_explained_by_the_factors(quick):
    shares = {s.factors: s.share for s in quick.shares["iops"]}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares[()] < 0.02


def test_results_without_any_scatter_give_no_false_findings():
    data = Simulation().data(study())
    first = next(a for a in data.attempts if a.trial.treatment["protocol"] == "iscsi")
    same = [a.model_copy(update={"result": first.result}) for a in data.attempts]
    summary = summarise(type(data)(data.study, same, data.planned))
    assert all(o.comparison.verdict is Verdict.EQUIVALENT for o in summary.overalls)
    assert not any(o.depends for o in summary.overalls)


def test_mostly_disturbed_runs_are_said_first_of_all_findings():
    of = study()
    every = [f"{p}/{n}/r{r}" for p in ("nfs3", "iscsi", "nvme-tcp") for n in (1, 8, 32) for r in (1, 2, 3)]
    summary = summarise(Simulation(unsteady=every).data(of))
    assert trust(summary)[1].subject == "disturbed"
    assert "27 of 36 trials were disturbed" in trust(summary)[1].text
    assert not any(f.subject == "disturbed" for f in trust(summarise(Simulation().data(of))))


def test_work_grows_with_arms_not_with_cells_or_responses(monkeypatch):
    """Matrix inverses take most of a summary's time; a study of 1,000 trials needs no more of them than a small one."""
    from iotax.analysis import model, regression, responses

    inverses, read = [], []

    def counted(columns):
        inverses.append(columns.shape)
        return regression.pseudo_inverse(columns)

    of = responses.histogram.of

    def histogram_of(*streams):
        read.append(streams)
        return of(*streams)

    monkeypatch.setattr(model, "pseudo_inverse", counted)
    monkeypatch.setattr(responses.histogram, "of", histogram_of)
    found = {}
    for outstanding in ([1, 8], [1, 2, 4, 8, 16, 32]):
        data = Simulation().data(study(factors={"protocol": ["local", "nfs3", "iscsi"], "outstanding": outstanding}))
        inverses.clear(), read.clear()
        summary = summarise(data)
        assert len(summary.shifts) == len(outstanding)
        assert all(cell.quantiles for cell in summary.cells)
        assert len(read) == len(data.runs)
        found[len(outstanding)] = len(inverses)
    assert found[2] == found[6] <= 12


def test_a_generator_that_is_late_by_itself_is_no_disturbance():
    late = Check("lateness", Severity.DOUBTFUL, "late by 30.0 µs on average, 25.0 % of the response time")
    data = Simulation().data(study())
    checks = {run.trial.id: [late] for run in data.measured}
    found = trust(replace(summarise(data), run_checks=checks))
    assert [f.subject for f in found if f.tone == "warning"] == ["lateness"]


def by_load(**of: tuple[Estimate, Verdict]) -> str:
    """The sentence for a ratio that depends on the load."""
    found = [Comparison(IOPS, "nvme-tcp", load, ratio, verdict=verdict) for load, (ratio, verdict) in of.items()]
    overall = Overall(IOPS, "nvme-tcp", found[0], interaction_p=0.001, flips=False)
    return against_baseline(overall, found, "iSCSI", simulated=False).sentence


def test_loads_of_which_none_differs_are_not_told_as_a_difference():
    said = by_load(
        a=(Estimate(1.3, 0.9, 1.9), Verdict.INCONCLUSIVE),
        b=(Estimate(1.0, 0.99, 1.01), Verdict.EQUIVALENT),
        c=(Estimate(0.9, 0.7, 1.2), Verdict.INCONCLUSIVE),
    )
    assert said == (
        "NVMe/TCP shows no significant difference from iSCSI in IOPS under any load "
        "(each 95 % CI within −30 % to +90 %); equivalent, within the margin, under 1 of them."
    )


def test_a_difference_by_load_names_a_load_that_differs_though_uncertain_ones_lie_further_out():
    said = by_load(
        a=(Estimate(1.9, 0.9, 4.0), Verdict.INCONCLUSIVE),
        b=(Estimate(1.3, 1.2, 1.4), Verdict.BETTER),
        c=(Estimate(0.9, 0.7, 1.2), Verdict.INCONCLUSIVE),
    )
    assert said == (
        "NVMe/TCP shows a difference from iSCSI in IOPS that depends on the load: no significant difference with c "
        "(95 % CI −30 % to +20 %); 30 % more with b (95 % CI +20 % to +40 %)."
    )


def test_a_ratio_that_differs_by_load_gives_both_extremes_each_with_its_own_verdict():
    ratios = {"1": Estimate(1.01, 0.96, 1.06), "32": Estimate(0.59, 0.5, 0.7)}
    verdicts_of = {"1": Verdict.INCONCLUSIVE, "32": Verdict.WORSE}
    found = [Comparison(IOPS, "nvme-tcp", load, ratio, verdict=verdicts_of[load]) for load, ratio in ratios.items()]
    overall = Overall(IOPS, "nvme-tcp", found[0], interaction_p=0.001, flips=False)
    assert against_baseline(overall, found, "iSCSI", simulated=False).sentence == (
        "NVMe/TCP shows a difference from iSCSI in IOPS that depends on the load: 41 % fewer with 32 (95 % CI −50 % to "
        "−30 %); no significant difference with 1 (95 % CI −4.0 % to +6.0 %)."
    )
