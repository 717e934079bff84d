import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from iotax import trial
from iotax.analysis import histogram


def make(pairs):
    return histogram.of(trial.Histogram(counts=pairs))


def test_merged_percentile_is_that_of_all_ios_not_the_mean_of_percentiles():
    quick = make([(100, 990), (200, 10)])
    slow = make([(100, 10), (5000, 10)])
    merged = histogram.merge([quick, slow])
    assert merged.total == 1020
    assert merged.percentile_ns(99) == 200
    assert (quick.percentile_ns(99) + slow.percentile_ns(99)) / 2 == 2550


def test_reads_and_writes_of_a_run_add_up():
    both = histogram.of(trial.Histogram(counts=[(10, 1), (30, 2)]), trial.Histogram(counts=[(10, 3)]))
    assert both.values_ns.tolist() == [10, 30]
    assert both.counts.tolist() == [4, 2]


def test_bin_error_follows_from_the_significant_digits():
    assert histogram.of(trial.Histogram(significant_digits=2, counts=[(10, 1)])).bin_error == pytest.approx(0.01)
    assert histogram.merge([make([(1, 1)]), make([(1, 1)])]).bin_error == pytest.approx(0.001)


def test_curve_ends_at_the_maximum_and_leaves_out_what_no_count_supports():
    curve = make([(10, 999), (70, 1)]).curve()
    assert curve[-1] == (100, 70)
    assert max(p for p, _ in curve[:-1]) == 99.9


def test_nothing_measured_has_no_percentiles():
    empty = histogram.merge([])
    assert np.isnan(empty.percentile_ns(50))
    assert np.isnan(empty.mean_ns())
    assert empty.curve() == []
    assert empty.percentile_interval_ns(50) is None


@pytest.mark.parametrize("total", [400, 99_999, 10**7])
@pytest.mark.parametrize("percent", [0.5, 50, 99, 99.9])
def test_percentile_interval_lies_at_quantiles_of_the_binomial(total: int, percent: float) -> None:
    # Each value occurs once, so an I/O's value is its rank.
    places = histogram.of(trial.Histogram(counts=[(1, total)]))
    object.__setattr__(places, "_nth_ns", float)
    low, high = (int(binom.ppf(tail, total, percent / 100)) for tail in (0.025, 0.975))
    expected = None if low < 1 or high + 1 > total else (low, high + 1)
    assert places.percentile_interval_ns(percent) == expected


def test_percentile_interval_covers_the_percentile_at_its_confidence():
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(1000):
        values, counts = np.unique(rng.integers(0, 1_000_000, 500), return_counts=True)
        low, high = histogram.LatencyBins(values, counts, 0.0).percentile_interval_ns(95)
        hits += low <= 950_000 <= high
    assert 0.93 <= hits / 1000 <= 0.97


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 1000)), min_size=1, max_size=30))
def test_percentiles_agree_with_the_records_own(pairs):
    ours = make(pairs)
    # As with reads and writes: separate, and in any order.
    parts = [trial.Histogram(counts=some) for some in (pairs[::2], pairs[1::2])]
    each_io = sorted(value for value, count in pairs for _ in range(count))
    for percent in (0.1, 50, 99, 99.9, 100):
        wanted = each_io[max(0, math.ceil(percent / 100 * len(each_io) - 1e-9) - 1)]
        assert ours.percentile_ns(percent) == trial.percentile(percent, *parts) == wanted


def test_a_histogram_without_counts_has_no_percentile():
    assert math.isnan(trial.percentile(50))
    assert math.isnan(trial.percentile(50, trial.Histogram(), trial.Histogram(counts=[(5, 0)])))
