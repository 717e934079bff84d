"""CPU model and sizing in a report, compared with the costs that the simulation put in."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.cpu_studies import study3
from iotax import report
from iotax.analysis import summarise
from iotax.analysis.cost import CpuCosts, cpu_costs, service_costs
from iotax.analysis.cpu_model import CpuModel, Curvature
from iotax.analysis.data import Grid
from iotax.analysis.regression import FTest
from iotax.analysis.responses import CPU
from iotax.notebook import Notebook
from iotax.queueing import MMc
from iotax.records import CpuTime, CpuUse
from iotax.report.sections.cost import cost_lead
from iotax.report.sections.sizing import sized_by_sources
from iotax.wording import answer, figure
from iotax.wording.costs import by_rate
from report.factory import COST, PATHS, Simulation, study, write_notebook

# Factors of the simulation's CPU per I/O: 0.75 + 0.5/√outstanding, where outstanding is 1, and 1.25 at 8 KiB.
FACTOR = (0.75 + 0.5) * (1 + 1.25) / 2
TRUE_US = {arm: FACTOR * (PATHS[arm].initiator_us + PATHS[arm].target_us) for arm in ("nfs3", "iscsi")}


@pytest.fixture(scope="module")
def summary():
    return summarise(Simulation(block_cv=0.01).data(study(**COST)))


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("cost")
    with Notebook(write_notebook(folder / "cost.iotax", Simulation(block_cv=0.01).data(study(**COST)))) as opened:
        return report.write(opened, folder / "report.html").read_text(encoding="utf-8")


def test_the_model_finds_what_an_io_costs(summary):
    model = summary.costs.model
    for arm, us in TRUE_US.items():
        cost = model.cost_us(arm)
        assert cost.low < us < cost.high
        assert cost.value == pytest.approx(us, rel=0.03)
    assert model.ratio("nfs3", "iscsi").value == pytest.approx(TRUE_US["nfs3"] / TRUE_US["iscsi"], rel=0.02)
    assert model.idle == len(summary.data.backgrounds)
    assert set(summary.costs.models) == {"cpu", "cpu_initiator", "cpu_target", "cpu_machine"}


def test_the_whole_machine_has_a_background_and_the_processes_have_none(summary):
    machine = summary.costs.models["cpu_machine"]
    assert machine.background_p < 0.05
    assert machine.background_cores.low < 0.04 < machine.background_cores.high
    assert abs(summary.costs.model.background_cores.value) < 1e-3


def test_a_closed_loop_gives_no_model_but_means_to_size_by():
    data = Simulation().data(study())
    assert cpu_costs(data, Grid(data.study)) is None
    costs = {each.arm: each for each in summarise(data).sizing(70_000).costs}
    assert set(costs) == {"nfs3", "iscsi", "nvme-tcp"}
    assert costs["nfs3"].cost_us.low < costs["nfs3"].cost_us.value < costs["nfs3"].cost_us.high
    assert "the measured load nearest to 70,000 IOPS (outstanding 8, " in costs["nfs3"].source


def test_each_cost_says_that_most_of_its_runs_are_doubtful(summary):
    assert not any("doubtful" in said for said in cost_lead(summary))
    of = summary.data.study
    iscsi = [each.trial.id for each in summary.data.attempts if each.trial.treatment["protocol"] == "iscsi"]
    base = cost_lead(summarise(Simulation(block_cv=0.01, waiting=iscsi).data(of)))[0]
    assert f"; but all {len(iscsi)} runs are doubtful (waiting for a processor" in base


def test_the_first_screen_begins_with_the_price_at_the_held_rates(summary):
    first = answer(summary)[0]
    assert first.title == "What each I/O costs at the rates of the study"
    base, other = (each.sentence for each in first.findings)
    assert re.fullmatch(r"iSCSI costs [\d.]+ µs \(95 % CI [\d.]+ to [\d.]+\) of CPU per I/O\.", base)
    assert re.search(r"^NFSv3 costs .* of CPU per I/O, [\d.]+ times iSCSI’s \(95 % CI [\d.]+ to [\d.]+\)\.$", other)


def test_a_price_that_follows_the_rate_is_said_with_both_ends():
    bends = [Curvature("nfs3", 1000, 153.2, 4000, 98.6), Curvature("iscsi", 1000, 150, 4000, 99.9)]
    bent = SimpleNamespace(linearity=FTest(35.2, 2, 223), bends=True, curvatures=bends)
    straight = SimpleNamespace(linearity=FTest(1.1, 2, 223), bends=False, curvatures=bends)
    measured, simulated = (SimpleNamespace(simulated=each, costs_drawn=False) for each in (False, True))
    [said] = by_rate(SimpleNamespace(costs=SimpleNamespace(model=bent), data=measured))
    assert said.text == (
        "The cost depends on the rate (p < 0.001), so these are the cost of each further I/O; over all I/Os "
        "NFSv3 153 µs at 1,000 IOPS and 98.6 µs at 4,000; "
        "iSCSI 150 µs at 1,000 IOPS and 99.9 µs at 4,000"
    )
    assert not by_rate(SimpleNamespace(costs=SimpleNamespace(model=straight), data=measured))
    [said] = by_rate(SimpleNamespace(costs=SimpleNamespace(model=bent), data=simulated))
    assert said.text.startswith("The cost depends on the rate, so these are"), "seeds give no probability"


def test_the_reasons_for_doubt_do_not_say_the_baseline_twice(summary):
    waiting = [each.trial.id for each in summary.data.attempts]
    found = answer(summarise(Simulation(block_cv=0.01, waiting=waiting).data(summary.data.study)))
    [why] = [part for part in found if part.title == "Why doubtful"]
    assert [each.sentence.partition(":")[0] for each in why.findings] == ["NFSv3 against iSCSI"]


def test_the_page_answers_with_cost_ratio_cores_and_what_to_doubt(page):
    cost = page[page.index('<section id="cost"') : page.index('<section id="validity"')]
    text = re.sub(r"\s+", " ", re.sub(r"<svg.*?</svg>|<[^>]+>", " ", cost, flags=re.DOTALL)).replace("\u00a0", " ")
    for said in (
        "of CPU per I/O",
        "times iSCSI’s",
        "Background",
        "Linear in IOPS",
        "Lack of fit",
        "PRESS",
        "70,000 IOPS",
        "≤ 80 % busy",
        "With 500 µs in the storage",
    ):
        assert said in text
    assert cost.count('class="panel"') == 2 + 2 + 1 + 3 + 3
    assert re.search(r"busy processors = −?0\.\d{4} \+ IOPS × \([\d.]+ [+−] [\d.]+ \[block size 8KiB\]", text)
    assert "is +1 at the level named and −1 at the other" in text


def test_cores_of_a_source_are_shown_with_what_they_would_do():
    figures = [
        {"of": {"protocol": "nfs3"}, "absolute": 81, "cores": 6},
        {"of": {"protocol": "iscsi"}, "absolute": 41, "cores": 3, "called": "Fibre Channel"},
    ]
    source = {"source": "A blog, 2014", "response": "cpu_per_io", "rate_iops": 70_000, "figures": figures}
    [sized] = sized_by_sources(summarise(Simulation(block_cv=0.01).data(study(**COST | {"published": [source]}))))
    nfs, fc = sized.groups[0].rows
    # 70,000 × 81 µs are 5.67 of 6 cores, and 70,000 × 41 µs 2.87 of 3.
    assert [[each.value for each in row.figures] for row in (nfs, fc)] == [
        ["81.0", "6", "94 %", figure(MMc(70_000, 81e-6, 6).response_s * 1e6), "8"],
        ["41.0", "3", "96 %", figure(MMc(70_000, 41e-6, 3).response_s * 1e6), "4"],
    ]
    assert fc.note == "published as Fibre Channel"
    assert "at 4.53 % more load" in sized.note
    assert not sized_by_sources(summarise(Simulation(block_cv=0.01).data(study(**COST))))


def test_fewer_cores_than_the_load_have_no_response():
    figures = [{"of": {"protocol": "nfs3"}, "absolute": 81, "cores": 5}]
    source = {"source": "A blog, 2014", "response": "cpu_per_io", "rate_iops": 70_000, "figures": figures}
    [sized] = sized_by_sources(summarise(Simulation(block_cv=0.01).data(study(**COST | {"published": [source]}))))
    assert sized.groups[0].rows[0].figures[3].value == "no bound"
    assert "Do not size so" not in sized.note


@pytest.mark.parametrize(("change", "sized"), [(1.05, True), (1.3, False)])
def test_a_cost_that_hardly_changes_with_the_rate_is_sized_by_at_rates_beyond(change, sized):
    bent = study3(np.random.default_rng(7), rates=(1000, 2500, 4000), bend=-(1 - 1 / change), cv=0.002, block_cv=0.002)
    costs = CpuCosts({"cpu": CpuModel(bent)}, CPU, idle_runs=False)
    assert costs.model.linearity.p < 0.05
    found = service_costs(costs, {}, Grid(study(**COST)), 70_000)
    assert bool(found.costs) == sized
    if sized:
        assert "is taken to be the same at 70,000" in found.costs[0].source


def test_one_machine_that_holds_both_ends_is_fitted_with_its_idle_time():
    """Its figures exclude idle CPU. The fit adds it again, because idle measurements are part of the fit."""
    said = study(**COST | {"lab": {"vm": {"clock": "icount", "guests": 1}}})
    data = Simulation(block_cv=0.01).data(said)
    idle_cores = 0.04

    def both(attempt):
        whole = attempt.result.cpu.part("both")
        idle_ns = round(idle_cores * attempt.result.window.duration_ns)
        gross = whole.model_copy(update={"busy_ns": whole.busy_ns + idle_ns, "background_ns": idle_ns})
        return attempt.model_copy(update={"result": attempt.result.model_copy(update={"cpu": CpuUse([gross])})})

    part = CpuTime(role="both", layer="guest", busy_ns=40_000_000)
    backgrounds = [each.model_copy(update={"cpu": CpuUse([part])}) for each in data.backgrounds]
    model = summarise(
        replace(data, attempts=[both(each) for each in data.attempts], backgrounds=backgrounds)
    ).costs.model
    assert model.idle == len(backgrounds)
    assert model.idle_cores == pytest.approx(idle_cores)
    assert model.background_cores.value == pytest.approx(idle_cores, rel=0.05)
