"""The CPU cost model recovers the values of its simulated data."""

import itertools
import math

import numpy as np
import pytest
from cpu_studies import PRICES, study3

from iotax.analysis.cpu_model import CpuModel, LoadPoint
from iotax.analysis.student import fieller

BACKGROUND_MOST = 0.99
"""Largest coverage allowed for the background's interval if two idle measurements determine it, or if they do not
scatter at all. HC2 estimates the scatter of few measurements from their distance to the line, and the line is not known
exactly either."""


def test_costs_ratio_background_and_effects_are_found():
    model = CpuModel(study3(np.random.default_rng(3), replicates=8, nfs_random_us=3.0))
    for arm, price in PRICES.items():
        cost = model.cost_us(arm)
        assert cost.low < price * 1.03 and cost.high > price * 0.97
        assert cost.value == pytest.approx(price, rel=0.03)
    ratio = model.ratio("nfs3", "fcp")
    assert ratio.value == pytest.approx(81 / 41, rel=0.03)
    assert ratio.low < 81 / 41 < ratio.high
    assert model.background_p < 0.001
    assert model.background_cores.value == pytest.approx(0.03, abs=0.005)
    effects = {(e.arm, e.factor): e for e in model.effects}
    assert effects["fcp", "block_size"].change_us == pytest.approx(12, abs=1.5)
    assert effects["fcp", "block_size"].ratio.low < 47 / 35 < effects["fcp", "block_size"].ratio.high
    assert effects["nfs3", "random"].change_us == pytest.approx(6, abs=2)
    assert effects["nfs3", "random"].p < 0.001
    assert effects["fcp", "random"].p > 0.01
    assert model.lack_of_fit.p > 0.01
    assert model.cost_at_us("fcp", {"block_size": "8KiB"}).value == pytest.approx(47, rel=0.04)


def test_the_equation_adds_up_to_the_cost_at_every_level():
    model = CpuModel(study3(np.random.default_rng(3), nfs_random_us=3.0))
    for arm in PRICES:
        terms = model.equation(arm)
        assert terms[0].at == ()
        assert terms[0].us == pytest.approx(model.cost_us(arm).value, rel=1e-6)
        for levels in itertools.product(*model.factors.values()):
            at = dict(zip(model.factors, levels, strict=True))
            signs = [math.prod(1 if at[name] == level else -1 for name, level in term.at) for term in terms]
            summed = sum(sign * term.us for sign, term in zip(signs, terms, strict=True))
            assert summed == pytest.approx(model.cost_at_us(arm, at).value, rel=1e-6)
    [random] = [term for term in model.equation("nfs3") if term.at == (("random", "100%"),)]
    assert random.us == pytest.approx(3, abs=1)
    assert random.t > 2


def test_a_background_that_cannot_be_told_from_none_is_kept():
    """Without idle measurements only the line gives the background, with a large error. A model that drops the
    background understates the uncertainty of the cost."""
    loads = [load for load in study3(np.random.default_rng(5), background=0.0) if load.rate_iops]
    model = CpuModel(loads)
    assert model.background_p > 0.05
    assert model.background_cores.value != 0.0
    assert model.line_cores("fcp", 24_000) == pytest.approx(
        model.background_cores.value + 0.024 * model.cost_us("fcp").value
    )


def test_a_price_that_falls_with_the_rate_is_no_line():
    straight = CpuModel(study3(np.random.default_rng(7), rates=(1000, 2500, 4000)))
    bent = CpuModel(study3(np.random.default_rng(7), rates=(1000, 2500, 4000), bend=-0.3))
    assert straight.linearity.p > 0.05
    assert bent.linearity.p < 0.001
    nfs = bent.curvatures[0]
    assert nfs.heaviest_us / nfs.lightest_us == pytest.approx(0.7 / 0.925, rel=0.1)


@pytest.mark.parametrize(("change", "bends"), [(1e-4, False), (0.02, True)])
def test_a_change_of_less_than_a_thousandth_is_no_bend_however_sure_it_is(change, bends):
    """The small scatter of a simulation, for example, makes such a change significant."""
    rng = np.random.default_rng(1)
    loads = [
        LoadPoint(arm, {}, rate, rate * us * 1e-6 * (1 + change * step / 2) * (1 + 1e-7 * rng.normal()), step, block)
        for arm, us in (("fcp", 41.0), ("nfs3", 41.0))
        for step, rate in enumerate((1000.0, 2500.0, 4000.0))
        for block in (1, 2, 3)
    ]
    loads += [LoadPoint("", {}, 0.0, 0.0, None, block) for block in (1, 2, 3)]
    model = CpuModel(loads)
    assert model.linearity.p < 0.001
    assert model.bends is bends


def test_what_one_rate_cannot_tell_is_refused():
    loads = [load for load in study3(np.random.default_rng(1)) if load.rate_iops == 1000]
    with pytest.raises(ValueError, match="too few"):
        CpuModel(loads)


def test_two_rates_without_idle_runs_cannot_show_a_curve():
    loads = [load for load in study3(np.random.default_rng(1)) if load.rate_iops > 0]
    assert CpuModel(loads).linearity is None


def test_residuals_are_shares_of_the_line_and_their_normal_places_are_ordered():
    model = CpuModel(study3(np.random.default_rng(9), replicates=5, cv=0.05))
    assert model.residual_share == pytest.approx(0.05, rel=0.25)
    assert model.prediction_share >= model.residual_share * 0.9
    by_size = sorted(model.residuals, key=lambda r: r.normal)
    assert by_size[0].share < 0 < by_size[-1].share
    assert len(by_size) == len(model.loads)


def test_fieller_matches_its_closed_form_and_says_when_it_is_unbounded():
    # Independent, with known variances and t = 2, to make the numbers simple: 10/5 with unit variances.
    low, high = fieller(10, 5, (0.0, 0.0), 0.0, 30)
    assert (low, high) == (2.0, 2.0)
    low, high = fieller(10, 5, (1.0, 0.25), 0.0, 1e9, 0.95)
    for ratio in (low, high):
        assert (10 - ratio * 5) ** 2 == pytest.approx(1.959964**2 * (1 + ratio**2 * 0.25), rel=1e-6)
    assert fieller(10, 0.4, (1.0, 0.25), 0.0, 10) is None


def coverage(draws: int, seed: int, **how) -> dict[str, float]:
    """How often each interval of the model contains the simulated value."""
    rng = np.random.default_rng(seed)
    hits: dict[str, int] = {}
    block_us = how.get("block_us", 6.0)
    background = how.get("background", 0.03)
    for _ in range(draws):
        model = CpuModel(study3(rng, **how))
        effect = next(e.ratio for e in model.effects if (e.arm, e.factor) == ("fcp", "block_size"))
        found = {
            "nfs3": (model.cost_us("nfs3"), PRICES["nfs3"]),
            "fcp": (model.cost_us("fcp"), PRICES["fcp"]),
            "fcp at 8KiB": (model.cost_at_us("fcp", {"block_size": "8KiB"}), PRICES["fcp"] + block_us),
            "ratio": (model.ratio("nfs3", "fcp"), PRICES["nfs3"] / PRICES["fcp"]),
            "effect": (effect, (PRICES["fcp"] + block_us) / (PRICES["fcp"] - block_us)),
            "background": (model.background_cores, background),
        }
        for what, (estimate, truth) in found.items():
            hits[what] = hits.get(what, 0) + (estimate.low is None or estimate.low <= truth <= estimate.high)
    return {what: count / draws for what, count in hits.items()}


def test_intervals_of_the_model_cover():
    """With 300 draws, 95 % minus three standard errors is 91.2 %."""
    for what, covered in coverage(300, 10).items():
        assert covered >= 0.912, (what, covered)


@pytest.mark.long
@pytest.mark.parametrize("block_cv", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("replicates", [2, 3, 5])
def test_every_interval_of_the_model_covers_over_few_blocks_that_drift_or_do_not(replicates, block_cv):
    """10,000 draws estimate the coverage to ±0.4 %."""
    for what, covered in coverage(10_000, 11, replicates=replicates, block_cv=block_cv).items():
        print(what, covered)
        least = 0.935 if replicates == 2 else 0.94
        assert least <= covered <= (BACKGROUND_MOST if (what, replicates) == ("background", 2) else 0.97), (
            what,
            covered,
        )


@pytest.mark.long
@pytest.mark.parametrize(
    ("replicates", "how"),
    [(2, {"background": 0.0}), (3, {"background": 0.0}), (5, {"background": 0.0}), (3, {"block_us": 25.0})],
)
def test_every_interval_covers_without_background_and_with_a_large_effect(replicates, how):
    for what, covered in coverage(10_000, 12, replicates=replicates, **how).items():
        print(what, covered)
        still = what == "background" and how.get("background") == 0.0
        least = 0.935 if replicates == 2 else 0.94
        assert least <= covered <= (BACKGROUND_MOST if still else 0.97), (what, covered)


def test_a_price_that_one_block_alone_carries_has_no_interval():
    loads = study3(np.random.default_rng(13), replicates=2)
    cut = CpuModel([load for load in loads if load.block == 1 or load.order < 40])
    assert cut.cost_us("fcp").low is None
    assert cut.ratio("nfs3", "fcp").low is not None


def test_a_block_of_which_only_the_idle_machine_was_measured_changes_nothing_else():
    loads = study3(np.random.default_rng(14), replicates=3)
    more = CpuModel([*loads, LoadPoint("", {}, 0.0, 0.03, block=4)])
    assert more.cost_us("fcp").value == pytest.approx(CpuModel(loads).cost_us("fcp").value, rel=0.01)
    assert more.cost_us("fcp").high / more.cost_us("fcp").low < 1.5


def test_a_price_carries_the_drift_between_blocks_and_a_ratio_does_not():
    rng = np.random.default_rng(12)
    calm, drifting = (CpuModel(study3(rng, replicates=6, block_cv=cv)) for cv in (0.0, 0.1))

    def width(estimate):
        return estimate.high / estimate.low - 1

    assert width(drifting.cost_us("nfs3")) > 5 * width(calm.cost_us("nfs3"))
    assert width(drifting.ratio("nfs3", "fcp")) < 2 * width(calm.ratio("nfs3", "fcp"))
