"""The CPU model and the sizing in a report, against the costs that the simulation put in."""

import re
from types import SimpleNamespace

import pytest

from iotax import report
from iotax.analysis import summarise
from iotax.analysis.cost import cpu_costs
from iotax.analysis.cpu_model import Curvature
from iotax.analysis.data import Grid
from iotax.analysis.regression import FTest
from iotax.notebook import Notebook
from iotax.report.cost import cost_lead
from iotax.wording import answer
from iotax.wording.costs import by_rate
from report.factory import COST, PATHS, Simulation, study, write_notebook

# The simulation charges 1/√outstanding beside, and 25 % more at 8 KiB.
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
    assert machine.has_background
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
    assert first.title == "What an I/O costs at the held rates"
    base, other = (each.sentence for each in first.findings)
    assert re.fullmatch(r"iSCSI costs [\d.]+ µs \(95 % CI [\d.]+ to [\d.]+\) of CPU per I/O\.", base)
    assert re.search(r"^NFSv3 costs .* of CPU per I/O, [\d.]+ times iSCSI’s \(95 % CI [\d.]+ to [\d.]+\)\.$", other)


@pytest.mark.parametrize(
    ("background", "these"), [(True, "the cost of each further I/O"), (False, "means over the rates")]
)
def test_a_price_that_follows_the_rate_is_said_with_both_ends(background, these):
    bends = [Curvature("nfs3", 1000, 153.2, 4000, 98.6), Curvature("iscsi", 1000, 150, 4000, 99.9)]
    bent = SimpleNamespace(linearity=FTest(35.2, 2, 223), curvatures=bends, has_background=background)
    straight = SimpleNamespace(linearity=FTest(1.1, 2, 223), curvatures=bends)
    [said] = by_rate(SimpleNamespace(costs=SimpleNamespace(model=bent)))
    assert said.text == (
        f"The cost depends on the rate (p < 0.001), so these are {these}; over all I/Os "
        "NFSv3 153 µs at 1,000 IOPS and 98.6 µs at 4,000; "
        "iSCSI 150 µs at 1,000 IOPS and 99.9 µs at 4,000"
    )
    assert not by_rate(SimpleNamespace(costs=SimpleNamespace(model=straight)))


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
    assert cost.count('class="panel"') == 2 + 2 + 3 + 3
