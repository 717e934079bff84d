"""Costs of a thread's work out of measured CPU per I/O."""

from __future__ import annotations

import random

import pytest

from iotax.analysis.cost_fit import Costed, fit_costs

BASE = {"wake": 20_000.0, "turn": 2000.0, "send": 1000.0, "io": 200.0, "kib": 100.0, "segment": 0.0}
TRUE = {"wake": 30_000.0, "turn": 1000.0, "send": 500.0, "io": 700.0, "kib": 150.0, "segment": 0.0}


def counts(depth: int, kib: float) -> dict[str, float]:
    """As of a thread that sleeps at one outstanding I/O and gathers a third of them in a turn beyond."""
    turns = 1 if depth == 1 else 3 / depth
    return {"wake": turns if depth < 8 else 0.0, "turn": turns, "send": turns, "io": 1.0, "kib": kib, "segment": 3.0}


def measured(each: dict[str, float], drift: dict[int, float]) -> Costed:
    cost_ns = sum(TRUE[name] * count for name, count in each.items())
    return Costed({block: cost_ns * share for block, share in drift.items()}, each)


STEADY = {1: 1.0, 2: 1.0, 3: 1.0}
DEPTHS = (1, 4, 8, 64)


def test_costs_are_found_where_the_treatments_tell_all_apart() -> None:
    found = fit_costs([measured(counts(depth, kib), STEADY) for depth in DEPTHS for kib in (4, 16)], BASE)
    for name, true_ns in TRUE.items():
        assert found[name].ns == pytest.approx(true_ns, abs=1e-6), name
        assert found[name].fitted == (name != "segment")
    assert found["io"].low_ns == found["io"].high_ns == pytest.approx(700)


def test_what_treatments_do_not_tell_apart_is_the_other_tables() -> None:
    found = fit_costs([measured(counts(depth, 4), STEADY) for depth in (1, 64)], BASE)
    assert {name for name, each in found.items() if each.fitted} == {"io", "wake"}
    assert found["kib"].ns == 100
    assert found["turn"].low_ns is None
    # What was measured is kept: the io has what 4 KiB cost beyond the other table.
    deep = sum(found[name].ns * count for name, count in counts(64, 4).items())
    assert deep == pytest.approx(sum(TRUE[name] * count for name, count in counts(64, 4).items()))


def test_one_block_gives_no_interval() -> None:
    found = fit_costs([measured(counts(depth, 4), {1: 1.0}) for depth in (1, 64)], BASE)
    assert (found["io"].low_ns, found["io"].high_ns, found["io"].fitted) == (None, None, True)


def test_no_cost_is_below_zero() -> None:
    fast = [Costed({1: 10_000.0, 2: 11_000.0}, counts(1, 4)), Costed({1: 100.0, 2: 110.0}, counts(64, 4))]
    found = fit_costs(fast, BASE)
    assert found["io"].ns == 0
    assert all(each.ns >= 0 and (each.low_ns or 0) >= 0 for each in found.values())


def test_blocks_that_lack_a_treatment_are_no_sample() -> None:
    with pytest.raises(ValueError, match="no block measured every treatment"):
        fit_costs([Costed({1: 1.0}, counts(1, 4)), Costed({2: 1.0}, counts(8, 4))], BASE)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    stream, inside, rounds = random.Random(1), 0, 400
    for _ in range(rounds):
        drift = {block: stream.gauss(1, 0.03) for block in range(1, 6)}
        found = fit_costs([measured(counts(depth, kib), drift) for depth in DEPTHS for kib in (4, 16)], BASE)
        low_ns, high_ns = found["io"].low_ns, found["io"].high_ns
        assert low_ns is not None
        assert high_ns is not None
        inside += low_ns <= TRUE["io"] <= high_ns
    # 95 %, with four standard errors of 400 draws.
    assert 0.906 < inside / rounds < 0.994
