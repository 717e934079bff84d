"""Every printed interval contains the true value as often as it claims, in simulated data with known effects.

The fast set uses a few hundred draws and wide limits; `-m long` uses 1,000 draws or more. Ratios are in
test_coverage.py, quantiles and shifts in test_quantiles.py, whole plots in test_split_plot.py, the CPU model under
every drift in test_cpu_model.py, searches in test_search_intervals.py, the scalability law in queueing/test_usl.py.
docs/results/statistics.md lists them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cpu_studies import PRICES, study3

from iotax.analysis.capacity import Demand, capacity
from iotax.analysis.change import welch
from iotax.analysis.compare import LayoutCache, Model
from iotax.analysis.cost import ServiceCost
from iotax.analysis.cpu_model import CpuModel
from iotax.analysis.data import Grid
from iotax.analysis.estimate import combined
from iotax.analysis.model import CellModel, Layout
from iotax.analysis.responses import IOPS
from iotax.analysis.student import fieller
from iotax.analysis.verdict import Verdict, judge, log_margin
from iotax.queueing import SizingTarget, size
from report.factory import Simulation, study

Draw = Callable[[np.random.Generator], tuple[tuple[float, float] | None, float]]
"""An interval and the true value. None is an unbounded interval, which contains every value."""


def cell_mean(replicates: int) -> Draw:
    """Geometric mean of one cell, including drift between blocks."""
    of = study(factors={"protocol": ["iscsi"]}, design={"replicates": replicates})
    grid, layouts = Grid(of), LayoutCache()
    (cell,) = grid.cells()
    data = Simulation(samples=1).data(of)

    def draw(rng: np.random.Generator) -> tuple[tuple[float, float] | None, float]:
        values = dict(zip((run.trial.id for run in data.runs), rng.lognormal(3.0, 0.05, replicates), strict=True))
        found = Model(replace(IOPS, of_window=lambda run: values[run.trial.id]), grid, data, layouts).absolute(cell)
        return (found.low, found.high), math.exp(3.0)

    return draw


def change(old: int, new: int, new_sd: float) -> Draw:
    """Two independent runs of a study."""

    def draw(rng: np.random.Generator) -> tuple[tuple[float, float] | None, float]:
        return welch(rng.normal(0, 0.03, old), rng.normal(0.1, new_sd, new)).interval(), 0.1

    return draw


def blocked(means: np.ndarray, blocks: int, drift: float, rng: np.random.Generator) -> CellModel:
    """Runs scatter by 3 % around their cell's mean; the cells of a block drift together."""
    cells = len(means)
    layout = Layout([cell for cell in range(cells) for _ in range(blocks)], [*range(1, blocks + 1)] * cells)
    y = np.repeat(means, blocks) + rng.normal(0, 0.03, cells * blocks)
    return CellModel(layout, y + np.tile(rng.normal(0, drift, blocks), cells))


def change_of_all(cells: int, replicates: int, drift: float) -> Draw:
    """All treatments of one run of a study against all of another run, each with its own drift."""

    def draw(rng: np.random.Generator) -> tuple[tuple[float, float] | None, float]:
        old, new = (blocked(np.arange(cells) + of, replicates, drift, rng).level(range(cells)) for of in (0.0, 0.1))
        return combined([(1.0, new), (-1.0, old)]).interval(), 0.1

    return draw


def level(cells: int, replicates: int, drift: float) -> Draw:
    """Geometric mean over several treatments, like the cost per I/O in a closed loop."""

    def draw(rng: np.random.Generator) -> tuple[tuple[float, float] | None, float]:
        return blocked(np.arange(cells) * 0.2, replicates, drift, rng).level(range(cells)).interval(), 0.1 * (cells - 1)

    return draw


def tax(replicates: int, drift: float) -> Draw:
    """Difference of two geometric means, one of them much larger, with other cells in the model."""

    def draw(rng: np.random.Generator) -> tuple[tuple[float, float] | None, float]:
        model = blocked(np.array([0.0, 3.0, 1.0, 2.0]), replicates, drift, rng)
        return model.difference_of_means(1, 0).interval(), math.exp(3.0) - 1

    return draw


def ratio_of_means(n: int, denominator_sd: float) -> Draw:
    """Fieller's interval for two correlated means."""

    def draw(rng: np.random.Generator) -> tuple[tuple[float, float] | None, float]:
        shared = rng.normal(0, 1, n)
        top, bottom = 81 + 3 * shared + rng.normal(0, 3, n), 41 + shared + rng.normal(0, denominator_sd, n)
        spread = np.cov(top, bottom) / n
        found = fieller(top.mean(), bottom.mean(), (spread[0, 0], spread[1, 1]), spread[0, 1], n - 1)
        return found, 81 / 41

    return draw


def cpu(what: str, background: float = 0.03) -> Draw:
    """An interval of the CPU model with 2 % drift between blocks: cost, ratio of costs, effect, or background."""

    def draw(rng: np.random.Generator) -> tuple[tuple[float, float] | None, float]:
        model = CpuModel(study3(rng, replicates=5, background=background))
        found, truth = {
            "price": lambda: (model.cost_us("nfs3"), PRICES["nfs3"]),
            "ratio": lambda: (model.ratio("nfs3", "fcp"), PRICES["nfs3"] / PRICES["fcp"]),
            "effect": lambda: (model.effects[0].ratio, (PRICES["nfs3"] + 6) / (PRICES["nfs3"] - 6)),
            "background": lambda: (model.background_cores, background),
        }[what]()
        return (found.low, found.high), truth

    return draw


DRAWS: dict[str, Draw] = {
    "cell of 3": cell_mean(3),
    "cell of 10": cell_mean(10),
    "change, 5 and 5 runs": change(5, 5, 0.03),
    "change, 3 and 5 runs, the few scatter more": change(5, 3, 0.05),
    **{
        f"{name}, {blocks} blocks{', drift' if drift else ''}": make(blocks, drift)
        for name, make in {
            "change of 6 treatments": lambda blocks, drift: change_of_all(6, blocks, drift),
            "mean of 3 treatments": lambda blocks, drift: level(3, blocks, drift),
            "tax": tax,
        }.items()
        for blocks in (2, 3, 5)
        for drift in (0.0, 0.03)
    },
    "Fieller": ratio_of_means(8, 2.0),
    "Fieller, a poor denominator": ratio_of_means(8, 25.0),
    "CPU price": cpu("price"),
    "CPU price without background": cpu("price", background=0.0),
    "CPU ratio": cpu("ratio"),
    "CPU effect": cpu("effect"),
    "CPU background": cpu("background"),
}


MOST = {"change of 6 treatments, 2 blocks": 0.985, "change of 6 treatments, 3 blocks": 0.98}
"""The Behrens-Fisher problem: for two means over two or three blocks each, with unknown and perhaps unequal scatter, no
interval covers exactly 95 % for every ratio of scatters. Welch's is too long if they are equal, so that it is not too
short if they differ. An interval with a common variance would be too short there."""


def covered(draw: Draw, draws: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    hits = 0
    for _ in range(draws):
        interval, truth = draw(rng)
        hits += interval is None or interval[0] <= truth <= interval[1]
    return hits / draws


@pytest.mark.parametrize("name", [name for name in DRAWS if not name.startswith("CPU")])
def test_interval_covers(name: str) -> None:
    assert 0.91 <= covered(DRAWS[name], 300, seed=1) <= (1 if name.partition(", drift")[0] in MOST else 0.985)


@pytest.mark.parametrize("name", [name for name in DRAWS if name.startswith("CPU")])
def test_interval_of_the_cpu_model_covers(name: str) -> None:
    assert covered(DRAWS[name], 60, seed=2) >= 0.88


@pytest.mark.long
@pytest.mark.parametrize("name", list(DRAWS))
def test_interval_covers_as_it_says(name: str) -> None:
    """4,000 draws where they are fast; two standard errors are then 0.7 %."""
    draws = 1000 if name.startswith("CPU") else 4000
    found = covered(DRAWS[name], draws, seed=3)
    print(found)
    assert 0.93 <= found <= MOST.get(name.partition(", drift")[0], 0.97), found


def cores_covered(draws: int, seed: int) -> float:
    """How often the printed range contains the cores that 70,000 IOPS need at the true cost."""
    rng = np.random.default_rng(seed)
    target = SizingTarget(0.8)
    truth = size(70_000, PRICES["nfs3"] * 1e-6, target).servers
    hits = 0
    for _ in range(draws):
        model = CpuModel(study3(rng, replicates=4))
        found = capacity(ServiceCost("nfs3", model.cost_us("nfs3"), ""), Demand(70_000, target))
        hits += found.low.servers <= truth <= found.high.servers
    return hits / draws


def test_cores_carry_the_interval_of_the_price() -> None:
    """Cores are whole numbers, so their range covers at least as often as that of the cost."""
    assert cores_covered(60, seed=4) >= 0.88


@pytest.mark.long
def test_cores_cover_as_often_as_the_price_or_more() -> None:
    assert cores_covered(1000, seed=5) >= 0.93


def verdict_errors(draws: int, seed: int, replicates: int, truth: float) -> tuple[float, float]:
    """Shares of (called different, called equivalent within 5 %) for two independent runs of a study."""
    rng = np.random.default_rng(seed)
    margin = log_margin(5)
    different = equivalent = 0
    for _ in range(draws):
        found = welch(rng.normal(0, 0.04, replicates), rng.normal(truth, 0.04, replicates))
        verdict = judge(found.interval(), margin, more_is_better=True)
        low, high = found.interval()
        different += not low <= 0 <= high
        equivalent += verdict is Verdict.EQUIVALENT
    return different / draws, equivalent / draws


@pytest.mark.parametrize("replicates", [3, 5, 10])
def test_false_alarms_stay_within_one_in_twenty(replicates: int) -> None:
    """Allows three standard errors of the simulation."""
    limit = 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
    assert verdict_errors(2000, 6, replicates, 0.0)[0] <= limit
    assert verdict_errors(2000, 7, replicates, log_margin(5))[1] <= limit
