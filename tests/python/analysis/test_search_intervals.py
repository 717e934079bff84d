"""Printed intervals of a search contain the true value: for a winner's fresh runs, and for ratios of winners."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import ttest_rel

from iotax.analysis.knee import Knee, Probe, bracket, next_rate
from iotax.analysis.search import Winner, against_baseline, next_trials, winners
from iotax.design import plan
from iotax.design.rates import ladder
from iotax.study import Study
from iotax.trial import Attempt, Trial, TrialResult
from iotax.wording.search import sentences
from report.factory import Simulation, study

KNEE_IOPS = {"nfs3": 40_000.0, "iscsi": 52_000.0}
CAPACITY_IOPS = {"nfs3": 60_000.0, "iscsi": 75_000.0}
SCATTER = 0.02

Machine = Callable[[Trial], tuple[float, float]]
"""A run's IOPS, and its latency in µs."""


def searched(**search: object) -> Study:
    factors: dict[str, object] = {"protocol": ["nfs3", "iscsi"]}
    load: dict[str, object] = {"warmup": "0s", "runtime": "1s"}
    if "rate_max" in search:
        load["outstanding"] = 64
    else:
        factors["outstanding"] = [4, 16, 64]
    return study(factors=factors, load=load, search={"latency_max": "1ms", "percentile": 99, **search})


def attempt(trial: Trial, rate_iops: float, latency_us: float, template: TrialResult) -> Attempt:
    ios, ns = round(rate_iops * 1000), round(latency_us * 1000)
    window = template.window.model_copy(update={"duration_ns": 1_000_000_000_000})
    histogram = template.read.histogram.model_copy(update={"counts": [(ns, ios)]})
    read = template.read.model_copy(update={"ios": ios, "histogram": histogram})
    write = template.write.model_copy(update={"ios": 0, "histogram": histogram.model_copy(update={"counts": []})})
    result = template.model_copy(update={"read": read, "write": write, "window": window})
    return Attempt(trial=trial, number=1, status="done", reason="", started_unix_ns=0, ended_unix_ns=1, result=result)


def found_by(of: Study, machine: Machine, template: TrialResult) -> list[Winner]:
    """Runs the whole search, one trial at a time, as the runner does."""
    trials = list(plan(of).trials)
    attempts: list[Attempt] = []
    while True:
        attempts.extend(attempt(trial, *machine(trial), template) for trial in trials[len(attempts) :])
        more = next_trials(of, trials, attempts)
        if not more:
            return winners(of, attempts)
        trials += more


def knee(rng: np.random.Generator, drift: dict[int, float]) -> Machine:
    """A machine that meets the objective up to its knee. The knee varies between blocks, in addition to the drift."""
    knees: dict[tuple[str, int], float] = {}

    def run(trial: Trial) -> tuple[float, float]:
        rate_iops = float(str(trial.treatment["rate_iops"]))
        place = str(trial.treatment["protocol"]), trial.block
        if place not in knees:
            knees[place] = KNEE_IOPS[place[0]] * drift[trial.block] * rng.lognormal(0, SCATTER)
        return rate_iops, 500.0 if rate_iops <= knees[place] else 2000.0

    return run


def best_load(rng: np.random.Generator, drift: dict[int, float]) -> Machine:
    """A machine with its optimum at 16 outstanding I/Os: 4 give fewer IOPS, and 64 miss the objective."""

    def run(trial: Trial) -> tuple[float, float]:
        outstanding = int(str(trial.treatment["outstanding"]))
        capacity = CAPACITY_IOPS[str(trial.treatment["protocol"])] * (0.5 if outstanding == 4 else 1.0)
        rate_iops = capacity * drift[trial.block] * rng.lognormal(0, SCATTER)
        return rate_iops, 2000.0 if outstanding == 64 else 500.0

    return run


def bisected(of: Study, protocol: str, block: int, seed: int, knee_iops: Callable[[], float]) -> float:
    """One search, rate by rate. `knee_iops` gives the knee that each run meets."""
    assert of.search is not None
    rungs = ladder(of.search, seed, protocol, block)
    probes: list[Probe] = []
    while (rate_iops := next_rate(of.search, rungs, probes)) is not None:
        probes.append(Probe(rate_iops, rate_iops <= knee_iops()))
    return bracket(probes).knee_iops


def found_knees(
    of: Study, rng: np.random.Generator, drift: dict[int, float], seed: int, per_run: float
) -> list[Winner]:
    """One knee per protocol and block. `per_run` is its variation between the runs of one search."""
    assert of.search is not None
    found = []
    for protocol, middle in KNEE_IOPS.items():
        knees = {}
        for block in range(1, of.search.confirm + 1):
            knee_iops = middle * drift[block] * rng.lognormal(0, SCATTER)
            knees[block] = bisected(of, protocol, block, seed, lambda at=knee_iops: at * rng.lognormal(0, per_run))
        found.append(Winner(protocol, "", (of.level("protocol", protocol),), 1.0, knee=Knee((), knees)))
    return found


def coverage(kind: str, confirm: int, drift_sd: float, draws: int, seed: int, per_run: float = 0.0) -> dict[str, float]:
    """How often the intervals contain the true value. Variation within a search shifts all knees alike: the true ratio
    stays, but the true knee does not."""
    rng = np.random.default_rng(seed)
    ends = {"rate_min": 1000, "rate_max": 100_000, "precision": "5%"} if kind == "knee" else {}
    of = searched(confirm=confirm, **ends)
    template = next(a.result for a in Simulation(samples=1).data(study()).attempts if a.result is not None)
    hits = {"value": 0, "ratio": 0}
    for draw in range(draws):
        drift = {block: float(rng.lognormal(0, drift_sd)) for block in range(1, 100)}
        if kind == "knee":
            found = found_knees(of, rng, drift, draw, per_run)
        else:
            found = found_by(of, best_load(rng, drift), template)
        truths = [(KNEE_IOPS if kind == "knee" else CAPACITY_IOPS)[each.condition] for each in found]
        value = found[0].known()
        hits["value"] += value.low <= truths[0] <= value.high
        compared = against_baseline(of, found[0], found)
        assert compared is not None and compared[0] is found[1]
        hits["ratio"] += compared[1].low <= truths[0] / truths[1] <= compared[1].high
    if per_run:
        del hits["value"]
    return {what: count / draws for what, count in hits.items()}


def test_a_knee_whose_fresh_runs_miss_is_withdrawn() -> None:
    """In block 2 all runs but the fresh ones meet the objective. Its knee is reported as withdrawn, not counted."""
    rng = np.random.default_rng(5)
    truth = knee(rng, dict.fromkeys(range(1, 10), 1.0))

    def turning(trial: Trial) -> tuple[float, float]:
        missed = trial.block == 2 and trial.role == "replicate" and trial.treatment["protocol"] == "nfs3"
        return (truth(trial)[0], 2000.0) if missed else truth(trial)

    of = searched(confirm=3, rate_min=1000, rate_max=100_000, precision="5%")
    template = next(a.result for a in Simulation(samples=1).data(study()).attempts if a.result is not None)
    found, other = found_by(of, turning, template)
    assert set(found.knee.found) == {1, 3}
    assert set(found.knee.withdrawn) == {2}
    assert found.knee.stands
    assert found.known().low is not None
    assert set(other.knee.found) == {1, 2, 3}
    # With most of them withdrawn there is no knee and no ratio.
    found, other = found_by(
        of, lambda t: (truth(t)[0], 2000.0) if t.role == "replicate" and t.block < 3 else truth(t), template
    )
    assert not found.knee.stands
    assert found.known() is None
    assert against_baseline(of, found, [found, other]) is None


def test_each_block_searches_over_rates_of_its_own() -> None:
    of = searched(confirm=3, rate_min=1000, rate_max=100_000, precision="20%")
    template = next(a.result for a in Simulation(samples=1).data(study()).attempts if a.result is not None)

    def steady(trial: Trial) -> tuple[float, float]:
        rate_iops = float(str(trial.treatment["rate_iops"]))
        return rate_iops, 500.0 if rate_iops <= 40_000 else 2000.0

    found = found_by(of, steady, template)[0]
    assert len(set(found.knee.found.values())) == 3
    assert found.known().low < 40_000 < found.known().high


def test_carriers_are_known_where_no_fresh_run_was_made() -> None:
    """A search that was stopped before its fresh runs prints no knee, and does not fail."""
    of = searched(confirm=2, rate_min=1000, rate_max=100_000, precision="5%")
    template = next(a.result for a in Simulation(samples=1).data(study()).attempts if a.result is not None)
    truth = knee(np.random.default_rng(6), {1: 1.0})
    attempts: list[Attempt] = []
    left = list(plan(of).trials)
    while probes := [each for each in left if each.role == "probe"]:
        attempts += [attempt(each, *truth(each), template) for each in probes]
        left = next_trials(of, [each.trial for each in attempts], attempts)
    assert sentences(of, attempts)[0] == (
        "NFSv3: no knee: 1 of 1 search left out, since no fresh run met the objective."
    )


@pytest.mark.parametrize(("kind", "draws"), [("knee", 500), ("best load", 60)])
def test_what_a_search_prints_covers(kind: str, draws: int) -> None:
    least = {500: 0.93, 60: 0.85}[draws]
    for what, covered in coverage(kind, 3, 0.03, draws, seed=1).items():
        assert covered >= least, (what, covered)


@pytest.mark.parametrize("per_run", [0.02, 0.1])
def test_the_ratio_of_knees_covers_where_runs_within_a_search_disagree(per_run: float) -> None:
    for what, covered in coverage("knee", 3, 0.03, 500, seed=3, per_run=per_run).items():
        assert covered >= 0.93, (what, covered)


def test_one_bisection_says_nothing_of_its_own_scatter() -> None:
    """Why a knee is searched in every block: the interval over repeated searches widens with the knees' scatter. Over
    fresh runs at the rate of a single search it did not."""
    of = searched(confirm=5, rate_min=1000, rate_max=100_000, precision="5%")
    rng = np.random.default_rng(4)
    for scatter in (0.01, 0.3):
        knees = {}
        for block in range(1, 6):
            knee_iops = 40_000 * rng.lognormal(0, scatter)
            knees[block] = bisected(of, "nfs3", block, 7, lambda at=knee_iops: at)
        found = Winner("nfs3", "", None, 1.0, knee=Knee((), knees)).known()
        expected = np.exp(2 * 2.776 * np.std(np.log(list(knees.values())), ddof=1) / np.sqrt(5))
        assert found.high / found.low == pytest.approx(expected, rel=1e-3)
        assert (found.high / found.low < 1.2) == (scatter < 0.1)


@pytest.mark.long
@pytest.mark.parametrize("drift_sd", [0.0, 0.05])
@pytest.mark.parametrize("confirm", [2, 3, 5])
@pytest.mark.parametrize("kind", ["knee", "best load"])
def test_what_a_search_prints_covers_as_it_says(kind: str, confirm: int, drift_sd: float) -> None:
    for what, covered in coverage(kind, confirm, drift_sd, 1000, seed=2).items():
        print(what, covered)
        assert 0.93 <= covered <= 0.97, (what, covered)


def test_winners_are_compared_block_by_block() -> None:
    rates = {"nfs3": (110.0, 121.0, 115.0), "iscsi": (100.0, 108.0, 93.0)}
    of = searched(confirm=3)
    found = []
    for name, some in rates.items():
        runs = dict(enumerate(some, start=5))
        treatment = (of.level("protocol", name), of.level("outstanding", 16))
        found.append(Winner(name, "16 outstanding", treatment, 1.0, confirmed=runs))
    interval = ttest_rel(np.log(rates["nfs3"]), np.log(rates["iscsi"])).confidence_interval()
    other, ratio = against_baseline(of, found[0], found)
    assert other is found[1]
    assert (ratio.low, ratio.high) == pytest.approx((np.exp(interval.low), np.exp(interval.high)))
    # A block in which only one of them ran contributes nothing to their ratio.
    del found[1].confirmed[5]
    assert against_baseline(of, found[0], found)[1].value == pytest.approx((121 / 108 * 115 / 93) ** 0.5)
