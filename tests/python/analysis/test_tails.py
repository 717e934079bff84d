"""Verdicts on tails are wrong as rarely as stated: recorded sessions without any difference, and tails of few I/Os.

`recorded_tails.json` has two pools of sessions, measured in turns over real sockets on a busy virtual machine with two
processors. Of their four arms the first two are one protocol (iSCSI), the last two another (NVMe/TCP), so nothing
differs within a pair. `percentiles_ns` is session × arm × percentile; `pooled` are the counts of all sessions.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cell_models import design, intervals
from scipy.stats import t as student

from iotax.analysis import StudyData, histogram, summarise
from iotax.analysis.compare import LayoutCache, Model, compare
from iotax.analysis.data import Grid
from iotax.analysis.quantiles import quantiles, shift
from iotax.analysis.responses import P99, P999
from iotax.analysis.verdict import Cause
from report.factory import Simulation, study

DRAWS = 10_000
ALARMS_MAX = 0.055
"""5 % of 10,000 draws, plus two standard errors."""


@cache
def recorded() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("recorded_tails.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("outstanding", [1, 32])
@pytest.mark.parametrize("sessions", [3, 4, 6, 10])
def test_equal_arms_of_recorded_sessions_are_told_apart_at_most_once_in_twenty_at_every_percentile(
    outstanding: int, sessions: int
) -> None:
    """Studies with sessions drawn from a pool; the order of the arms of a pair is random too."""
    pool = recorded()["pools"][str(outstanding)]
    logs = np.log(np.array(pool["percentiles_ns"], dtype=float))
    rng, layout = np.random.default_rng(34), design(2, sessions)
    for at, percent in enumerate(pool["percent"]):
        pairs = logs[:, :, at].reshape(-1, 2)
        drawn = pairs[rng.integers(len(pairs), size=(DRAWS, sessions))]
        swapped = rng.random((DRAWS, sessions, 1)) < 0.5
        drawn = np.where(swapped, drawn[:, :, ::-1], drawn)
        low, high = intervals(layout, drawn.transpose(0, 2, 1).reshape(DRAWS, -1), {1: 1.0, 0: -1.0})
        alarms = float(np.mean((low > 0) | (high < 0)))
        print(outstanding, sessions, percent, alarms)
        assert alarms <= ALARMS_MAX, (percent, alarms)


def covered(percent: float, beyond: int, sessions: int, times: int) -> float:
    """How often the ratio's interval contains 1 if both sides have one distribution, and one side `times` as many I/Os.
    On the other side `beyond` I/Os are beyond the percentile. Sessions scatter by 2 %."""
    values, counts = np.array(recorded()["pooled"]).T
    share = np.cumsum(counts) / counts.sum()
    rng, count = np.random.default_rng(beyond), round(beyond / (1 - percent / 100))

    def logs(ios: int) -> np.ndarray:
        # The value of a rank is at a quantile that is beta distributed.
        rank = histogram.trial.rank(percent, ios)
        at = rng.beta(rank, ios - rank + 1, (DRAWS, sessions))
        return np.log(values[np.searchsorted(share, at)])

    off = logs(times * count) - logs(count) + rng.normal(0, 0.02, (DRAWS, sessions))
    reach = student.ppf(0.975, sessions - 1) * off.std(axis=1, ddof=1) / np.sqrt(sessions)
    return float(np.mean(np.abs(off.mean(axis=1)) <= reach))


@pytest.mark.parametrize("percent", [95, 99, 99.9])
@pytest.mark.parametrize("sessions", [3, 4, 10])
def test_a_ratio_of_tails_holds_where_enough_ios_lie_beyond(percent: float, sessions: int) -> None:
    for times in (1, 2, 4):
        assert covered(percent, histogram.TAIL_MIN, sessions, times) >= 0.94, times


def test_a_ratio_of_tails_of_one_io_does_not_hold() -> None:
    assert covered(99.9, 1, 10, 4) < 0.92


def short(runtime: str) -> StudyData:
    load = {"block_size": "4KiB", "read": "75%", "random": "100%", "warmup": "300ms", "runtime": runtime}
    return Simulation().data(study(factors={"protocol": ["nfs3", "iscsi"], "outstanding": [8]}, load=load))


def test_a_tail_of_few_ios_gets_no_verdict_and_no_interval() -> None:
    data = short("150ms")
    assert all(run.result.ios * 0.01 >= 20 and run.result.ios * 0.001 < 20 for run in data.runs)
    grid = Grid(data.study)
    [tail] = compare(Model(P999, grid, data, LayoutCache()), 5)
    assert tail.verdict is None
    assert tail.withheld is not None
    assert tail.withheld.cause is Cause.COUNTS
    [body] = compare(Model(P99, grid, data, LayoutCache()), 5)
    assert body.verdict is not None
    nfs, iscsi = ([run for run in data.runs if run.trial.treatment["protocol"] == name] for name in ("nfs3", "iscsi"))
    known = {each.percent: each.value_us.low is not None for each in quantiles(nfs)}
    assert known[99.0]
    assert not known[99.9]
    assert 99.9 not in [point.percent for point in shift("nfs3", "", nfs, iscsi).points]


def test_a_tail_of_many_ios_gets_a_verdict() -> None:
    data = short("8s")
    [tail] = compare(Model(P999, Grid(data.study), data, LayoutCache()), 5)
    assert tail.verdict is not None
    [cell, _] = summarise(data).cells
    assert {each.percent: each.value_us.low is not None for each in cell.quantiles}[99.9]
