"""The runs behind the table of real runs: sides that do not differ, and sides that differ by a known cost."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bench.trust.__main__ import main
from bench.trust.cases import CASES, SLICE_MS, Case, Hosts, study_text
from bench.trust.kept import read
from bench.trust.measure import Found, Run, measure
from bench.trust.precision import Precision
from bench.trust.resample import resampled
from bench.trust.table import lines, marks, precision_lines, put
from iotax.study.read import read_study

PAGE = Path(__file__).parents[3] / "docs" / "results" / "statistics.md"


@pytest.mark.machine
@pytest.mark.usefixtures("real_engine")
@pytest.mark.slow
def test_nothing_is_found_where_nothing_differs_and_a_known_cost_where_it_was_put_in() -> None:
    quiet, burn = (next(case for case in CASES if case.key == key) for key in ("quiet", "burn"))
    same = measure(quiet, 1, burn_ns=0, sessions=3, rounds=4)
    assert same is not None
    assert {each.response for each in same.found} == {"iops", "latency", "cpu"}
    assert all(each.truth == 1 for each in same.found)
    assert 0 <= same.disturbed <= 1
    # One interval in twenty may miss; all three never miss by far.
    assert any(each.low / 1.2 <= 1 <= each.high * 1.2 for each in same.found)
    # On a busy machine a slice may have no I/O; then its session is left out.
    paired = [session["cpu"] for session in same.slices if "cpu" in session]
    assert paired
    assert all([len(logs) for logs in pair] == [4, 4] for pair in paired)

    dear = measure(burn, 2, burn_ns=1_000_000, sessions=3, rounds=4)
    assert dear is not None
    ratios = {each.response: each for each in dear.found}
    # CPU time is counted per process, so a busy machine does not hide the difference. For wall-clock times, three
    # sessions on a busy machine only show its sign.
    assert ratios["cpu"].low > 1.5
    assert ratios["latency"].ratio > 1 > ratios["iops"].ratio
    assert ratios["cpu"].truth == pytest.approx(1 + 1000 / dear.base_us["cpu"])


@pytest.mark.machine
@pytest.mark.usefixtures("real_engine")
def test_delay_put_into_the_target_is_the_truth_of_its_ratio() -> None:
    delay = next(case for case in CASES if case.key == "delay")
    run = measure(delay, 1, burn_ns=0, sessions=2, rounds=2)
    assert run is not None
    truths = {each.response: each.truth for each in run.found}
    assert set(truths) == {"iops", "latency"}
    # Both sides wait for at least 2 ms.
    assert 1 < truths["latency"] <= 1 + 100 / 2000
    assert truths["iops"] == pytest.approx(1 / truths["latency"])


def test_runs_are_kept_as_they_end_and_the_next_invocation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out" / "runs.jsonl"
    ran: list[tuple[str, int]] = []

    def measured(case: Case, number: int, *, sessions: int, **_: int) -> Run:
        assert sessions == (5 if case.injected else 3)
        if len(ran) == 4:
            raise KeyboardInterrupt
        ran.append((case.key, number))
        one = Found(case.key, number, "iscsi", "cpu", 1.0, 0.9, 1.1, 1.0)
        return Run([one], [{"cpu": [[0.0, 0.1], [0.1, 0.0]]}], 0.0, {"cpu": 20.0})

    monkeypatch.setattr("bench.trust.__main__.measure", measured)
    asked = ["--only", "quiet,disturbed,delay", "--runs", "2", "--injected", "1", "--json", str(file)]
    asked += ["--sessions", "3", "--injected-sessions", "5"]
    assert main(asked) == 130
    # In turns, so that no case gets a quieter hour.
    assert [key for key, _ in ran[:3]] == ["quiet", "disturbed", "delay"]
    with file.open("a") as cut_short:
        cut_short.write('{"case": "quiet", "found": [')
    ran.clear()
    assert main(asked) == 0
    assert len(ran) == 1
    kept = read(file)
    numbers = {case: [found.number for run in runs for found in run.found] for case, runs in kept.runs.items()}
    assert numbers == {"quiet": [0, 1], "disturbed": [0, 1], "delay": [0]}
    with pytest.raises(SystemExit, match="another design"):
        main([*asked, "--rounds", "9"])


def test_precision_of_quick_is_a_row() -> None:
    found = Precision({"iops": [2.9, 5.7, 9.2], "cpu": [2.6, 5.6, None]}, 90.2, 1, 72)
    row = precision_lines([found])[-1]
    assert row == "| 1 of 72 | ±2.9 % | ±5.7 % (±9.2 %) | ±2.6 % | ±5.6 % (–) | 90 % |"
    assert precision_lines([]) == []


def test_resampled_studies_cover_as_often_as_promised() -> None:
    rng = np.random.default_rng(4)
    calm = [(rng.normal(0, 0.1, (2, 6)) + rng.normal(0, 0.02, (2, 1))).tolist() for _ in range(400)]
    assert 0.93 <= resampled(calm, sessions=5, draws=800, seed=2).covers <= 0.97


def test_resampled_studies_detect_an_effect_as_often_as_their_noise_allows() -> None:
    rng = np.random.default_rng(5)

    def detects(scatter: float) -> float:
        pool = [rng.normal(0, scatter, (2, 6)).tolist() for _ in range(300)]
        return resampled(pool, sessions=5, draws=800, seed=3).detects

    assert detects(0.005) == 1.0
    # The standard error of the difference is 0.05 · √(2 / 6 / 5) = 0.013; an effect of 0.049 lies 3.8 of them away, and
    # Student's t of 4 degrees of freedom asks for 2.8.
    assert 0.6 <= detects(0.05) <= 0.95
    assert detects(1.0) <= 0.06


def found(number: int, response: str, low: float, high: float, truth: float) -> Found:
    return Found("burn", number, "iscsi", response, math.sqrt(low * high), low, high, truth)


def test_table_counts_what_was_found_with_its_sign() -> None:
    rows = [(1.02, 1.08), (1.01, 1.09), (0.99, 1.12), (0.90, 0.97)]
    runs = [Run([found(at, "cpu", low, high, 1.05)], [], 0.25, {}) for at, (low, high) in enumerate(rows)]
    [row] = [line for line in lines("loopback", {"burn": runs}, {}, "") if "CPU per I/O, +5.0 %" in line]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2] == "4"
    assert cells[3] == "25 %"
    assert cells[4].startswith("50.0 (")
    assert cells[5].startswith("75.0 (")


@pytest.mark.parametrize("where", SLICE_MS)
def test_table_stands_in_the_page_between_its_marks(tmp_path: Path, where: str) -> None:
    text, (begin, end) = PAGE.read_text(), marks(where)
    assert text.count(begin) == text.count(end) == 1
    page = tmp_path / "page.md"
    page.write_text(text)
    put(page, where, ["| new |"])
    before, rest = page.read_text().split(begin)
    assert rest.split(end)[0].strip() == "| new |"
    assert before == text.split(begin)[0] and rest.split(end)[1] == text.split(end)[1]
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no place"):
        put(page, where, [])


def test_cases_over_ssh_name_their_hosts_and_others_run_without_any() -> None:
    over_ssh = next(case for case in CASES if case.key == "ssh")
    text = study_text(over_ssh, 1, burn_ns=0, sessions=2, rounds=4, hosts=Hosts("h1", "h2", "10.0.0.2"))
    assert "initiators: [h1]" in text and "data_address: 10.0.0.2" in text
    with pytest.raises(SystemExit, match="--hosts INITIATOR TARGET ADDRESS"):
        main(["--only", "ssh"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_every_case_is_a_study_that_its_lab_takes(case: Case) -> None:
    text = study_text(case, 1, burn_ns=1000, sessions=2, rounds=4, hosts=Hosts("h1", "h2", "10.0.0.2"))
    # A study that its lab refuses cannot be read.
    study = read_study(f"{case.key}.yaml", text, Path())
    assert study.design.sessions == 2
