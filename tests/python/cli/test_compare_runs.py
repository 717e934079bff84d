"""Comparisons of two runs, and of one treatment with itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import needed
from faked import FakeEngine
from iotax.analysis import Estimate, Verdict, summarise
from iotax.analysis.change import changes, differences, level_changes, welch
from iotax.cli.aa import _document, _twin
from iotax.cli.app import app
from iotax.cli.loading import load
from iotax.cli.summary import print_summary
from iotax.collected import study_data
from iotax.notebook import Notebook
from iotax.units import show_share
from iotax.wording import span
from iotax.wording.changes import no_regression
from report.factory import PATHS, QUICK, Simulation, study, write_notebook

RUN = CliRunner()
SLOWER = {
    arm: replace(path, service_us=path.service_us * 1.2, think_us=path.think_us * 1.2) for arm, path in PATHS.items()
}
TWINS = study(factors={"protocol": {"A": "iscsi", "B": "iscsi"}}, baseline={"protocol": "A"}, design={"replicates": 8})


def simulated(seed: int, **how):
    return Simulation(seed=seed, block_cv=0.0, **how).data(study(design={"replicates": 5}))


def test_welch_is_the_published_sleep_result():
    """R's `sleep`, extra hours of two drugs: t = -1.8608, df = 17.776."""
    one = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
    two = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    found = welch(two, one)
    assert found.estimate / found.standard_error == pytest.approx(-1.86081, abs=1e-5)
    assert found.df == pytest.approx(17.7765, abs=1e-4)


def test_a_slower_path_is_a_regression_and_the_same_path_is_none():
    before = simulated(1)
    worse = [c for c in changes(before, simulated(2, paths=SLOWER), 5.0).found if c.regressed(5.0)]
    assert {c.response.key for c in worse} == {"iops", "latency"}
    whole = next(c for c in worse if c.response.key == "latency" and not c.treatment)
    assert whole.ratio.low < 1.2 < whole.ratio.high
    same = changes(before, simulated(3), 5.0).found
    assert not any(c.regressed(5.0) for c in same)
    assert Verdict.EQUIVALENT in {c.verdict for c in same}


@pytest.mark.slow
def test_where_no_regression_is_found_it_is_said_whether_one_is_ruled_out():
    said = {}
    for replicates in (5, 40):
        of = study(design={"replicates": replicates})
        one, other = (Simulation(seed=seed, block_cv=0.0).data(of) for seed in (1, 3))
        found = changes(one, other, 5.0).found
        count = sum(each.may_have_regressed(5.0) for each in found)
        assert not any(each.regressed(5.0) for each in found)
        worst = [each.ratio.low if each.response.more_is_better else 1 / each.ratio.high for each in found]
        assert count == sum(each <= 1 / 1.05 for each in worst)
        said[replicates] = (count, len(found), no_regression(found, 5.0))
    count, of_all, words = said[5]
    assert count > 0
    assert (
        words == f"No regression beyond the margin was found, but {count} of {of_all} comparisons cannot rule one out."
    )
    assert said[40][::2] == (0, "No regression beyond the margin.")


def test_a_regression_ends_with_its_code_when_asked(tmp_path: Path):
    a = write_notebook(tmp_path / "a.iotax", simulated(1))
    b = write_notebook(tmp_path / "b.iotax", simulated(2, paths=SLOWER))
    told = RUN.invoke(app, ["compare", str(a), str(b)])
    assert told.exit_code == 0
    said = next(line for line in told.output.splitlines() if line.startswith("Regression (all together)"))
    assert re.search(r"\d+ % (fewer IOPS|more latency) \(95 % CI [−+]\d+ % to [−+]\d+ %\)\.", said), said
    written = tmp_path / "changes.json"
    assert RUN.invoke(app, ["compare", str(a), str(b), "--fail-on-regression", "--json", str(written)]).exit_code == 6
    document = json.loads(written.read_text(encoding="utf-8"))
    worse = [each for each in document["changes"] if each["regression"]]
    assert document["regressions"] == len(worse) > 0
    latency = next(each for each in worse if each["response"] == "latency" and each["treatment"] is None)
    assert latency["low"] < 1.2 < latency["high"]
    assert latency["verdict"] == "worse"
    assert RUN.invoke(app, ["compare", str(a), str(b), "--json", str(tmp_path / "no" / "x.json")]).exit_code == 2
    assert RUN.invoke(app, ["compare", str(b), str(a), "--fail-on-regression"]).exit_code == 0
    unknown = RUN.invoke(app, ["compare", "before", "after", "--notebook", str(a)])
    assert unknown.exit_code == 2
    assert "neither notebooks, nor labels" in unknown.output


@pytest.mark.parametrize(
    ("build", "run", "compare", "said"),
    [(0, 0, 0, 0), (0, 0, 6, 1), (0, 0, 2, 125), (0, 0, 5, 125), (0, 4, 0, 125), (0, 1, 6, 125), (2, 0, 6, 125)],
)
def test_a_step_of_git_bisect_judges_by_regressions_alone(
    tmp_path: Path, build: int, run: int, compare: int, said: int
) -> None:
    """A commit that does not build, does not boot or cannot be compared is skipped. For git, 125 means skip, and most
    other codes mean bad."""
    words = tmp_path / "words"
    program = tmp_path / "bin" / "iotax"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {words}\ncase $1 in run) exit {run};; *) exit {compare};; esac\n')
    program.chmod(0o755)
    around = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    git = [needed.program("git"), "-c", "user.name=n", "-c", "user.email=n@example.org"]
    subprocess.run([*git, "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "one"], cwd=tmp_path, check=True)
    step = Path(__file__).parents[3] / "examples" / "bisect" / "step"
    done = subprocess.run(
        [step, "good", "price.yaml", "b.iotax", "sh", "-c", f"exit {build}"], cwd=tmp_path, env=around, check=False
    )
    assert done.returncode == said
    if build == 0:
        label = words.read_text().split("--label ")[1].split()[0]
        assert re.fullmatch("[0-9a-f]{12}", label)
        if run == 0:
            assert f"compare good {label} b.iotax --fail-on-regression" in words.read_text()


def test_changes_of_mostly_doubtful_runs_say_so_wherever_they_are_told(tmp_path: Path):
    every = [f"{p}/{n}/r{r}" for p in PATHS for n in (1, 8, 32) for r in (1, 2, 3, 4, 5)]
    a = write_notebook(tmp_path / "a.iotax", simulated(1, unsteady=every))
    b = write_notebook(tmp_path / "b.iotax", simulated(2, paths=SLOWER, unsteady=every))
    document, page = tmp_path / "changes.json", tmp_path / "changes.md"
    told = RUN.invoke(app, ["compare", str(a), str(b), "--json", str(document), "-o", str(page)])
    assert "; doubtful." in next(line for line in told.output.splitlines() if line.startswith("Regression"))
    assert "Doubtful (all together" in told.output
    assert "Doubtful (all together" in page.read_text(encoding="utf-8")
    for change in json.loads(document.read_text(encoding="utf-8"))["changes"]:
        assert change["doubtful_runs"] == sum(change["runs"]), change["treatment"]


def test_an_aa_run_says_when_its_noise_floor_rests_on_disturbed_runs(
    tmp_path: Path, tiny: Path, engine: FakeEngine
) -> None:
    asked = ["aa", str(tiny), str(tmp_path / "n.iotax"), "--replicates", "3", "--json", str(tmp_path / "aa.json")]
    told = RUN.invoke(app, asked)
    assert told.exit_code == 0, told.output
    assert "doubtful" not in told.output
    assert json.loads((tmp_path / "aa.json").read_text())["doubtful_runs"] == 0
    engine.faults(every="disturbed")
    (tmp_path / "aa.json").unlink()
    told = RUN.invoke(app, asked)
    assert "all 6 runs are doubtful" in told.output
    document = json.loads((tmp_path / "aa.json").read_text())
    assert (document["runs"], document["doubtful_runs"]) == (6, 6)


def test_the_shift_of_a_slower_path_is_at_every_quantile():
    found = changes(simulated(1), simulated(2, paths=SLOWER), 5.0)
    shift = next(s for s in found.shifts if s.arm == "iscsi · 8")
    assert len(shift.points) == 12
    for point in shift.points[:10]:
        assert point.ratio.value == pytest.approx(1.2, rel=0.08)


def test_levels_of_one_run_are_compared_within_its_blocks(tmp_path: Path):
    data = Simulation(seed=1, block_cv=0.3).data(study(design={"replicates": 5}))
    levels = {level.label: level for level in data.study.levels()["protocol"]}
    found = level_changes(data, "protocol", levels["nvme-tcp"], levels["nfs3"], 5.0)
    assert {c.treatment for c in found.found} == {"", "outstanding 1", "outstanding 8", "outstanding 32"}
    latency = next(c for c in found.found if c.response.key == "latency" and c.treatment == "outstanding 1")
    assert latency.verdict is Verdict.WORSE
    assert latency.after / latency.before == pytest.approx(latency.ratio.value)
    assert latency.ratio.high / latency.ratio.low < 1.2
    path = write_notebook(tmp_path / "a.iotax", data)
    told = RUN.invoke(app, ["compare", "nvme-tcp", "nfs3", "-n", str(path), "--fail-on-regression", "--long"])
    assert told.exit_code == 6
    assert "Regression (outstanding 1): " in told.output
    assert RUN.invoke(app, ["compare", "nfs3", "nvme-tcp", "-n", str(path), "--fail-on-regression"]).exit_code == 0
    assert RUN.invoke(app, ["compare", "outstanding=1", "outstanding=8", "-n", str(path)]).exit_code == 0


def test_levels_are_compared_under_what_both_were_measured_under():
    data = Simulation(seed=1).data(study(design={"replicates": 5}))
    levels = {level.label: level for level in data.study.levels()["protocol"]}
    less = [
        each
        for each in data.attempts
        if (each.trial.treatment["protocol"], each.trial.treatment["outstanding"]) != (levels["nfs3"].value, 32)
    ]
    found = level_changes(replace(data, attempts=less), "protocol", levels["nvme-tcp"], levels["nfs3"], 5.0).found
    assert {c.treatment for c in found} == {"", "outstanding 1", "outstanding 8"}
    iops = {c.treatment: c for c in found if c.response.key == "iops"}
    for side in ("before", "after"):
        each = [getattr(iops[name], side) for name in ("outstanding 1", "outstanding 8")]
        assert getattr(iops[""], side) == pytest.approx(float(np.sqrt(np.prod(each))))
    assert iops[""].ratio.value == pytest.approx(iops[""].after / iops[""].before)
    none = [each for each in less if each.trial.treatment["protocol"] != levels["nfs3"].value]
    assert not level_changes(replace(data, attempts=none), "protocol", levels["nvme-tcp"], levels["nfs3"], 5.0).found


def test_what_cannot_be_compared_is_told_with_the_reason(tmp_path: Path):
    a = write_notebook(tmp_path / "a.iotax", simulated(1))
    other = study(factors={"protocol": ["nfs3", "iscsi"], "outstanding": [2, 4]})
    b = write_notebook(tmp_path / "b.iotax", Simulation(seed=2).data(other))
    told = RUN.invoke(app, ["compare", str(a), str(b)])
    assert told.exit_code == 2
    assert "outstanding is 1, 8, 32 in the first and 2, 4 in the second" in told.output
    less = study(factors={"protocol": ["nfs3", "iscsi"]})
    c = write_notebook(tmp_path / "c.iotax", Simulation(seed=2).data(less))
    told = RUN.invoke(app, ["compare", str(a), str(c)])
    assert "the first varies protocol, outstanding; the second varies protocol" in told.output


def test_what_else_differs_is_named(tmp_path: Path):
    load = QUICK["load"] | {"read": "100%", "runtime": "2s"}
    after = Simulation(seed=2).data(study(load=load))
    assert differences(simulated(1), simulated(2)) == []
    assert differences(simulated(1), after) == ["load.read: 75% → 100%", "load.runtime: 4s → 2s"]
    a = write_notebook(tmp_path / "a.iotax", simulated(1))
    b = write_notebook(tmp_path / "b.iotax", after)
    assert "these differ: load.read: 75% → 100%" in RUN.invoke(app, ["compare", str(a), str(b)]).output


def test_what_differs_reads_as_a_study_is_written():
    one = simulated(1)
    machine = {"memory_bytes": 8 << 30, "turbo_off": False, "cpus_usable": [0, 1]}
    other = {"memory_bytes": 16 << 30, "turbo_off": True, "cpus_usable": [0, 1, 2]}
    before, after = (replace(one, environment={"machine": each}) for each in (machine, other))
    assert differences(before, after) == [
        "machine.memory: 8GiB → 16GiB",
        "machine.turbo_off: off → on",
        "machine.cpus_usable: 0, 1 → 0, 1, 2",
    ]


def test_a_mean_over_treatments_of_both_signs_is_no_regression():
    faster = {**PATHS, "nfs3": replace(PATHS["nfs3"], service_us=8.0, think_us=30.0)}
    slower = {**faster, "iscsi": SLOWER["iscsi"], "nvme-tcp": SLOWER["nvme-tcp"]}
    found = changes(simulated(1), simulated(2, paths=slower), 5.0).found
    whole = next(c for c in found if c.response.key == "latency" and not c.treatment)
    assert whole.mixed
    assert not whole.regressed(5.0)
    assert any(c.regressed(5.0) for c in found if c.response.key == "latency")


def test_the_noise_floor_is_the_scatter_put_in():
    data = Simulation(seed=4, run_cv=0.03, paths={"iscsi": PATHS["iscsi"]}).data(TWINS)
    summary = summarise(data)
    noise = {n.response.key: n for n in summary.noise}
    assert noise["iops"].cv == pytest.approx(0.03, rel=0.4)
    assert noise["iops"].replicates == 8
    assert 1.02 < noise["iops"].detectable_ratio < 1.1
    ratio = next(o.comparison.ratio for o in summary.overalls if o.response.key == "iops")
    assert ratio.low < 1 < ratio.high
    document = _document([(noise["iops"], summary.overalls[0].comparison)], 8, summary.doubt("B"))
    [told] = json.loads(json.dumps(document))["responses"]
    assert (told["response"], told["noise_floor"]) == ("iops", noise["iops"].cv)
    assert told["low"] < told["ratio"] < told["high"]


def test_a_run_of_which_all_is_left_out_says_so_on_the_terminal(tmp_path: Path, capsys):
    of = study(factors={"protocol": ["nfs3", "iscsi"]}, exclude=["data"])
    every = [f"{protocol}/r{replicate}" for protocol in ("nfs3", "iscsi") for replicate in (1, 2, 3)]
    path = write_notebook(tmp_path / "a.iotax", Simulation(wrong_data=every).data(of))
    with Notebook(path) as notebook:
        print_summary(study_data(notebook))
    assert "6 of 6 measured runs are excluded by the rules that the study set beforehand" in capsys.readouterr().out


def test_an_aa_study_holds_one_treatment_twice():
    twin, _ = _twin(study(), "nvme-tcp", 6)
    assert [level.label for level in twin.levels()["protocol"]] == ["A", "B"]
    assert {endpoint.protocol for endpoint in twin.endpoints().values()} == {"nvme-tcp"}
    assert twin.load.outstanding == 1
    assert twin.design.replicates == 6


def test_an_aa_study_of_rounds_is_measured_in_rounds():
    twin, _ = _twin(load("quick")[0], None, 6)
    assert twin.design.sessions == twin.design.replicates == 6
    assert twin.design.slices == load("quick")[0].design.slices
    assert twin.design.slices is not None
    assert {endpoint.protocol for endpoint in twin.endpoints().values()} == {"iscsi"}


def test_an_aa_study_of_a_search_runs_one_load_and_searches_for_none():
    twin, _ = _twin(load("patterns")[0], None, 6)
    assert twin.search is None
    assert (twin.load.workers, twin.load.outstanding) == (2, 2)
    assert twin.design.slices == load("patterns")[0].design.slices


def test_an_aa_study_keeps_what_its_label_has_of_its_own():
    twin, _ = _twin(load("tr-3808")[0], "iSCSI jumbo", 6)
    assert {name: changes["mtu"] for name, changes in twin.setups().items()} == {"A": 9000, "B": 9000}


@pytest.mark.long
def test_a_against_a_alarms_at_most_once_in_twenty():
    alarms = 0
    for seed in range(300):
        data = Simulation(seed=seed, paths={"iscsi": PATHS["iscsi"]}, samples=1).data(TWINS)
        verdict = next(o for o in summarise(data).overalls if o.response.key == "iops").comparison.verdict
        alarms += verdict in (Verdict.BETTER, Verdict.WORSE)
    assert alarms / 300 <= 0.05 + 0.025


def test_an_interval_beyond_tenfold_is_told_in_factors():
    assert span(Estimate(1.2, 0.3, 125.93)) == "95 % CI 0.300 to 126 times"
    assert span(Estimate(1.2, 0.9, 1.6)) == "95 % CI −10 % to +60 %"


def test_a_plan_tells_each_response_by_the_scatter_of_an_earlier_run(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("quick.yaml").write_text(yaml.safe_dump(QUICK, sort_keys=False))
    assert "by the scatter of" not in RUN.invoke(app, ["plan", "quick.yaml"]).output
    (tmp_path / "out").mkdir()
    data = simulated(1, run_cv=0.02)
    write_notebook(tmp_path / "out" / "quick.iotax", data)
    told = RUN.invoke(app, ["plan", "quick.yaml"]).output
    for noise in summarise(data).noise:
        assert f"{noise.response.title}, by the scatter of {show_share(noise.cv)} in out/quick.iotax (run of " in told


def test_a_plan_takes_no_scatter_from_a_run_of_other_settings(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("quick.yaml").write_text(yaml.safe_dump(QUICK, sort_keys=False))
    (tmp_path / "out").mkdir()
    other = study(load=QUICK["load"] | {"runtime": "2s"}, factors={"protocol": ["nfs3", "iscsi"]})
    write_notebook(tmp_path / "out" / "quick.iotax", Simulation().data(other))
    told = RUN.invoke(app, ["plan", "quick.yaml"]).output
    assert "by the scatter of" not in told
    assert "does not apply to this plan: it differs in factors.protocol, load.runtime, factors.outstanding." in told


def test_the_scatter_of_whole_runs_says_nothing_about_sessions(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rounds = QUICK | {"load": {"read": "75%"}, "design": {"sessions": 3, "rounds": 8}}
    Path("quick.yaml").write_text(yaml.safe_dump(rounds, sort_keys=False))
    (tmp_path / "out").mkdir()
    write_notebook(tmp_path / "out" / "quick.iotax", Simulation().data(study(load={"read": "75%"})))
    told = RUN.invoke(app, ["plan", "quick.yaml"]).output
    assert "by the scatter of" not in told
    assert "it differs in design.rounds, design.slice, design.settle." in told


def test_a_run_is_not_compared_with_itself(tmp_path: Path):
    a = write_notebook(tmp_path / "a.iotax", simulated(1))
    copy = tmp_path / "copy.iotax"
    copy.write_bytes(a.read_bytes())
    for words in ((a, a), (a, copy), ("run=1", "run=1", a), ("nfs3", "nfs3", a), ("protocol=nfs3", "nfs3", a)):
        told = RUN.invoke(app, ["compare", *map(str, words)])
        assert told.exit_code == 2
        assert "are the same" in told.output
