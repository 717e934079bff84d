"""Published figures beside measured ones, against the costs that the simulation put in."""

import pytest

from iotax import report
from iotax.analysis import summarise
from iotax.notebook import Notebook
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
        text = report.write(notebook, tmp_path / "r.html", tmp_path / "charts").read_text(encoding="utf-8")
    for word in ("Published and measured", "Somebody, 2014. Other parts.", "published as Fibre Channel", "ours higher"):
        assert word in text
    assert (tmp_path / "charts" / "published-1-cpu-initiator-relative.svg").exists()
    assert (tmp_path / "charts" / "published-1-cpu-initiator-absolute.svg").exists()


def test_a_study_without_published_figures_has_no_such_section(tmp_path):
    data = Simulation().data(study())
    with Notebook(write_notebook(tmp_path / "p.iotax", data)) as notebook:
        assert 'id="published"' not in report.write(notebook, tmp_path / "r.html").read_text(encoding="utf-8")
