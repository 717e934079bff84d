"""Sessions and rounds for a given time, chosen by the scatter in a pilot."""

from __future__ import annotations

import re

import pytest

from command_line import ran
from iotax.design import plan
from iotax.design.shape import advice, best_shape, within
from iotax.study.model import Slices
from iotax.study.read import load_study

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
    # The advised design needs no further advice.
    assert advice(2, slices(int(found[2])), int(found[1]), TIME_NS, share_of_sessions=0.6) is None


def test_a_plan_that_is_good_already_gets_no_advice() -> None:
    best = best_shape(12, TIME_NS)
    share = 0.1 / (0.1 + 1 / best.rounds)
    assert advice(12, slices(best.rounds), best.sessions, TIME_NS, share_of_sessions=share) is None
    assert advice(500, slices(1), 2, 10**9, share_of_sessions=0.5) is None


@pytest.mark.parametrize("name", ["quick", "grid", "cpu-cost", "outstanding", "block-size", "disks", "patterns"])
def test_every_study_by_rounds_fits_a_time_and_says_how_much_wider_its_intervals_are(name: str) -> None:
    study = load_study(name)[0]
    own, found = study.design, within(study, 60 * 10**9)
    assert plan(found.study).duration_max_ns <= 60 * 10**9
    assert found.study.levels() == study.levels() and found.study.search == study.search
    assert own.slice is not None and found.study.design.slice is not None
    assert found.study.design.slice <= own.slice
    assert found.wider > 1.2


def test_a_time_that_is_too_short_and_a_study_without_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"takes \d+ s at least"):
        within(load_study("quick")[0], 5 * 10**9)
    with pytest.raises(ValueError, match="not in rounds"):
        within(load_study("kernel-exact")[0], 3600 * 10**9)


def test_more_time_than_the_study_takes_gives_narrower_intervals() -> None:
    assert within(load_study("quick")[0], 600 * 10**9).wider < 0.7


def test_the_command_line_says_what_a_shorter_time_cannot_resolve() -> None:
    done = ran("plan", "quick", "--time", "30s")
    assert "4 sessions of 2 rounds" in done.stdout
    assert "intervals about 2.8 times as wide: smaller differences than with the whole study stay" in done.stderr
    refused = ran("run", "kernel-exact", "--time", "30s")
    assert refused.exit_code == 2 and "--time 30s: the study measures one treatment after the other" in refused.stderr
