"""Wilcoxon's signed-rank intervals against published figures and all sign patterns, with differences in bounds."""

from __future__ import annotations

import math
from itertools import product

import pytest

from iotax.analysis.signed_rank import shift
from iotax.design.power import each_of, pairs_needed

BEFORE = (1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30)
AFTER = (0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29)


def known(*values: float) -> list[tuple[float, float]]:
    return [(value, value) for value in values]


def test_the_shift_is_that_of_hollander_and_wolfe() -> None:
    """Hollander and Wolfe, Nonparametric Statistical Methods, ch. 3: depression of nine patients before and after."""
    found = shift(known(*(after - before for before, after in zip(BEFORE, AFTER, strict=True))), 0.95)
    assert found.least == found.most == pytest.approx(-0.46)
    assert (found.low, found.high) == (pytest.approx(-0.786), pytest.approx(-0.010))


@pytest.mark.parametrize("pairs", [6, 7, 9])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.98])
def test_an_interval_misses_the_truth_as_often_as_it_may(pairs: int, confidence: float) -> None:
    """Around zero, each pattern of signs of the same sizes is as likely as any other."""
    sizes = [1.0, 2.1, 3.3, 4.7, 6.9, 9.2, 13.1, 19.3, 27.7][:pairs]
    patterns = list(product((1, -1), repeat=pairs))
    found = [shift(known(*(s * size for s, size in zip(signs, sizes, strict=True))), confidence) for signs in patterns]
    missed = sum(not each.low <= 0 <= each.high for each in found) / len(patterns)
    # The sizes are in order, so their ranks are 1, 2, …
    sums = [sum(rank for rank, sign in enumerate(signs, 1) if sign > 0) for signs in patterns]
    tails = [2 * sum(each < least for each in sums) / len(sums) for least in range(max(sums) // 2)]
    assert missed == pytest.approx(max(each for each in tails if each <= 1 - confidence + 1e-12))


def test_fewer_pairs_than_needed_give_no_interval() -> None:
    for confidence in (0.9, 0.95, each_of(5)):
        needed = pairs_needed(confidence)
        assert shift(known(*[1.0] * needed), confidence).low == 1.0
        few = shift(known(*[1.0] * (needed - 1)), confidence)
        assert (few.low, few.high, few.least) == (-math.inf, math.inf, 1.0)
    assert (pairs_needed(0.95), pairs_needed(each_of(5))) == (6, 8)


def test_a_difference_that_is_only_known_in_part_widens_the_interval_to_its_side() -> None:
    differences = [*known(2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6), (2.0, math.inf)]
    found = shift(differences, 0.95)
    whole = shift(known(2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.0), 0.95)
    assert found.low == whole.low
    assert found.high > whole.high
    assert shift([(-math.inf, math.inf)] * 9, 0.95).low == -math.inf
    # All that are longer by an unknown time: at least the shortest.
    longer = shift([(5.0 + at, math.inf) for at in range(8)], 0.95)
    assert (longer.low > 5, longer.high) == (True, math.inf)
