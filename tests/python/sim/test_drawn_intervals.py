"""Intervals of a simulation that draws its costs contain the true costs as often as they claim.

Each figure of a table has an error, and the true cost varies around it as the table states. A study draws costs around
the table, one draw per protocol and replicate; all loads of the protocol share it. The study's results are compared
with the true costs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from iotax.analysis.cpu_model import CpuModel, LoadPoint
from iotax.analysis.model import CellModel, Layout
from iotax.analysis.replicates import ReplicateModel
from iotax.labs.sim.costs import deviates

IO = {"nfs": 50.0, "fc": 30.0}
KIB = {"nfs": 2.0, "fc": 1.0}
ERROR = 0.1
ARMS = {"nfs": ("nfs", 1.0), "fc fixed": ("fc", 1.0), "fc round robin": ("fc", 1.1)}
"""Protocol, and the factor that its path policy applies to the cost."""
SIZES = (4, 8, 16, 32)
NOISE = 0.001


def cost(io: float, kib: float, arm: str, size: int) -> float:
    return (io + kib * size) * ARMS[arm][1]


@dataclass
class Drawn:
    """A study and its true costs."""

    seed: int
    replicates: int

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        true = {name: 1 + ERROR * self.rng.standard_normal(2) for name in IO}
        self.true = {name: (IO[name] * at[0], KIB[name] * at[1]) for name, at in true.items()}

    def costs(self) -> Iterator[tuple[int, str, int, float]]:
        """Replicate, arm, size, cost of an I/O."""
        draws = {
            (protocol, what): deviates(self.seed, f"{protocol} {what}", self.replicates)
            for protocol in IO
            for what in ("io", "kib")
        }
        for at in range(self.replicates):
            for arm, (protocol, _) in ARMS.items():
                io = IO[protocol] * (1 + ERROR * draws[protocol, "io"][at])
                kib = KIB[protocol] * (1 + ERROR * draws[protocol, "kib"][at])
                for size in SIZES:
                    yield at + 1, arm, size, cost(io, kib, arm, size) * (1 + NOISE * self.rng.standard_normal())

    def true_cost(self, arm: str, size: int) -> float:
        return cost(*self.true[ARMS[arm][0]], arm, size)

    def true_log(self, weights: dict[tuple[str, int], float]) -> float:
        return sum(weight * np.log(self.true_cost(*cell)) for cell, weight in weights.items())


def model(study: Drawn, kind: type[CellModel] = ReplicateModel) -> CellModel:
    rows = [row for row in study.costs() if row[3] > 0]
    return kind(Layout([row[1:3] for row in rows], [row[0] for row in rows]), np.log([row[3] for row in rows]))


def pair(arm: str, base: str, sizes: tuple[int, ...]) -> dict[tuple[str, int], float]:
    return {(name, size): sign / len(sizes) for size in sizes for name, sign in ((arm, 1.0), (base, -1.0))}


CONTRASTS = {
    "one load": pair("nfs", "fc fixed", (8,)),
    "all loads": pair("nfs", "fc fixed", SIZES),
    "one protocol": pair("fc round robin", "fc fixed", (8,)),
}


def held(replicates: int, draws: int, kind: type[CellModel] = ReplicateModel) -> dict[str, float]:
    """How often each interval contains the true value."""
    hits = dict.fromkeys(CONTRASTS, 0)
    for seed in range(draws):
        study = Drawn(seed, replicates)
        found = model(study, kind)
        for name, weights in CONTRASTS.items():
            interval = found.contrast(weights).interval()
            assert interval is not None
            hits[name] += interval[0] <= study.true_log(weights) <= interval[1]
    return {name: count / draws for name, count in hits.items()}


def test_a_ratio_of_protocols_covers_over_one_load_and_over_all() -> None:
    found = held(10, 300)
    assert 0.91 <= found["one load"] <= 0.985
    assert 0.91 <= found["all loads"] <= 0.985


def test_levels_of_one_protocol_share_their_draws_and_are_known_by_what_differs() -> None:
    found = model(Drawn(1, 10))
    one, other = (found.contrast(CONTRASTS[name]).standard_error for name in ("one protocol", "one load"))
    assert one is not None and other is not None
    assert one < 2 * NOISE < other / 10
    assert held(10, 200)["one protocol"] > 0.9


def test_taking_runs_for_independent_would_not_cover() -> None:
    """Why replicates are the sample: the same data analysed by runs."""
    found = held(10, 200, CellModel)
    assert found["all loads"] < 0.8


@pytest.mark.long
@pytest.mark.parametrize("replicates", [2, 3, 5, 10])
def test_every_ratio_covers(replicates: int) -> None:
    for name, share in held(replicates, 2000).items():
        print(replicates, name, share)
        assert 0.93 <= share <= 0.97, (name, share)


@pytest.mark.long
@pytest.mark.parametrize("replicates", [3, 5, 10])
def test_all_ratios_to_the_baseline_hold_at_once(replicates: int) -> None:
    family = [pair(arm, "fc fixed", (size,)) for arm in ("nfs", "fc round robin") for size in SIZES]
    draws, hits = 500, 0
    for seed in range(draws):
        study = Drawn(seed, replicates)
        found = model(study)
        confidence, _ = found.together(family, [0.5] * len(family))
        intervals = [found.contrast(weights).interval(confidence) for weights in family]
        hits += all(
            each is not None and each[0] <= study.true_log(weights) <= each[1]
            for each, weights in zip(intervals, family, strict=True)
        )
    print(replicates, hits / draws)
    assert hits / draws >= 0.93


@pytest.mark.parametrize("draws", [300, pytest.param(2000, marks=pytest.mark.long)])
def test_what_loads_share_is_no_dependence_on_the_load(draws: int) -> None:
    """All loads of a protocol share one error, which must not look like a ratio that depends on the load."""
    alarms = 0
    rng = np.random.default_rng(3)
    for _ in range(draws):
        shared, slope = rng.standard_normal((2, 10, 1))
        y = 0.1 * shared + 0.01 * slope * np.arange(4) + 0.002 * rng.standard_normal((10, 4))
        cells = [(arm, size) for arm in ("a", "b") for size in range(4)] * 10
        values = np.hstack((y, 0.002 * rng.standard_normal((10, 4)))).ravel()
        found = ReplicateModel(Layout(cells, np.repeat(range(10), 8).tolist()), values)
        p = found.differ([{("a", size): 1.0, ("b", size): -1.0} for size in range(4)])
        assert p is not None
        alarms += p < 0.05
    print(draws, alarms / draws)
    assert alarms / draws < (0.1 if draws < 1000 else 0.07)


def cpu_model(study: Drawn, **how: bool) -> CpuModel:
    loads = [
        LoadPoint(arm, {"size": str(size)}, rate, 0.02 + rate * us * 1e-6, rate, replicate)
        for replicate, arm, size, us in study.costs()
        for rate in (200.0, 500.0, 800.0)
    ]
    loads += [LoadPoint("", {}, 0.0, 0.02 * (1 + 0.01 * study.rng.standard_normal()), None, 1 + at) for at in range(3)]
    return CpuModel(loads, **how)


def test_costs_at_held_rates_are_compared_by_replicates() -> None:
    whole, runs = (cpu_model(Drawn(2, 10), drawn=drawn).ratio("nfs", "fc fixed") for drawn in (True, False))
    alike = cpu_model(Drawn(2, 10), drawn=True).ratio("fc round robin", "fc fixed")
    widths = [np.log(each.high / each.low) for each in (whole, runs, alike) if each.high and each.low]
    assert widths[1] < 0.7 * widths[0]
    assert widths[2] < 0.05 * widths[0]
    assert cpu_model(Drawn(2, 10), drawn=True).lack_of_fit is None


@pytest.mark.long
@pytest.mark.parametrize("replicates", [3, 5, 10])
def test_every_comparison_of_costs_at_held_rates_covers(replicates: int) -> None:
    draws, hits = 500, dict.fromkeys(("ratio", "one protocol", "effect", "linear"), 0)
    for seed in range(draws):
        study = Drawn(seed, replicates)
        found = cpu_model(study, drawn=True)
        mean = {arm: float(np.mean([study.true_cost(arm, size) for size in SIZES])) for arm in ARMS}
        effect = next(e for e in found.effects if (e.arm, e.high) == ("nfs", "32")).ratio
        for name, estimate, truth in (
            ("ratio", found.ratio("nfs", "fc fixed"), mean["nfs"] / mean["fc fixed"]),
            ("one protocol", found.ratio("fc round robin", "fc fixed"), mean["fc round robin"] / mean["fc fixed"]),
            ("effect", effect, study.true_cost("nfs", 32) / study.true_cost("nfs", 4)),
        ):
            assert estimate.low is not None and estimate.high is not None
            hits[name] += estimate.low <= truth <= estimate.high
        hits["linear"] += found.linearity is None or found.linearity.p >= 0.05
    for name, count in hits.items():
        print(replicates, name, count / draws)
        assert count / draws >= 0.925, (name, count / draws)
