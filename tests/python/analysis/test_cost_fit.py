"""Costs of a thread's operations, fitted to measured CPU per I/O."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from iotax.analysis.cost_fit import Costed, fit_costs

BASE = {
    "wake": 20_000.0,
    "wake_short": 8_000.0,
    "turn": 2000.0,
    "send": 1000.0,
    "io": 200.0,
    "kib": 100.0,
    "segment": 0.0,
    "kib_sent": 100.0,
}
TRUE = BASE | {
    "wake": 30_000.0,
    "wake_short": 12_000.0,
    "turn": 1000.0,
    "send": 500.0,
    "io": 700.0,
    "kib": 150.0,
    "kib_sent": 150.0,
}


def counts(depth: int, kib: float, received: float = 0.75, segment_kib: float = 0.0) -> dict[str, float]:
    """Counts per I/O of a thread that sleeps at one outstanding I/O. With more it handles a third of them in each turn.
    `received` is the share of the bytes that are received."""
    turns = 1 if depth == 1 else 3 / depth
    segments = 3.0 if not segment_kib else 1 + kib / segment_kib
    directions = {"kib": kib * received, "kib_sent": kib * (1 - received)}
    wakes = turns if depth < 8 else 0.0
    short = 0.0 if depth == 1 else wakes / 2
    return {
        "wake": wakes - short,
        "wake_short": short,
        "turn": turns,
        "send": turns,
        "io": 1.0,
        "segment": segments,
    } | directions


def measured(each: dict[str, float], drift: dict[int, float], true: Mapping[str, float] = TRUE) -> Costed:
    cost_ns = sum(true[name] * count for name, count in each.items())
    return Costed({block: cost_ns * share for block, share in drift.items()}, each)


STEADY = {1: 1.0, 2: 1.0, 3: 1.0}
DEPTHS = (1, 4, 8, 64)


def test_costs_are_found_where_the_treatments_tell_all_apart() -> None:
    found = fit_costs([measured(counts(depth, kib), STEADY) for depth in DEPTHS for kib in (4, 16)], BASE)
    for name, true_ns in TRUE.items():
        assert found[name].ns == pytest.approx(true_ns, abs=1e-6), name
        assert found[name].fitted == (name != "segment")
    assert found["io"].low_ns == found["io"].high_ns == pytest.approx(700)


def test_receiving_and_sending_are_told_apart_by_treatments_of_both_mixes() -> None:
    true = TRUE | {"kib": 90.0, "kib_sent": 210.0}
    mixes = [counts(depth, kib, received) for depth in DEPTHS for kib in (4, 64) for received in (0.0, 1.0)]
    found = fit_costs([measured(each, STEADY, true) for each in mixes], BASE)
    for name, true_ns in true.items():
        assert found[name].ns == pytest.approx(true_ns, abs=1e-6), name
    one_mix = [counts(depth, kib) for depth in DEPTHS for kib in (4, 64)]
    found = fit_costs([measured(each, STEADY, true) for each in one_mix], BASE)
    assert found["kib"] == found["kib_sent"]
    assert found["kib"].ns == pytest.approx(0.75 * 90 + 0.25 * 210)


def test_segments_are_told_apart_by_treatments_of_two_mtus() -> None:
    true = TRUE | {"segment": 900.0}
    sizes = [counts(depth, kib, segment_kib=mtu) for depth in DEPTHS for kib in (4, 64) for mtu in (1.4, 8.8)]
    found = fit_costs([measured(each, STEADY, true) for each in sizes], BASE, several_mtus=True)
    for name, true_ns in true.items():
        assert found[name].ns == pytest.approx(true_ns, abs=1e-6), name
    one_mtu = [counts(depth, kib, segment_kib=1.4) for depth in DEPTHS for kib in (4, 64)]
    found = fit_costs([measured(each, STEADY, true) for each in one_mtu], BASE)
    assert not found["segment"].fitted
    assert found["kib"].ns == pytest.approx(150 + 900 / 1.4)


def test_what_treatments_do_not_tell_apart_is_the_other_tables() -> None:
    found = fit_costs([measured(counts(depth, 4), STEADY) for depth in (1, 64)], BASE)
    assert {name for name, each in found.items() if each.fitted} == {"io", "wake", "wake_short"}
    assert found["kib"].ns == 100
    assert found["turn"].low_ns is None
    # The total stays as measured: the `io` cost includes what 4 KiB cost more than in the other table.
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
    # 95 % ± four standard errors of 400 draws.
    assert 0.906 < inside / rounds < 0.994
