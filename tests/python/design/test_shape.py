"""Sessions and rounds for a given time, by what a pilot says of their scatter."""

from __future__ import annotations

import re

from iotax.design.shape import advice, best_shape
from iotax.study.model import Slices

TIME_NS = 160 * 10**9


def slices(rounds: int) -> Slices:
    return Slices(rounds, 250_000_000, 10_000_000)


def test_a_plan_whose_sessions_scatter_is_told_to_have_more_of_them() -> None:
    said = advice(2, slices(60), 5, TIME_NS, share_of_sessions=0.95)
    assert said is not None
    found = re.search(r"`sessions: (\d+), rounds: (\d+)` would give intervals (\d+) % narrower", said)
    assert found is not None
    assert int(found[1]) > 10
    assert int(found[2]) < 60
    # What is advised needs no more advice.
    assert advice(2, slices(int(found[2])), int(found[1]), TIME_NS, share_of_sessions=0.6) is None


def test_a_plan_that_is_good_already_gets_no_advice() -> None:
    best = best_shape(12, TIME_NS)
    share = 0.1 / (0.1 + 1 / best.rounds)
    assert advice(12, slices(best.rounds), best.sessions, TIME_NS, share_of_sessions=share) is None
    assert advice(500, slices(1), 2, 10**9, share_of_sessions=0.5) is None
