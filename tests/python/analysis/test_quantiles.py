"""Latency quantiles and shift functions recover the simulated values."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from iotax.analysis import histogram, summarise
from iotax.analysis.quantiles import QUANTILES_PERCENT, SHIFT_PERCENT, quantiles, shift, unpaired_shift
from report.factory import Simulation, study

SPREAD = 0.5
TOLD = [50.0, 90.0, 95.0, 99.0]
"""Percentiles printed for runs of 4,000 I/Os: at least twenty I/Os are beyond each."""


class Drawn:
    """What `quantiles` uses of a run: a block, and latencies in the recorder's bins."""

    def __init__(self, block, median_ns, ios, rng):
        self.trial = type("Trial", (), {"block": block})
        drawn = np.sort(median_ns * np.exp(SPREAD * rng.standard_normal(ios)))
        digits = 10.0 ** (np.floor(np.log10(drawn)) - 3)
        values, counts = np.unique(np.ceil(drawn / digits) * digits, return_counts=True)
        self.latency = histogram.LatencyBins(values, counts, 0.001)


def runs(rng, blocks, *, median_ns=50_000.0, run_sd=0.05, drift=None, ios=4_000):
    drift = np.zeros(blocks) if drift is None else drift
    return [
        Drawn(b + 1, median_ns * math.exp(drift[b] + run_sd * rng.standard_normal()), ios, rng) for b in range(blocks)
    ]


def truth_us(percent, median_ns, run_sd):
    """Quantile of the population from which runs and their I/Os are drawn."""
    return median_ns / 1e3 * math.exp(norm.ppf(percent / 100) * math.hypot(SPREAD, run_sd))


def quantile_coverage(blocks, draws, seed=1):
    rng = np.random.default_rng(seed)
    hits = dict.fromkeys((50.0, 95.0, 99.0), 0)
    for _ in range(draws):
        for found in quantiles(runs(rng, blocks), list(hits)):
            true = truth_us(found.percent, 50_000, 0.05)
            hits[found.percent] += found.value_us.low <= true <= found.value_us.high
    return {percent: count / draws for percent, count in hits.items()}


def shift_coverage(blocks, draws, of, drift_sd=0.0, seed=2):
    rng = np.random.default_rng(seed)
    hits = np.zeros((2, len(SHIFT_PERCENT) - 1))
    for _ in range(draws):
        drift = drift_sd * rng.standard_normal(blocks)
        slow = runs(rng, blocks, median_ns=60_000, drift=drift)
        found = of("b", "", slow, runs(rng, blocks, drift=drift))
        for i, point in enumerate(found.points):
            hits[0, i] += point.ratio.low <= 1.2 <= point.ratio.high
            base = truth_us(point.percent, 50_000, math.hypot(0.05, drift_sd))
            hits[1, i] += point.difference_us.low <= 0.2 * base <= point.difference_us.high
    return hits / draws


def test_a_quantile_is_that_of_merged_counts():
    found = runs(np.random.default_rng(3), 4)
    merged = histogram.merge(run.latency for run in found)
    for each in quantiles(found, TOLD):
        assert each.value_us.value == pytest.approx(merged.percentile_ns(each.percent) / 1e3)
        assert each.value_us.low < each.value_us.value < each.value_us.high


def test_quantiles_that_too_few_ios_carry_are_left_out():
    found = quantiles(runs(np.random.default_rng(4), 3, ios=200))
    assert [each.percent for each in found] == [50, 90, 95, 99]
    assert [each.percent for each in quantiles(runs(np.random.default_rng(4), 3, ios=10))] == [50]


def test_one_run_gives_a_quantile_without_an_interval():
    found = quantiles(runs(np.random.default_rng(5), 1))
    assert found[0].value_us.low is None


def test_equal_runs_are_known_no_better_than_their_bins():
    one = runs(np.random.default_rng(6), 1)[0]
    for each in quantiles([one, one, one], TOLD):
        assert each.value_us.high / each.value_us.low - 1 > 0.001


def test_interval_of_a_quantile_covers():
    for covered in quantile_coverage(5, 200).values():
        assert 0.90 <= covered <= 0.99


def test_interval_of_a_shift_covers():
    assert np.all(shift_coverage(5, 150, shift, drift_sd=0.1) >= 0.89)
    assert np.all(shift_coverage(5, 150, unpaired_shift) >= 0.89)


def test_a_drift_that_blocks_share_does_not_widen_a_paired_shift():
    rng = np.random.default_rng(7)
    drift = 0.3 * rng.standard_normal(6)
    pair = runs(rng, 6, drift=drift, run_sd=0.01), runs(rng, 6, drift=drift, run_sd=0.01)
    paired, apart = shift("b", "", *pair), unpaired_shift("b", "", *pair)
    for narrow, wide in zip(paired.points[:9], apart.points[:9], strict=True):
        assert narrow.ratio.high - narrow.ratio.low < (wide.ratio.high - wide.ratio.low) / 3


def test_a_slow_tail_shows_in_the_tail_alone():
    rng = np.random.default_rng(8)
    base, other = runs(rng, 5, run_sd=0.005), runs(rng, 5, run_sd=0.005)
    for run in other:
        values = run.latency.values_ns.copy()
        values[np.cumsum(run.latency.counts) > 0.98 * run.latency.total] *= 3
        run.latency = histogram.LatencyBins(values, run.latency.counts, 0.001)
    points = {point.percent: point for point in shift("b", "", other, base).points}
    assert points[50.0].p > 0.05
    assert points[99.0].p < 0.01
    assert points[99.0].ratio.value == pytest.approx(3, rel=0.1)


def test_summary_gives_quantiles_of_cells_and_shifts_against_the_baseline():
    summary = summarise(Simulation().data(study()))
    cell = summary.cells[5]
    assert [each.percent for each in cell.quantiles] == list(QUANTILES_PERCENT)
    assert cell.quantiles[3].value_us.value == pytest.approx(cell.latency.percentile_ns(99) / 1e3)
    assert {(s.arm, s.condition) for s in summary.shifts} == {
        (c.arm, c.condition) for c in summary.cells if c.arm not in ("iscsi", "local")
    }
    assert [point.percent for point in summary.shifts[0].points] == list(SHIFT_PERCENT)


@pytest.mark.long
@pytest.mark.parametrize("blocks", [2, 3, 5, 10])
def test_intervals_of_quantiles_and_shifts_cover_as_they_say(blocks):
    for covered in quantile_coverage(blocks, 1000).values():
        assert 0.93 <= covered <= 0.97
    paired, apart = shift_coverage(blocks, 1000, shift, drift_sd=0.1), shift_coverage(blocks, 1000, unpaired_shift)
    print(paired, apart)
    # By chance, the extremes of 24 intervals are ±1.4 % away.
    assert np.all((paired >= 0.93) & (paired <= 0.975))
    # Welch with few runs and unequal scatter: see MOST in test_printed_intervals.py.
    assert np.all((apart >= 0.93) & (apart <= {2: 0.99, 3: 0.985}.get(blocks, 0.975)))
