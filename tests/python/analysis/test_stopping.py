"""`stop:` ends a study when intervals are narrow enough.

Studies then end when the scatter looks small, so plain 95 % intervals would cover less than 95 %. The rule's intervals
are wider, and cover 95 %.
"""

from __future__ import annotations

import numpy as np
import pytest
from cell_models import OneModel, design
from scipy.stats import t as student

from iotax.analysis import StudyData, summarise
from iotax.analysis.compare import _judge
from iotax.analysis.cost import cpu_costs
from iotax.analysis.model import CellModel
from iotax.analysis.multiplicity import stopped_confidence
from iotax.analysis.precision import half_width
from report.factory import COST, Simulation, study

MOST = 60
"""Most replicates; more make no difference."""


def worst(at_least: int, confidence: float, draws: int, seed: int = 34) -> tuple[float, float]:
    """Coverage and false alarms of the interval at which the rule ends, for one ratio of two paired arms. The
    half-width, in standard deviations, is the one with the worst coverage."""
    values = np.random.default_rng(seed).standard_normal((draws, MOST))
    count = np.arange(1, MOST + 1)
    mean, squares = np.cumsum(values, axis=1) / count, np.cumsum(values**2, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(np.maximum(squares - count * mean**2, 0) / (count - 1) / count)
        reach = error * student.ppf((1 + confidence) / 2, count - 1)
    mean, reach = mean[:, at_least - 1 :], reach[:, at_least - 1 :]
    found = []
    for replicates in np.geomspace(0.6 * at_least, 1.5 * MOST, 14):
        narrow = reach <= 1.96 / np.sqrt(replicates)
        narrow[:, -1] = True
        end = np.arange(draws), narrow.argmax(axis=1)
        found.append(float(np.mean(np.abs(mean[end]) <= reach[end])))
    return min(found), 1 - min(found)


@pytest.mark.parametrize("at_least", [2, 3, 5, 10, 20])
def test_a_ratio_holds_with_95_percent_where_its_width_ends_the_study(at_least: int) -> None:
    """10,000 draws estimate the coverage to ±0.4 %; the worst of 14 half-widths is slightly below its own rate."""
    covered, alarms = worst(at_least, stopped_confidence(at_least), 10_000)
    assert covered >= 0.945, covered
    assert alarms <= 0.055


@pytest.mark.long
@pytest.mark.parametrize("at_least", [2, 3, 4, 5, 6, 8, 10, 15, 20, 30])
def test_a_ratio_holds_with_95_percent_from_every_number_on(at_least: int) -> None:
    covered, _ = worst(at_least, stopped_confidence(at_least), 100_000)
    assert 0.948 <= covered <= 0.955, covered


def test_intervals_of_plain_95_percent_would_cover_90() -> None:
    covered, _ = worst(3, 0.95, 10_000)
    assert covered < 0.91


def stopped(rng: np.random.Generator, arms: int, at_least: int, width: float, sds: np.ndarray) -> bool:
    """Whether all ratios contain the true value when the real rule ends a study of these arms."""
    values = rng.normal(size=(16, arms)) * sds + rng.normal(0, 0.05, (16, 1))
    family = [{arm: 1.0, 0: -1.0} for arm in range(1, arms)]
    for blocks in range(at_least, 17):
        stub = OneModel(CellModel(design(arms, blocks), values[:blocks].T.ravel()))
        stub.confidence = stopped_confidence(at_least)
        found = [each.ratio for each in _judge(stub, family, 5)]
        if blocks == 16 or max(each.high / each.low for each in found) <= np.exp(2 * width):
            return all(each.low <= 1 <= each.high for each in found)
    raise AssertionError


@pytest.mark.long
@pytest.mark.parametrize("width", [0.025, 0.035, 0.05])
@pytest.mark.parametrize(("arms", "noisy"), [(2, 1), (3, 1), (4, 1), (4, 3)])
def test_all_ratios_hold_at_once_with_95_percent_where_the_widest_ends_the_study(
    arms: int, noisy: float, width: float
) -> None:
    """Uses the blocked model, its errors and its family; 2,000 draws estimate the coverage to ±1 %."""
    sds = np.full(arms, 0.02)
    sds[-1] *= noisy
    rng = np.random.default_rng(35)
    assert np.mean([stopped(rng, arms, 3, width, sds) for _ in range(2000)]) >= 0.935


def stopping(at_least: int, replicates: int = 9) -> StudyData:
    design = {"replicates": replicates, "stop": {"half_width": "3%", "at_least": at_least}}
    return Simulation(seed=7).data(study(design=design))


def test_a_study_that_may_stop_prints_the_intervals_that_its_rule_asks() -> None:
    found = stopping(3)
    assert found.confidence == 0.98
    summary = summarise(found)
    widths = [c.ratio.high / c.ratio.low for c in summary.comparisons if c.response is summary.responses[0]]
    assert half_width(found) == pytest.approx(max(widths) ** 0.5 - 1)
    plain = summarise(Simulation(seed=7).data(study(design={"replicates": 9})))
    assert all(
        one.ratio.high / one.ratio.low < other.ratio.high / other.ratio.low
        for one, other in zip(plain.comparisons, summary.comparisons, strict=True)
    )


def test_a_study_that_runs_all_its_replicates_in_any_case_has_plain_intervals() -> None:
    assert stopping(9).confidence == 0.95


def test_quantiles_shifts_and_the_price_of_an_io_are_as_wide_as_the_rule_wants() -> None:
    """With `stop:` these intervals have the rule's confidence, 98 % here, so they are wider."""
    found = []
    for stop in ({}, {"stop": {"half_width": "0.01%", "at_least": 3}}):
        asked = study(**COST | {"design": COST["design"] | {"replicates": 4} | stop})
        data = Simulation(block_cv=0.02).data(asked)
        summary = summarise(data)
        costs = cpu_costs(data, summary.grid)
        assert costs is not None
        intervals = {("price", arm): costs.model.cost_us(arm) for arm in costs.model.arms}
        intervals |= {("ratio", "price"): costs.model.ratio("nfs3", "iscsi")}
        intervals |= {(cell.cell, each.percent): each.value_us for cell in summary.cells for each in cell.quantiles}
        intervals |= {
            (one.arm, one.condition, each.percent): each.ratio for one in summary.shifts for each in one.points
        }
        found.append(intervals)
    plain, wide = found
    assert plain.keys() == wide.keys()
    known = [key for key in plain if plain[key].low is not None]
    assert len(known) > 40
    assert any(key[0] == "price" for key in known)
    for key in known:
        assert wide[key].value == plain[key].value
        assert wide[key].low < plain[key].low < plain[key].high < wide[key].high, key
