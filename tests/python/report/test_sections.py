"""Sections that exist only if the notebook has data for them, and their text."""

import re
from dataclasses import replace

import pytest

from iotax import report
from iotax.analysis import StudyData, summarise
from iotax.analysis.effects import effects, residuals
from iotax.collected import study_data
from iotax.notebook import Notebook
from iotax.report.page import Page
from iotax.report.sections import generators
from iotax.report.sections.percentiles import direction_groups
from iotax.report.sections.search import columns, groups, lead
from iotax.report.sections.validity import checked, limits_of, validity_rows
from iotax.report.sections.verdict import span
from iotax.trial import ModelledMedia
from report.factory import OPEN, PATHS, SWEEP, Simulation, study, write_notebook


def written(data: StudyData, tmp_path) -> tuple[str, set[str]]:
    """The page and the names of its charts."""
    with Notebook(write_notebook(tmp_path / "n.iotax", data)) as notebook:
        page = report.write(notebook, tmp_path / "r.html").read_text(encoding="utf-8")
        return page, {drawing.name for drawing in Page(summarise(study_data(notebook)), "n.iotax").drawings}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    data = Simulation().data(study(**SWEEP))
    return summarise(data), *written(data, tmp_path_factory.mktemp("sweep"))


@pytest.fixture(scope="module")
def rates(tmp_path_factory):
    data = Simulation().data(study(**OPEN))
    return summarise(data), *written(data, tmp_path_factory.mktemp("open"))


@pytest.mark.slow
def test_a_sweep_of_sizes_is_log_log_with_a_panel_of_ratios(sweep):
    _, page, names = sweep
    assert "Both axes are logarithmic." in page
    assert "iops-over-block-size-random-0-read-100" in names
    assert "ratio-iops-over-block-size-random-0-read-100" in names
    assert "ratio-iops" not in names  # 32 rows would be too many for a chart
    assert "achieved-over-offered" not in names


def test_names_in_backticks_are_set_as_code_and_nothing_else_of_a_question_becomes_markup(tmp_path):
    data = Simulation().data(study(question="Is `nfs3` <b>faster</b> & within 5 %?"))
    page, _ = written(data, tmp_path)
    assert "<h1>Is <code>nfs3</code> &lt;b&gt;faster&lt;/b&gt; &amp; within 5\u00a0%?</h1>" in page


def test_latency_of_reads_and_of_writes_stands_apart_under_mixed_loads_only(tmp_path, sweep):
    mixed = Simulation().data(study(factors={"protocol": ["iscsi", "nfs3"], "read": ["0%", "50%", "100%"]}))
    shown = direction_groups(summarise(mixed))
    assert [group.condition for group in shown] == ["Read 50%"]
    assert all(figure.value != "–" and figure.interval for row in shown[0].rows for figure in row.figures)
    page, _ = written(mixed, tmp_path)
    assert "Reads and writes separately" in page
    _, pure, _ = sweep
    assert "Reads and writes separately" not in pure


@pytest.mark.slow
def test_rows_of_ratios_name_their_whole_condition(tmp_path):
    """Names of factors are left out where there is no space; a level is never cut."""
    factors = {
        "protocol": ["iscsi", "nvme-tcp"],
        "block_size": ["4KiB", "16KiB", "64KiB"],
        "read": ["0%", "50%", "100%"],
    }
    data = Simulation().data(study(factors=factors, responses=["iops"]))
    with Notebook(write_notebook(tmp_path / "n.iotax", data)) as notebook:
        report.write(notebook, tmp_path / "r.html", tmp_path / "charts")
    drawn = re.findall(r">([^<>]+)</text>", (tmp_path / "charts" / "ratio-iops.svg").read_text(encoding="utf-8"))
    assert not [text for text in drawn if "…" in text]
    assert {f"{size} · read {read}" for size in factors["block_size"] for read in factors["read"]} <= {*drawn}
    assert "100" in drawn


def test_what_is_too_many_panels_for_a_page_is_drawn_as_files(sweep):
    summary, page, names = sweep
    assert len(summary.grid.conditions) == 16
    assert "4 further panels are drawn by" in page
    assert len([name for name in names if name.startswith("latency-percentiles")]) == 16


def test_effects_are_ratios_of_levels_and_have_the_simulated_size(sweep):
    summary, _, names = sweep
    assert {"effects-iops", "residuals-iops-fitted", "residuals-iops-order", "residuals-iops-normal"} <= names
    found = effects(summary.models["latency"])
    [size] = [each for each in found if (each.arm, each.level) == ("iscsi", "16KiB")]
    assert (size.ratio.low or 0) < 1.5 < (size.ratio.high or 0)  # 25 % more for each doubling of the block size
    [mix] = [each for each in found if (each.arm, each.factor) == ("iscsi", "random")]
    assert (mix.ratio.low or 0) < 1 < (mix.ratio.high or 0)
    left = residuals(summary.models["latency"])
    assert len(left) == len(summary.data.runs)
    assert abs(sum(each.normal for each in left)) < 1e-6
    assert max(abs(each.share) for each in left) < 0.2


def test_an_open_loop_shows_response_service_and_what_was_held(rates):
    _, page, names = rates
    expected = {"mean-over-offered-rate", "p99-over-offered-rate", "achieved-over-offered", "backlog-over-offered"}
    assert expected <= names
    assert "Open loop: response over the offered rate" in page
    assert "From when an I/O was due to completion" in page
    assert not any(name.startswith(("throughput-against", "latency-over")) for name in names)


def test_the_shift_function_has_a_panel_for_each_condition(tmp_path):
    page, names = written(Simulation().data(study()), tmp_path)
    assert {f"latency-shift-outstanding-{n}" for n in (1, 8, 32)} <= names
    assert re.search(r"NFSv3, p50: 1\d\d\.\d \(", page)


@pytest.mark.slow
def test_runs_left_out_by_rule_are_listed(tmp_path):
    data = Simulation(unsteady=["iscsi/8/r2"]).data(study(exclude=["steady"]))
    page, _ = written(data, tmp_path)
    assert "Runs excluded by rule" in page
    assert "iscsi/8/r2" in page.partition("Runs excluded by rule")[2]


def test_a_search_says_what_it_found():
    changes = {
        "factors": {"protocol": ["nfs3", "iscsi"], "outstanding": [1, 8]},
        "search": {"latency_max": "200us", "percentile": 50},
    }
    summary = summarise(Simulation().data(study(**changes)))
    assert [line.partition(":")[0] for line in lead(summary)] == ["NFSv3", "iSCSI"]
    [group] = groups(summary)
    assert [row.note for row in group.rows] == ["8 outstanding", "8 outstanding"]
    assert all(len(row.figures) == len(columns(summary)) for row in group.rows)


def test_winners_run_afresh_have_intervals_and_a_ratio():
    changes = {
        "factors": {"protocol": ["nfs3", "iscsi"], "outstanding": [1, 8]},
        "search": {"latency_max": "200us", "percentile": 50},
    }
    data = Simulation().data(study(**changes))
    again = [
        each.model_copy(
            update={
                "trial": each.trial.model_copy(update={"id": each.trial.id.replace("/r", "/confirm "), "replicate": 0})
            }
        )
        for each in data.attempts
        if each.trial.treatment["outstanding"] == 8
    ]
    summary = summarise(StudyData(data.study, [*data.attempts, *again], data.planned))
    [group] = groups(summary)
    nfs, iscsi = group.rows
    rates = [each.result.rate_iops for each in again if each.trial.treatment["protocol"] == "iscsi"]
    low, high = (float(end.replace(",", "")) for end in iscsi.figures[0].interval.split("–"))
    assert low < min(rates) < max(rates) < high
    assert [figure.value for figure in (nfs.figures[2], iscsi.figures[1])] == ["3 of 3", "–"]
    low, high = map(float, nfs.figures[1].interval.split("–"))
    assert low < float(nfs.figures[1].value) < high < 100


@pytest.mark.slow
def test_generators_are_compared_where_the_study_varies_them(tmp_path):
    of = study(
        factors={"protocol": {"disk": "/tmp/disk.img"}, "generator": ["iotax", "fio"], "outstanding": [1, 8]},
        baseline={"protocol": "disk"},
    )
    paths = {"disk": PATHS["nvme-tcp"]}
    data = Simulation(run_cv=0.01, paths=paths).data(of)
    group, latency = generators.groups(summarise(data))
    assert [each.condition for each in (group, latency)] == [
        "Throughput (IOPS)",
        "Mean latency (µs)",
    ]
    assert [row.note for row in group.rows] == ["outstanding 1", "outstanding 8"]
    assert len(group.rows[0].figures) == len(generators.columns(summarise(data)))
    low, high = map(float, group.rows[0].figures[2].interval.split("–"))
    assert low < 100 < high
    page, _ = written(data, tmp_path)
    assert "Generator against generator" in page


def asked(page: str) -> dict[str, tuple[str, str]]:
    """Checklist item → its answer and reason."""
    found = re.findall(r'<li class="(\w+)"><b>[^<]*</b><span>([^<]*)<small>([^<]*)</small>', page)
    return {ask: (answer, because) for answer, ask, because in found}


def test_the_checklist_answers_by_what_was_run(rates, sweep, tmp_path):
    closed, _ = written(Simulation().data(study()), tmp_path)
    lists = [asked(page) for page in (rates[1], sweep[1], closed)]
    assert [len(each) for each in lists] == [20, 20, 20]
    loops = [each["Open or closed loop is stated"][1].partition(":")[0] for each in lists]
    assert loops == ["Open loop, constant arrivals", "Closed loop of 32 I/Os", "Closed loop of 1, 8, 32 I/Os"]
    assert [each["Log-log plots with a ratio panel"][0] for each in lists] == ["none", "yes", "none"]
    models = [each["Each model names its assumptions and validation error"][0] for each in lists]
    assert models == ["yes", "partly", "partly"]


def test_a_single_run_of_each_treatment_is_not_called_reproduced(tmp_path):
    page, _ = written(Simulation().data(study(design={"replicates": 1})), tmp_path)
    found = asked(page)
    assert found["Replicated, and the noise floor is known"][0] == "no"
    assert found["Variation by level: I/O, run, block"][0] == "partly"
    assert found["Effect size with its interval before any p-value, and the direction of the ratio"][0] == "partly"


def test_what_limits_a_treatment_is_named_with_its_evidence(rates):
    summary, page, _ = rates
    limits = dict(zip([cell.cell for cell in summary.cells], limits_of(summary), strict=True))
    assert limits["iscsi", "5000"].limiter == "rate"
    assert limits["nfs3", "80000"].limiter == "initiator"  # its limit is 1 I/O per 14 µs
    assert "What limits each treatment" in page


def test_a_span_whose_ends_are_written_alike_is_one_number():
    assert span([0.9471, 1.06, 1.0]) == "95–106"
    assert span([0.9471, 0.9502]) == "95"


def test_modelled_media_have_a_column_where_runs_have_them():
    data = Simulation().data(study())
    media = ModelledMedia(operations=10, busy_ns=1000, told=10, late_sum_ns=900, late_max_ns=100)
    found = [each.result and each.result.model_copy(update={"media": media}) for each in data.attempts]
    attempts = [each.model_copy(update={"result": result}) for each, result in zip(data.attempts, found, strict=True)]
    plain, modelled = summarise(data), summarise(replace(data, attempts=attempts))
    assert [key for key in checked(modelled) if key not in checked(plain)] == ["media"]
    for summary in (plain, modelled):
        assert {len(row.marks) for row in validity_rows(summary)} == {len(checked(summary))}


def test_another_load_generator_is_named_with_its_version(tmp_path) -> None:
    data = Simulation().data(study(**SWEEP))

    def by(name: str, version: str) -> StudyData:
        made = {"generator": name, "engine_version": version}
        attempts = [
            each.model_copy(update={"result": each.result.model_copy(update=made)}) if each.result else each
            for each in data.attempts
        ]
        return replace(data, attempts=attempts)

    for number, (made, said) in enumerate(
        ((data, None), (by("fio", "fio-3.33"), "fio 3.33"), (by("table", ""), "table"))
    ):
        (folder := tmp_path / str(number)).mkdir()
        page, _ = written(made, folder)
        found = re.search(r"Load generator</dt>\s*<dd>([^<]*)</dd>", page)
        assert (found and found[1].strip()) == said
