"""The intervals that a search prints hold the truth: of a winner's fresh runs, and of winners against each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import ttest_rel

from iotax.analysis.search import Winner, against_baseline, next_trials, winners
from iotax.design import plan
from iotax.study import Study
from iotax.trial import Attempt, Trial, TrialResult
from report.factory import Simulation, study

KNEE_IOPS = {"nfs3": 40_000.0, "iscsi": 52_000.0}
CAPACITY_IOPS = {"nfs3": 60_000.0, "iscsi": 75_000.0}
SCATTER = 0.02

Machine = Callable[[Trial], tuple[float, float]]
"""What a run shows: its IOPS, and its latency in µs."""


def searched(**search: object) -> Study:
    factors: dict[str, object] = {"protocol": ["nfs3", "iscsi"]}
    load: dict[str, object] = {"warmup": "0s", "runtime": "1s"}
    if "rate_max" in search:
        load["outstanding"] = 64
    else:
        factors["outstanding"] = [4, 16, 64]
    return study(factors=factors, load=load, search={"latency_max": "1ms", "percentile": 99, **search})


def found_by(of: Study, machine: Machine, template: TrialResult) -> list[Winner]:
    """The whole search, run by run as the runner does it."""
    trials = list(plan(of).trials)
    attempts: list[Attempt] = []
    while True:
        for trial in trials[len(attempts) :]:
            rate_iops, latency_us = machine(trial)
            ios, ns = round(rate_iops * 1000), round(latency_us * 1000)
            window = template.window.model_copy(update={"duration_ns": 1_000_000_000_000})
            histogram = template.read.histogram.model_copy(update={"counts": [(ns, ios)]})
            read = template.read.model_copy(update={"ios": ios, "histogram": histogram})
            write = template.write.model_copy(
                update={"ios": 0, "histogram": histogram.model_copy(update={"counts": []})}
            )
            result = template.model_copy(update={"read": read, "write": write, "window": window})
            attempts.append(
                Attempt(
                    trial=trial, number=1, status="done", reason="", started_unix_ns=0, ended_unix_ns=1, result=result
                )
            )
        more = next_trials(of, trials, attempts)
        if not more:
            return winners(of, attempts)
        trials += more


def knee(rng: np.random.Generator, drift: dict[int, float]) -> Machine:
    """Up to the knee the rate is held; what is read of it scatters. Beyond, latency is above the objective."""

    def run(trial: Trial) -> tuple[float, float]:
        rate_iops = float(str(trial.treatment["rate_iops"]))
        held = rate_iops <= KNEE_IOPS[str(trial.treatment["protocol"])]
        return rate_iops * drift[trial.block] * rng.lognormal(0, SCATTER), 500.0 if held else 2000.0

    return run


def best_load(rng: np.random.Generator, drift: dict[int, float]) -> Machine:
    """16 outstanding are best: 4 are fewer IOPS, 64 take too long."""

    def run(trial: Trial) -> tuple[float, float]:
        outstanding = int(str(trial.treatment["outstanding"]))
        capacity = CAPACITY_IOPS[str(trial.treatment["protocol"])] * (0.5 if outstanding == 4 else 1.0)
        rate_iops = capacity * drift[trial.block] * rng.lognormal(0, SCATTER)
        return rate_iops, 2000.0 if outstanding == 64 else 500.0

    return run


def coverage(kind: str, confirm: int, drift_sd: float, draws: int, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    ends = {"rate_min": 1000, "rate_max": 100_000, "precision": "20%"} if kind == "knee" else {}
    of = searched(confirm=confirm, **ends)
    template = next(a.result for a in Simulation(samples=1).data(study()).attempts if a.result is not None)
    hits = {"fresh": 0, "ratio": 0}
    for _ in range(draws):
        drift = {block: float(rng.lognormal(0, drift_sd)) for block in range(1, 100)}
        machine = (knee if kind == "knee" else best_load)(rng, drift)
        found = found_by(of, machine, template)
        truths = [each.rate_iops if kind == "knee" else CAPACITY_IOPS[each.condition] for each in found]
        fresh = found[0].fresh()
        hits["fresh"] += fresh.low <= truths[0] <= fresh.high
        compared = against_baseline(of, found[0], found)
        assert compared is not None and compared[0] is found[1]
        hits["ratio"] += compared[1].low <= truths[0] / truths[1] <= compared[1].high
    return {what: count / draws for what, count in hits.items()}


@pytest.mark.parametrize("kind", ["knee", "best load"])
def test_what_a_search_prints_covers(kind: str) -> None:
    for covered in coverage(kind, 3, 0.03, 60, seed=1).values():
        assert covered >= 0.85


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("drift_sd", [0.0, 0.05])
@pytest.mark.parametrize("confirm", [2, 3, 5])
@pytest.mark.parametrize("kind", ["knee", "best load"])
def test_what_a_search_prints_covers_as_it_says(kind: str, confirm: int, drift_sd: float) -> None:
    for what, covered in coverage(kind, confirm, drift_sd, 1000, seed=2).items():
        print(what, covered)
        assert 0.93 <= covered <= 0.97, (what, covered)


def test_winners_are_compared_block_by_block() -> None:
    template = next(a.result for a in Simulation(samples=1).data(study()).attempts if a.result is not None)
    rates = {"nfs3": (110.0, 121.0, 115.0), "iscsi": (100.0, 108.0, 93.0)}
    of = searched(confirm=3)
    found = []
    for name, some in rates.items():
        runs = {
            block: template.model_copy(
                update={
                    "read": template.read.model_copy(update={"ios": round(rate * 1000)}),
                    "write": template.write.model_copy(update={"ios": 0}),
                    "window": template.window.model_copy(update={"duration_ns": 1_000_000_000}),
                }
            )
            for block, rate in enumerate(some, start=5)
        }
        treatment = (of.level("protocol", name), of.level("outstanding", 16))
        found.append(Winner(name, "16 outstanding", treatment, 1.0, confirmed=runs))
    interval = ttest_rel(np.log(rates["nfs3"]), np.log(rates["iscsi"])).confidence_interval()
    other, ratio = against_baseline(of, found[0], found)
    assert other is found[1]
    assert (ratio.low, ratio.high) == pytest.approx((np.exp(interval.low), np.exp(interval.high)))
    # A block in which only one of them ran tells nothing of their ratio.
    del found[1].confirmed[5]
    assert against_baseline(of, found[0], found)[1].value == pytest.approx((121 / 108 * 115 / 93) ** 0.5)
