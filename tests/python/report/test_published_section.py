"""Published figures beside measured ones, against the costs that the simulation put in."""

import re
from dataclasses import replace

import pytest

from iotax import report
from iotax.analysis import StudyData, Summary, summarise
from iotax.analysis.published import Source
from iotax.collected import study_data
from iotax.notebook import Notebook
from iotax.records.cpu import CpuTime, CpuUse
from iotax.report import published
from iotax.report.charts import published_figures
from iotax.report.page import draw
from iotax.trial import Attempt
from report.factory import COST, PATHS, Simulation, study, write_notebook

TRUE = 100 * PATHS["nfs3"].initiator_us / PATHS["iscsi"].initiator_us
PUBLISHED = [
    {
        "source": "Somebody, 2014",
        "response": "cpu_initiator",
        "figures": [
            {"of": {"protocol": "nfs3"}, "relative": TRUE, "absolute": 81},
            {"of": {"protocol": "nfs3", "block_size": "8KiB"}, "relative": [10, 20]},
            {"of": {"protocol": "iscsi"}, "absolute": 41, "called": "Fibre Channel"},
        ],
        "remarks": "Other parts.",
    },
    {
        "source": "Somebody else",
        "response": "latency",
        "baseline": {"block_size": "4KiB"},
        "figures": [{"of": {"block_size": "8KiB"}, "relative": 125}],
    },
]


@pytest.fixture(scope="module")
def data():
    return Simulation(block_cv=0.01).data(study(**COST, published=PUBLISHED))


def test_a_figure_is_compared_with_the_same_ratio_of_ours(data):
    cpu, latency = summarise(data).sources
    mean, at_8k, base = cpu.figures
    assert mean.measured is not None
    assert mean.measured.value == pytest.approx(TRUE, rel=0.02)
    assert (mean.agreement, at_8k.agreement) == ("agrees", "higher")
    assert base.is_baseline
    assert base.measured_absolute is not None
    assert base.measured_absolute.low < base.measured_absolute.value < base.measured_absolute.high
    assert base.agreement == "lower"  # 41 µs against about 11
    # A source's own baseline, which the study's does not name: the simulation makes 8 KiB cost a quarter more.
    assert latency.baseline == "block size 4KiB"
    assert latency.figures[0].measured is not None
    assert latency.figures[0].measured.value == pytest.approx(125, rel=0.02)


def test_what_was_not_measured_is_left_open(data):
    of = study(**COST, published=[PUBLISHED[0]])
    kept = [a for a in data.attempts if a.trial.treatment["protocol"] == "iscsi"]
    [source] = summarise(type(data)(of, kept)).sources
    assert source.figures[0].measured is None
    assert source.figures[0].agreement == "unknown"


def test_the_page_cites_the_source_and_shows_both(data, tmp_path):
    with Notebook(write_notebook(tmp_path / "p.iotax", data)) as notebook:
        text = report.write(notebook, tmp_path / "r.html").read_text(encoding="utf-8")
        names = {drawing.name for drawing in draw(summarise(study_data(notebook))).all()}
    for word in ("Published and measured", "Somebody, 2014. Other parts.", "published as Fibre Channel", "ours higher"):
        assert word in text
    assert {"published-1-cpu-initiator-relative", "published-1-cpu-initiator-absolute"} <= names


def test_a_study_without_published_figures_has_no_such_section(tmp_path):
    data = Simulation().data(study())
    with Notebook(write_notebook(tmp_path / "p.iotax", data)) as notebook:
        assert 'id="published"' not in report.write(notebook, tmp_path / "r.html").read_text(encoding="utf-8")


def test_relative_utilisation_is_judged_at_equal_rates_only():
    """Fewer I/Os at the same utilisation cost more each: the ratio of utilisations says nothing of it."""

    def measured(scale: float) -> Summary:
        of = study(
            factors={"protocol": ["nfs3", "iscsi"]},
            published=[
                {
                    "source": "S",
                    "response": "cpu_utilisation_initiator",
                    "figures": [{"of": {"protocol": "nfs3"}, "relative": 100}],
                }
            ],
        )
        made = Simulation(block_cv=0.0).data(of)
        runs = [utilised(each, 0.5, rate * scale if arm == "nfs3" else rate) for each, arm, rate in held(made)]
        return summarise(replace(made, attempts=runs))

    def source(scale: float) -> Source:
        return measured(scale).sources[0]

    assert source(1.0).figures[0].measured.value == pytest.approx(100, rel=1e-6)
    assert source(1.0).response.unit == "%"
    assert [each.agreement for each in (source(1.0).figures[0], source(0.8).figures[0])] == ["agrees", "rates"]
    differing = measured(0.8)
    said = published.words(differing.sources[0], differing.doubt_of(differing.cells), "measured")
    assert "not judged: utilisation compares what I/Os cost at equal rates only" in said


def test_agreement_from_mostly_doubtful_runs_says_so(data):
    every = [each.trial.id for each in data.attempts]
    for simulation, doubtful in ((Simulation(), False), (Simulation(waiting=every), True)):
        summary = summarise(simulation.data(data.study))
        said = published.words(summary.sources[0], summary.doubt_of(summary.cells), "measured")
        assert re.search(r"^\d of \d published figures overlap the measured 95 % intervals", said)
        assert (f"; but all {len(every)} runs are doubtful (waiting for a processor" in said) is doubtful


def test_figures_of_simulated_runs_are_called_simulated(data):
    summary = summarise(data)
    source = summary.sources[0]
    assert published.gained(data) == "measured"
    said = [published.words(source, summary.doubt_of(summary.cells), "simulated")]
    for each in published_figures([source], {}, "simulated"):
        said += [each.description, str(each.draw(700))]
    assert len(said) > 1
    assert all("simulated" in each and "measured" not in each for each in said)


def held(made: StudyData) -> list[tuple[Attempt, str, float]]:
    return [(each, str(each.trial.treatment["protocol"]), 10_000.0) for each in made.attempts]


def utilised(attempt: Attempt, share: float, rate_iops: float) -> Attempt:
    """The same, at this rate and with its initiator's processors busy to this share."""
    result = attempt.result
    assert result is not None
    wobble = 1 + 0.001 * attempt.trial.block
    window_ns = result.window.duration_ns
    initiator = CpuTime(
        role="initiator", layer="guest", busy_ns=round(share * wobble * window_ns), window_ns=window_ns, processors=1
    )
    read = result.read.model_copy(update={"ios": round(rate_iops * wobble * window_ns / 1e9)})
    write = result.write.model_copy(update={"ios": 0})
    return attempt.model_copy(
        update={"result": result.model_copy(update={"cpu": CpuUse([initiator]), "read": read, "write": write})}
    )
