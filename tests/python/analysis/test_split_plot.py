"""Arms that change rarely are compared by whole plots: many runs within one mount are not many mounts."""

import math

import numpy as np
import pytest

from iotax.analysis import Verdict, summarise
from iotax.analysis.model import CellModel, Layout
from iotax.analysis.strata import variation, whole_plots
from report.factory import PATHS, Simulation, study

SPLIT = {
    "factors": {"protocol": ["nfs3", "iscsi"], "outstanding": [1, 8, 32]},
    "design": {"replicates": 6, "seed": 1, "hard_to_change": ["protocol"]},
}


def table(rng, plots_sd, run_sd, blocks=6, conditions=6, truth=0.0):
    """(cells, blocks, plots, y) of two arms on whole plots."""
    rows = [
        ((arm, condition), block, 2 * block + arm)
        for block in range(blocks)
        for arm in (0, 1)
        for condition in range(conditions)
    ]
    cells, block_of, plot_of = map(list, zip(*rows, strict=True))
    plot_effects = plots_sd * rng.standard_normal(2 * blocks)
    y = np.array(
        [truth * cell[0] + 0.3 * cell[1] + plot_effects[plot] for cell, plot in zip(cells, plot_of, strict=True)]
    )
    return cells, block_of, plot_of, y + run_sd * rng.standard_normal(len(y))


def overall(cells, blocks, plots, y):
    whole = whole_plots(
        CellModel(Layout(cells, blocks), y), [c[0] for c in cells], list(zip(blocks, plots, strict=True))
    )
    return CellModel(Layout(whole.treatments, whole.blocks), whole.means).contrast({1: 1.0, 0: -1.0})


def coverage(draws, blocks):
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(draws):
        low, high = overall(*table(rng, 0.05, 0.02, blocks=blocks, truth=0.2)).interval()
        hits += low <= 0.2 <= high
    return hits / draws


def test_interval_of_arms_on_whole_plots_covers():
    assert 0.95 - 3 * math.sqrt(0.95 * 0.05 / 400) <= coverage(400, 6) <= 0.98


@pytest.mark.long
@pytest.mark.parametrize("blocks", [3, 6, 10])
def test_interval_of_arms_on_whole_plots_covers_at_every_size(blocks):
    assert 0.94 <= coverage(10_000, blocks) <= 0.97


def test_taking_runs_for_plots_would_not_cover():
    """Why whole plots matter: the same data, analysed as if every run had its own plot."""
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        cells, blocks, _, y = table(rng, 0.05, 0.005, truth=0.2)
        weights = {(arm, c): (1 if arm else -1) / 6 for arm in (0, 1) for c in range(6)}
        low, high = CellModel(Layout(cells, blocks), y).contrast(weights).interval()
        hits += low <= 0.2 <= high
    assert hits / 200 < 0.85


def test_a_plot_that_lacks_a_run_keeps_its_place():
    cells, blocks, plots, y = table(np.random.default_rng(3), 0.0, 0.0, truth=0.2)
    lacking = [list(part[1:]) for part in (cells, blocks, plots)]
    assert overall(*lacking, y[1:]).estimate == pytest.approx(0.2)


def test_variation_by_level_is_what_was_put_in():
    rng = np.random.default_rng(4)
    cells, blocks, plots, y = table(rng, 0.1, 0.02, blocks=300)
    y += 0.2 * np.repeat(rng.standard_normal(300), 12)
    model = CellModel(Layout(cells, blocks), y)
    whole = whole_plots(model, [c[0] for c in cells], list(zip(blocks, plots, strict=True)))
    found = variation(model, blocks, whole)
    assert [math.sqrt(v) for v in (found.block, found.plot, found.run)] == pytest.approx([0.2, 0.1, 0.02], rel=0.1)


def test_a_study_with_a_split_plot_is_judged_by_its_plots():
    summary = summarise(Simulation(paths=PATHS).data(study(**SPLIT)))
    model = summary.models["latency"]
    assert model.split
    assert len(model.whole_plots.means) == 12
    found = next(o for o in summary.overalls if o.response.key == "latency")
    assert found.comparison.verdict is Verdict.WORSE
    assert not summarise(Simulation().data(study())).models["latency"].split


@pytest.mark.long
@pytest.mark.parametrize("blocks", [3, 5, 10])
def test_interval_of_arms_on_whole_plots_covers_as_it_says(blocks):
    assert 0.93 <= coverage(2000, blocks) <= 0.97
