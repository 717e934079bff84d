"""CPU per I/O depends on the load, so sizing uses a measured load and names it."""

from __future__ import annotations

import math
import re

import pytest

from iotax.analysis import summarise
from iotax.analysis.cost import NEAR
from iotax.study import Study
from iotax.wording import comparable, cost_cautions, not_sized
from report.factory import COST, Simulation, study


@pytest.fixture(scope="module")
def quick():
    return summarise(Simulation().data(study()))


@pytest.mark.parametrize("rate_iops", [15_000, 70_000, 120_000])
def test_each_size_is_taken_from_one_load_near_the_rate(quick, rate_iops):
    found = quick.sizing(rate_iops).costs
    assert found
    for cost in found:
        cells = [c for c in quick.cells if c.arm == cost.arm]
        own = next(c for c in cells if c.condition == cost.condition)
        assert cost.cost_us == own.values["cpu"]
        off = [abs(math.log(c.values["iops"].value / rate_iops)) for c in cells]
        assert abs(math.log(own.values["iops"].value / rate_iops)) == min(off) <= math.log(NEAR)
        assert f"nearest to {rate_iops:,} IOPS ({cost.condition}, " in cost.source


def test_a_rate_that_no_load_came_near_is_refused_with_the_nearest(quick):
    found = quick.sizing(1_000_000)
    assert found.costs == []
    assert len(found.reasons) == 3
    [line] = not_sized(found)
    reason, _, nearest = line.partition("; nearest: ")
    assert reason.endswith("within a factor of 2 of 1,000,000 IOPS")
    assert re.findall(r"([\w/]+) [\d,]+ IOPS \(outstanding 32\)", nearest) == ["NFSv3", "iSCSI", "NVMe/TCP"]


def test_loads_of_unequal_blocks_are_not_mixed():
    of = study(factors={"protocol": ["nfs3", "iscsi"], "outstanding": [1, 8], "block_size": ["4KiB", "64KiB"]})
    summary = summarise(Simulation().data(of))
    for rate_iops in (10_000, 40_000, 70_000, 110_000):
        sizes = {cost.condition.partition("block size ")[2] for cost in summary.sizing(rate_iops).costs}
        assert len(sizes) <= 1


def test_a_line_holds_for_other_rates_and_says_so():
    found = summarise(Simulation().data(Study.model_validate(COST))).sizing(70_000)
    assert found.reasons == ()
    assert all("taken as a line to 70,000" in cost.source for cost in found.costs)
    near = summarise(Simulation().data(Study.model_validate(COST))).sizing(3_000)
    assert not any("taken as a line" in cost.source for cost in near.costs)


@pytest.fixture(scope="module")
def bent():
    """Each I/O costs three times as much at 1,000 IOPS as at 4,000."""
    data = Simulation().data(Study.model_validate(COST))
    attempts = []
    for each in data.attempts:
        factor = {1000: 3.0, 2500: 1.5, 4000: 1.0}[each.trial.treatment["rate_iops"]]
        cpu = type(each.result.cpu)(
            [
                part.model_copy(update={"busy_ns": round(part.busy_ns * factor)}) if part.layer == "process" else part
                for part in each.result.cpu
            ]
        )
        result = each.result.model_copy(update={"cpu": cpu})
        attempts.append(each.model_copy(update={"result": result}))
    return summarise(type(data)(data.study, attempts, data.planned, data.backgrounds, data.environment))


def test_a_price_that_bends_is_taken_at_the_nearest_held_rate_or_refused(bent):
    assert bent.costs.model.linearity.p < 0.05
    light, heavy = (bent.sizing(rate).costs for rate in (1_000, 4_000))
    assert "at the held rate nearest to 4,000 IOPS" in heavy[0].source
    assert light[0].cost_us.value / heavy[0].cost_us.value == pytest.approx(3, rel=0.1)
    assert heavy[0].cost_us.low is not None
    far = bent.sizing(70_000)
    assert far.costs == []
    assert "no rate within a factor of 2 of 70,000 IOPS was held; nearest: 4,000" in not_sized(far)[0]


def test_doubt_and_a_missing_interval_are_said_with_the_size():
    of = study()
    summary = summarise(Simulation(unsteady=["nfs3/8/r1", "nfs3/8/r2"]).data(of))
    assert cost_cautions(summary.sizing(70_000).costs) == ["NFSv3: 2 of these 3 runs are doubtful (steady state)."]
    alone = summarise(Simulation().data(study(design={"replicates": 1, "blocks": "none", "seed": 1})))
    said = cost_cautions(alone.sizing(70_000).costs)
    assert "NFSv3, iSCSI and NVMe/TCP: CPU per I/O has no interval: too few runs." in said
    assert not comparable(alone.sizing(70_000).costs)
