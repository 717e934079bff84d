"""Published figures next to measured ones, compared with the costs that the simulation put in."""

import math
import re
from dataclasses import replace

import pytest

from iotax import report
from iotax.analysis import Estimate, StudyData, Summary, summarise
from iotax.analysis.published import Source, agreement_of
from iotax.cli.summary import run_document
from iotax.collected import study_data
from iotax.notebook import Notebook
from iotax.records.cpu import CpuTime, CpuUse
from iotax.report.charts import published_figures
from iotax.report.page import Page
from iotax.report.sections import published
from iotax.study.published import Published
from iotax.trial import Attempt
from iotax.wording.published import agreement as said_of_agreement
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
    assert base.agreement == "lower"  # 41 µs against about 11 µs
    # This source has a baseline of its own, on a factor that the study's baseline leaves out. In the simulation an I/O
    # of 8 KiB takes 25 % longer.
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
        names = {drawing.name for drawing in Page(summarise(study_data(notebook)), "n.iotax").drawings}
    for word in ("Published and measured", "Somebody, 2014. Other parts.", "published as Fibre Channel", "ours higher"):
        assert word in text
    assert {"published-1-cpu-initiator-relative", "published-1-cpu-initiator-absolute"} <= names


def test_a_study_without_published_figures_has_no_such_section(tmp_path):
    data = Simulation().data(study())
    with Notebook(write_notebook(tmp_path / "p.iotax", data)) as notebook:
        assert 'id="published"' not in report.write(notebook, tmp_path / "r.html").read_text(encoding="utf-8")


def test_relative_utilisation_is_judged_at_equal_rates_only():
    """Fewer I/Os at the same utilisation cost more each, so the ratio of utilisations says nothing about costs."""

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
    assert "not judged: utilisation compares costs only at equal rates" in said


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
    """The same attempt at this rate, with the initiator's processors busy for this share."""
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


def of_loads(data: StudyData, response: str = "iops", **more: object) -> Summary:
    """Published by block size and direction, like a source whose bars are loads."""
    figures = [
        {"of": {"protocol": "nfs3", "block_size": size, "read": read}, "relative": [80, 120]}
        for size in ("4KiB", "8KiB")
        for read in ("0%", "100%")
    ]
    of = data.study.model_copy(update={"published": [Published.model_validate(
        {"source": "S", "response": response, "figures": figures, **more})]})  # fmt: skip
    return summarise(replace(data, study=of))


@pytest.mark.parametrize("width_px", [336, 516])
def test_bars_stand_by_load_from_zero_with_the_published_range_as_a_band(data, width_px: int):
    summary = of_loads(data, "latency")
    [drawing] = published_figures(summary.sources, {}, "measured", summary.grid.compared)
    spec = drawing.draw(width_px)
    ours, bands, baseline, reaches = spec["layer"][:4]
    assert len(ours["data"]["values"]) == len(bands["data"]["values"]) == len(reaches["data"]["values"]) == 4
    assert all(row["y"] == 0.0 for row in ours["data"]["values"])
    assert {(row["y"], row["y2"]) for row in bands["data"]["values"]} == {(80.0, 120.0)}
    assert baseline["data"]["values"] == [{"y": 100}]
    x = ours["encoding"]["x"]["axis"]
    # Every load's label is drawn in full, at any width.
    assert all(load in x["labelExpr"] for load in ("4KiB", "8KiB", "0%", "100%"))
    assert (x["labelLimit"], x["labelOverlap"]) == (0, False)


@pytest.mark.parametrize("width_px", [336, 516])
def test_a_treatment_without_a_load_has_its_name_above_its_bar_at_full_width(data, width_px: int):
    sources = summarise(data).sources
    for drawing in published_figures(sources, {}, "measured", ["protocol"]):
        spec = drawing.draw(width_px)
        names = [layer for layer in spec["layer"] if layer["mark"]["type"] == "text"]
        for row in (row for layer in names for row in layer["data"]["values"]):
            assert names[0]["mark"]["limit"] > width_px - 50, row


def test_our_number_is_made_as_the_source_made_its(data):
    """In a ratio of means, loads weigh by their values; in a geometric mean all weigh alike."""

    def measured(statistic: str) -> float:
        figures = [{"of": {"protocol": "nfs3"}, "relative": 100}]
        of = data.study.model_copy(update={"published": [Published.model_validate(
            {"source": "S", "response": "cpu_initiator", "statistic": statistic, "figures": figures})]})  # fmt: skip
        [figure] = summarise(replace(data, study=of)).sources[0].figures
        assert figure.measured is not None and figure.measured.low is not None
        assert figure.measured.low < figure.measured.value < figure.measured.high
        return figure.measured.value

    model = summarise(data).models["cpu_initiator"]
    cells = [cell for cell in model.grid.cells() if model.grid.arm(cell) == "nfs3"]
    values = {cell: math.exp(model.model.mean(cell)) for cell in model.model.layout.cells}
    tops, bottoms = [values[cell] for cell in cells], [values[model.grid.baseline_of(cell)] for cell in cells]
    ratios = [top / bottom for top, bottom in zip(tops, bottoms, strict=True)]
    assert measured("ratio of means") == pytest.approx(100 * sum(tops) / sum(bottoms))
    assert measured("mean of ratios") == pytest.approx(100 * sum(ratios) / len(ratios))
    assert measured("geometric mean") == pytest.approx(100 * math.prod(ratios) ** (1 / len(ratios)))


@pytest.mark.parametrize(
    ("published_as", "agreement"), [(100, "agrees"), (101, "agrees"), (102, "lower"), (100.4, "higher"), (99, "higher")]
)
def test_a_published_number_is_compared_within_its_rounding(published_as: float, agreement: str):
    """Measured is 100.48 to 100.52: rounding gives 100 or 101, but never 100.4."""
    span = (float(published_as), float(published_as))
    assert agreement_of(span, Estimate(100.5, 100.48, 100.52)) == agreement


def test_the_summary_says_how_many_agree_by_response_and_what_differs_most_and_why(data):
    published_of = [each | {"reason": "other processors"} for each in PUBLISHED]
    of = study(**COST, published=published_of)
    lines = said_of_agreement(summarise(replace(data, study=of)).sources, "measured")
    assert re.search(r"^\d of 4 published figures agree with what was measured: ", lines[0])
    assert "CPU per I/O, initiator against iSCSI 1 of 3" in lines[0]
    assert "mean latency against block size 4KiB 1 of 1" in lines[0]
    assert lines[1] == "The 2 largest differences:"
    assert "published 10.0 to 20.0 (iSCSI = 100)" in lines[2] and lines[2].endswith("Likely reason: other processors.")
    assert "published 41.0 (µs)" in lines[3]


def test_the_document_has_every_figure_and_the_summary(data, tmp_path):
    path = write_notebook(tmp_path / "p.iotax", data)
    with Notebook(path) as notebook:
        found = run_document(notebook, None)["published"]
    assert (found["agree"], found["judged"]) == (2, 4)
    assert [each["response"] for each in found["by_response"]] == ["cpu_initiator", "latency"]
    first = found["sources"][0]["figures"][1]
    assert first["levels"] == {"protocol": "nfs3", "block_size": "8KiB"}
    assert (first["published_relative"], first["agreement"]) == ((10.0, 20.0), "higher")
    assert first["relative"]["low"] > 20


def test_a_study_without_published_figures_has_none_in_its_document(tmp_path):
    with Notebook(write_notebook(tmp_path / "p.iotax", Simulation().data(study()))) as notebook:
        assert run_document(notebook, None)["published"] is None
