"""The precision of a run: half-widths of its intervals."""

from __future__ import annotations

from statistics import median

import pytest

from iotax.analysis import Estimate, summarise
from iotax.analysis.precision import half_width_percent, precisions
from report.factory import Simulation, study


def test_half_width_is_by_ratio_and_none_without_an_interval() -> None:
    assert half_width_percent(Estimate(1.0, 1 / 1.05, 1.05)) == pytest.approx(5)
    assert half_width_percent(Estimate(2.0, 2 / 1.02, 2 * 1.02)) == pytest.approx(2)
    assert half_width_percent(Estimate(1.0, None, None)) is None


def test_precision_is_of_the_widest_arm_and_of_single_loads_without_local() -> None:
    summary = summarise(Simulation(seed=3).data(study()))
    found = {each.response.key: each for each in precisions(summary)}
    assert {"iops", "latency_p50", "latency_p99", "cpu", "cpu_initiator", "cpu_target"} <= set(found)
    for key in ("iops", "cpu"):
        cells = [
            half_width_percent(c.ratio)
            for c in summary.comparisons
            if c.response.key == key and c.arm in ("nfs3", "nvme-tcp")
        ]
        assert len(cells) == 6
        widths = [width for width in cells if width is not None]
        assert found[key].cell_median_percent == pytest.approx(median(widths))
        assert found[key].cell_worst_percent == pytest.approx(max(widths))
        overall = [half_width_percent(o.comparison.ratio) or 0 for o in summary.overalls if o.response.key == key]
        assert found[key].overall_percent == pytest.approx(max(overall))


def test_one_replicate_has_no_precision() -> None:
    found = precisions(summarise(Simulation().data(study(design={"replicates": 1}))))
    assert found
    assert all(each.overall_percent is None and each.cell_worst_percent is None for each in found)
