"""Designs other than the full factorial: which treatments run, in which order, and which effects they estimate."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import nct
from scipy.stats import t as student
from typer.testing import CliRunner

from faked import FakeEngine
from iotax.analysis import StudyData, summarise
from iotax.analysis.precision import half_width, precise_enough
from iotax.cli.app import app
from iotax.cli.run import run
from iotax.design import plan
from iotax.design.describe import describe
from iotax.design.doptimal import SingularDesignError, d_optimal, efficiency, log_determinant, model_matrix
from iotax.design.fraction import fraction, letters
from iotax.design.power import detectable_ratio, replicates_to_detect
from iotax.design.treatments import candidates, matrix, treatments
from iotax.notebook import Notebook
from iotax.study import Study
from iotax.study.read import read_study
from iotax.study.source import StudyError
from report.factory import counted_attempt

TWO = {
    "protocol": ["nfs3", "iscsi"],
    "block_size": ["4KiB", "8KiB"],
    "read": [0, 100],
    "random": [0, 100],
    "outstanding": [1, 8],
}


def study(design: Mapping[str, object], factors: Mapping[str, object] = TWO) -> Study:
    return Study.model_validate(
        {"name": "s", "question": "?", "factors": factors, "design": design, "baseline": {"protocol": "iscsi"}}
    )


# ----------------------------------------------------------------------------------------------- power


def test_replicates_for_a_power_of_90_percent_are_the_published_ones() -> None:
    """statistics.md: replicates per arm to detect 5 % if runs vary by 1, 2, 3, 5 and 10 %."""
    assert [replicates_to_detect(cv, 1.05) for cv in (0.01, 0.02, 0.03, 0.05, 0.1)] == [3, 5, 10, 24, 89]


@pytest.mark.parametrize(("runs", "freedom"), [(2, 1), (2, 2), (3, 4), (5, 8), (40, 78), (1000, 1998)])
def test_a_detectable_ratio_is_seen_in_nine_of_ten_studies(runs: int, freedom: int) -> None:
    """Checked with another library's t-test power, without the wrong side's tail, where that library fails."""
    ratio = detectable_ratio(0.02, runs, freedom)
    assert ratio is not None
    shift = math.log(ratio) / (math.sqrt(math.log1p(0.02**2)) * math.sqrt(2 / runs))
    limit = student.ppf(0.975, freedom)
    assert nct.sf(limit, freedom, shift) == pytest.approx(0.9, abs=2e-4)


def test_without_degrees_of_freedom_nothing_is_promised() -> None:
    assert detectable_ratio(0.02, 3, 0) is None


# ----------------------------------------------------------------------------------------------- fractions


@pytest.mark.parametrize(
    ("factors", "halvings", "resolution", "lengths"),
    [
        # Box, Hunter and Hunter's table of minimum aberration.
        (3, 1, 3, [3]),
        (4, 1, 4, [4]),
        (5, 1, 5, [5]),
        (5, 2, 3, [3, 3, 4]),
        (6, 2, 4, [4, 4, 4]),
        (7, 3, 4, [4] * 7),
        (7, 4, 3, [3] * 7 + [4] * 7 + [7]),
        (8, 4, 4, [4] * 14 + [8]),
    ],
)
def test_fractions_have_minimum_aberration(factors: int, halvings: int, resolution: int, lengths: list[int]) -> None:
    made = fraction(factors, halvings)
    assert (made.resolution, [len(word) for word in made.words]) == (resolution, lengths)


@pytest.mark.parametrize(("factors", "halvings"), [(4, 1), (5, 2), (7, 3)])
def test_aliases_are_equal_columns_and_no_others_are(factors: int, halvings: int) -> None:
    made = fraction(factors, halvings)
    runs = 2 * np.array(made.runs()) - 1
    assert len({tuple(row) for row in runs}) == 2 ** (factors - halvings)
    aliases = {effect: set(same) for effect, same in made.aliases()}
    for effect, same in aliases.items():
        column = runs[:, sorted(effect)].prod(axis=1)
        for other in aliases:
            product = runs[:, sorted(other)].prod(axis=1)
            if other != effect:
                # One line per class, so effects on different lines can be separated.
                assert abs(column @ product) == 0, f"{letters(effect)} {letters(other)}"
        for other in same:
            assert abs(column @ runs[:, sorted(other)].prod(axis=1)) == len(runs)


def test_half_fraction_runs_half_and_says_what_is_aliased() -> None:
    made = study({"fraction": "1/2", "replicates": 2})
    assert len(treatments(made)) == 16
    lines = describe(made, plan(made))
    assert lines[0].startswith("Fractional factorial 2^(5-1), resolution V: 16 of 32 treatments. A = protocol")
    assert "I = ABCDE" in lines[1]
    quarter = study({"fraction": "1/4", "replicates": 2})
    lines = describe(quarter, plan(quarter))
    assert lines[1] == "Generators: D = ABC, E = AB. Defining relation: I = ABE = CDE = ABCD."
    assert lines[2:9] == ["  A = BE", "  B = AE", "  C = DE", "  D = CE", "  E = AB = CD", "  AC = BD", "  AD = BC"]


# ----------------------------------------------------------------------------------------------- D-optimal


@pytest.mark.parametrize(("factors", "runs", "order"), [(3, 4, 1), (4, 8, 1), (7, 8, 1), (5, 16, 2)])
def test_exchange_finds_the_orthogonal_design_where_there_is_one(factors: int, runs: int, order: int) -> None:
    whole = model_matrix(list(itertools.product((0, 1), repeat=factors)), [2] * factors, order)
    chosen = d_optimal(whole, runs, seed=3)
    # Hadamard's bound: |XᵀX| = n^p, reached only by orthogonal columns.
    assert log_determinant(whole[chosen]) == pytest.approx(whole.shape[1] * np.log(runs))
    assert efficiency(whole[chosen], whole) == pytest.approx(1.0)


def test_exchange_is_no_worse_than_thousands_of_random_choices() -> None:
    levels = [4, 3, 2, 2]
    whole = model_matrix(list(itertools.product(*map(range, levels))), levels, 1)
    chosen = d_optimal(whole, 12, seed=1)
    stream = random.Random(5)
    luckiest = max(log_determinant(whole[stream.sample(range(len(whole)), 12)]) for _ in range(3000))
    assert len(set(chosen)) == 12
    assert log_determinant(whole[chosen]) > luckiest
    assert chosen == d_optimal(whole, 12, seed=1)


def test_design_that_cannot_tell_effects_apart_is_refused() -> None:
    whole = model_matrix(list(itertools.product((0, 1), repeat=3)), [2, 2, 2], 1)
    with pytest.raises(SingularDesignError, match="3 treatments cannot tell 4 effects apart"):
        d_optimal(whole, 3, seed=1)
    # The third factor never changes.
    with pytest.raises(SingularDesignError, match="no choice"):
        d_optimal(whole[[0, 2, 4, 6]], 4, seed=1)


def test_exclusions_hold_in_every_design() -> None:
    exclude = [{"protocol": "iscsi", "block_size": "8k"}, {"outstanding": 8, "read": 0}]
    full = study({"exclude": exclude})
    assert len(treatments(full)) == len(candidates(full)) == 32 - 8 - 8 + 2
    chosen = study({"exclude": exclude, "runs": 10, "effects": "main", "replicates": 2})
    assert len(treatments(chosen)) == 10
    assert set(treatments(chosen)) <= set(candidates(full))
    assert "10 of 18 treatments estimate main effects (6 parameters)" in describe(chosen, plan(chosen))[0]


def test_a_choice_within_constraints_has_a_determinant_above_zero() -> None:
    exclude = [{"protocol": "iscsi", "block_size": "8k"}, {"outstanding": 8, "read": 0}]
    for runs in range(6, 19):
        chosen = study({"exclude": exclude, "runs": runs, "effects": "main", "replicates": 2})
        rows = matrix(chosen, treatments(chosen))
        assert rows.shape == (runs, 6)
        assert np.linalg.det(rows.T @ rows) > 0


# ----------------------------------------------------------------------------------------------- order of the plan


@pytest.mark.parametrize("blocks", ["replicate", "none"])
def test_whole_plots_run_together_in_random_order(blocks: str) -> None:
    made = plan(study({"hard_to_change": ["protocol"], "replicates": 6, "blocks": blocks}))
    plots = [
        (key, len(list(members)))
        for key, members in itertools.groupby(made.trials, lambda trial: (trial.replicate, trial.treatment["protocol"]))
    ]
    assert len({key for key, _ in plots}) == len(plots) == 12
    assert {size for _, size in plots} == {16}
    first = [protocol for (_, protocol), _ in plots]
    assert first[::2] != [first[0]] * 6 or first[1::2] != [first[1]] * 6
    within = [
        tuple(trial.treatment["outstanding"] for trial in members)
        for _, members in itertools.groupby(made.trials, lambda trial: (trial.replicate, trial.treatment["protocol"]))
    ]
    assert len(set(within)) > 6


def test_sentinels_stand_at_start_middle_and_end_and_in_no_comparison(engine: FakeEngine, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\nquestion: '?'\nvolume: {size: 1MiB}\nfactors: {protocol: [nfs3, iscsi], outstanding: [1, 8]}\n"
        "load: {warmup: 0s, runtime: 10ms}\ndesign: {replicates: 2, sentinels: 3}\nbaseline: {protocol: iscsi}\n"
    )
    run(str(path), tmp_path / "n.iotax", report=False)
    with Notebook(tmp_path / "n.iotax") as notebook:
        data = StudyData(notebook.study(), notebook.attempts(), notebook.trials())
    assert [trial.order for trial in data.planned if trial.role == "sentinel"] == [1, 6, 11]
    assert [run.trial.treatment for run in data.sentinels] == [{"protocol": "iscsi", "outstanding": 1}] * 3
    assert (len(data.runs), data.planned_count, len(engine.documents("load", task="run"))) == (8, 8, 11)
    assert [len(cell.runs) for cell in summarise(data).cells] == [2, 2, 2, 2]


def test_study_ends_when_its_own_rule_says_so_and_stays_ended(engine: FakeEngine, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\nquestion: '?'\nvolume: {size: 1MiB}\nfactors: {protocol: [nfs3, iscsi], outstanding: [1, 8]}\n"
        "load: {warmup: 0s, runtime: 10ms}\nbaseline: {protocol: iscsi}\n"
        "design: {replicates: 9, stop: {half_width: 2%, at_least: 3}}\n"
    )
    for _ in range(2):
        # The fake's results do not vary, so three replicates are as precise as nine.
        run(str(path), tmp_path / "n.iotax", report=False)
        assert len(engine.documents("load", task="run")) == 12
    with Notebook(tmp_path / "n.iotax") as notebook:
        data = StudyData(notebook.study(), notebook.attempts(), notebook.trials())
    assert (max(run.trial.block for run in data.runs), data.planned_count) == (3, 36)


def test_rule_is_about_the_widest_interval() -> None:
    def measured(scatter: float, blocks: int) -> StudyData:
        stream = random.Random(8)
        made = study(
            {"replicates": blocks, "stop": {"half_width": 5.0}}, {"protocol": ["nfs3", "iscsi"], "read": [0, 100]}
        )
        attempts = []
        for trial in plan(made).trials:
            ios = round(1_000_000 * (1 + scatter * stream.gauss(0, 1)))
            attempts.append(counted_attempt(trial, ios))
        return StudyData(made, attempts)

    assert half_width(measured(0.01, 4)) < 0.05 < half_width(measured(0.2, 4))
    assert half_width(measured(0.02, 16)) < half_width(measured(0.02, 4))
    assert half_width(measured(0.02, 1)) == float("inf")
    assert not precise_enough(measured(0.001, 2), 2)
    assert precise_enough(measured(0.001, 3), 3)


def test_plan_prints_what_the_design_can_tell(engine: FakeEngine, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\nquestion: '?'\nfactors: {protocol: [nfs3, iscsi], read: [0%, 100%], random: [0%, 100%]}\n"
        "load: {runtime: 1s}\ndesign: {replicates: 3, fraction: 1/2, sentinels: 2, hard_to_change: [protocol]}\n"
        "baseline: {protocol: iscsi}\n"
    )
    said = CliRunner().invoke(app, ["plan", "--long", str(path)]).stdout
    assert "resolution III: 4 of 8 treatments. A = protocol, B = read, C = random." in said
    assert "A = BC" in said
    assert "protocol changes between 6 whole plots" in said
    assert "2 sentinel runs of the baseline, at 1, 14" in said
    assert "Minimum detectable difference between two treatments (90 % power)" in said


@pytest.mark.parametrize(
    ("design", "said"),
    [
        ("fraction: 1/3", "one of 1, 1/2, 1/4, 1/8, 1/16 is expected"),
        ("fraction: 1/8", "too few runs to estimate 5 main effects; use a larger fraction"),
        ("hard_to_change: [porotcol]", "porotcol is not a factor of this study"),
        ("exclude: [{read: 50%}]", "50% is not a level; read has 0%, 100%"),
        ("fraction: 1/2, runs: 9", "leave `fraction` or `runs` out"),
        ("stop: {half_width: 3%, at_least: 9}", "more than the 3 replicates"),
    ],
)
def test_a_slip_in_a_design_is_named(design: str, said: str) -> None:
    text = (
        "name: s\nquestion: '?'\nfactors:\n  protocol: [nfs3, iscsi]\n  block_size: [4k, 8k]\n  read: [0%, 100%]\n"
        f"  random: [0%, 100%]\n  outstanding: [1, 8]\nbaseline: {{protocol: iscsi}}\ndesign: {{{design}}}\n"
    )
    with pytest.raises(StudyError) as caught:
        read_study("s", text, Path.cwd())
    assert said in str(caught.value)
