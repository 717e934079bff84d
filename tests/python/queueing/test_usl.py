import math

import numpy as np
import pytest

from iotax.queueing import fit_usl

# specsdm91: SPEC SDM91 throughput (scripts/hour) over load.
N = [1, 18, 36, 72, 108, 144, 216]
X = [64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775, 1702.2]


def test_usl_reproduces_specsdm91():
    fit = fit_usl(N, X)
    assert fit.alpha.value == pytest.approx(0.0277285, rel=1e-4)
    assert fit.alpha.standard_error == pytest.approx(0.0091217, rel=1e-3)
    assert fit.beta.value == pytest.approx(1.04365e-4, rel=1e-4)
    assert fit.beta.standard_error == pytest.approx(1.98753e-5, rel=1e-3)
    assert fit.gamma.value == pytest.approx(89.99523, rel=1e-4)
    assert fit.gamma.standard_error == pytest.approx(14.2135, rel=1e-3)
    assert fit.peak_n == pytest.approx(96.5196, rel=1e-4)
    assert fit.residual_df == 4
    # t(4) at 97.5 % is 2.776445.
    assert fit.alpha.high == pytest.approx(0.0277285 + 2.776445 * 0.0091217, rel=1e-3)


def test_linear_scaling_puts_both_penalties_on_their_bound():
    fit = fit_usl([1, 2, 4, 8, 16], [100, 200, 400, 800, 1600])
    assert fit.alpha.value == pytest.approx(0, abs=1e-6)
    assert fit.beta.value == pytest.approx(0, abs=1e-6)
    assert fit.throughput(32) == pytest.approx(3200, rel=1e-3)


def test_super_linear_data_never_give_a_negative_penalty():
    fit = fit_usl([1, 2, 4, 8, 16], [100, 210, 450, 1000, 2300])
    assert fit.alpha.value >= 0
    assert fit.beta.value >= 0
    assert math.isinf(fit.peak_n)


def test_four_points_are_descriptive_only():
    assert fit_usl(N[:4], X[:4]).descriptive_only
    assert not fit_usl(N, X).descriptive_only


def test_two_points_are_refused():
    with pytest.raises(ValueError, match="three"):
        fit_usl([1, 2], [1, 2])


@pytest.mark.long
@pytest.mark.parametrize(
    ("alpha", "beta", "scatter"), [(0.0277, 1.04e-4, 40.0), (0.0277, 1.04e-4, 10.0), (0.1, 1e-3, 10.0)]
)
def test_intervals_cover_where_throughputs_scatter_evenly(alpha, beta, scatter):
    """As least squares takes it to be. The law's parameters stand on 7 points, hence t(4)."""
    rng, n, gamma = np.random.default_rng(8), np.array(N), 90.0
    true = gamma * n / (1 + alpha * (n - 1) + beta * n * (n - 1))
    hits = np.zeros(3)
    for _ in range(1000):
        fit = fit_usl(N, np.maximum(true + scatter * rng.standard_normal(len(n)), 1.0))
        for i, (found, truth) in enumerate(((fit.alpha, alpha), (fit.beta, beta), (fit.gamma, gamma))):
            hits[i] += found.low is None or found.low <= truth <= found.high
    print(hits / 1000)
    assert np.all((hits / 1000 >= 0.93) & (hits / 1000 <= 0.97)), hits / 1000
