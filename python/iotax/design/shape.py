"""How to divide a given time into sessions and rounds, for the narrowest intervals.

A session's value of a ratio scatters by what a fresh start changes and by its slices: variance s² + w²/rounds. The
interval over n sessions reaches t(n - 1) · √((s² + w²/rounds) / n). More sessions cost a start each, more rounds do not
(Kalibera and Jones 2013, §5, with Student's t for few sessions).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from iotax.design.plan import (
    BACKGROUND_NS,
    CONNECT_NS,
    HOST_TURN_NS,
    HOSTS_NS,
    LEAD_IN_NS,
    TURN_NS,
    idle_slices,
    plan,
)
from iotax.design.power import block_reach
from iotax.study.model import Slices, Study
from iotax.units import show_share

SESSIONS_MIN = 4
"""Fewer give an interval of more than 3.2 standard errors to each side."""
SESSIONS_MAX = 60
_ROUNDS_MIN = 2
_SLICES_NS = (200_000_000, 150_000_000, 100_000_000, 50_000_000)
"""Tried where the study's own slices are too long for the time given, the longest that fits first."""
_SHARE_MAX = 0.99
_WORTH = 0.1
"""Intervals narrower by less are not worth another plan."""
SLICE_NS, SETTLE_NS = 250_000_000, 10_000_000
START_NS = 500_000_000
"""A server and its volume, made anew."""
START_OF_SLICE = 0.1
"""Variance between sessions over that of one slice, where no pilot says it: on two-core virtual machines about as much
as ten slices leave."""


@dataclass(frozen=True)
class Shape:
    """A design by rounds."""

    sessions: int
    rounds: int
    duration_ns: int
    """Total duration."""
    reach: float
    """Half of an interval, in standard deviations of one slice: to compare shapes by."""


def session_ns(
    treatments: int, rounds: int, *, slice_ns: int = SLICE_NS, settle_ns: int = SETTLE_NS, hosts: bool = False
) -> int:
    """Duration of a session, including its start."""
    own_ns, turn_ns = (HOSTS_NS, HOST_TURN_NS) if hosts else (BACKGROUND_NS + START_NS, TURN_NS)
    start_ns = own_ns + LEAD_IN_NS + treatments * CONNECT_NS // 2
    slices = rounds * treatments + (idle_slices(treatments, rounds) if hosts else 0)
    return start_ns + slices * (settle_ns + slice_ns + turn_ns)


def best_shape(
    treatments: int,
    duration_ns: int,
    start_of_slice: float = START_OF_SLICE,
    *,
    slice_ns: int = SLICE_NS,
    settle_ns: int = SETTLE_NS,
    hosts: bool = False,
) -> Shape:
    """The narrowest interval within `duration_ns`, on this machine or on `hosts`. Raises ValueError if not even the
    smallest design fits."""

    def takes_ns(rounds: int) -> int:
        return session_ns(treatments, rounds, slice_ns=slice_ns, settle_ns=settle_ns, hosts=hosts)

    found = []
    for sessions in range(SESSIONS_MIN, SESSIONS_MAX + 1):
        # A round with a slice more than others is the longest.
        rounds = int((duration_ns / sessions - takes_ns(0)) // (takes_ns(1) - takes_ns(0)))
        while sessions * takes_ns(rounds + 1) <= duration_ns:
            rounds += 1
        if rounds >= _ROUNDS_MIN:
            found.append(Shape(sessions, rounds, sessions * takes_ns(rounds), reach(sessions, rounds, start_of_slice)))
    if not found:
        least_ns = SESSIONS_MIN * takes_ns(_ROUNDS_MIN)
        raise ValueError(f"{treatments} treatments take {math.ceil(least_ns / 1e9)} s at least")
    return min(found, key=lambda shape: shape.reach)


@dataclass(frozen=True)
class Within:
    """A study by rounds that takes no longer than a given time."""

    study: Study
    duration_ns: int
    wider: float
    """Expected width of its intervals relative to those of the study as written."""


def within(study: Study, duration_ns: int) -> Within:
    """The narrowest intervals within `duration_ns`: other sessions and rounds, and shorter slices where they must be.
    Raises ValueError if the study is not by rounds, or where not even the smallest design fits."""
    own = study.design.slices
    if own is None:
        raise ValueError(
            "the study measures one treatment after the other, not in rounds; choose a lower `runtime:` or "
            "`replicates:` in a copy (iotax init --from)"
        )
    found, least_ns = [], 0
    for slice_ns in dict.fromkeys((own.slice_ns, *(each for each in _SLICES_NS if each < own.slice_ns))):
        base_ns, round_ns, setup_ns = _parts_ns(study, slice_ns)
        fewest = min(SESSIONS_MIN, study.design.replicates)
        least_ns = setup_ns + fewest * (base_ns + _ROUNDS_MIN * round_ns)
        for sessions in range(fewest, SESSIONS_MAX + 1):
            rounds = int(((duration_ns - setup_ns) / sessions - base_ns) // round_ns)
            if rounds >= _ROUNDS_MIN:
                width = reach(sessions, rounds, START_OF_SLICE) * math.sqrt(own.slice_ns / slice_ns)
                found.append((width, sessions, rounds, slice_ns, setup_ns + sessions * (base_ns + rounds * round_ns)))
        if found:
            break
    if not found:
        raise ValueError(f"the study takes {math.ceil(least_ns / 1e9)} s at least")
    width, sessions, rounds, slice_ns, took_ns = min(found)
    before = reach(study.design.replicates, own.rounds, START_OF_SLICE) if study.design.replicates > 1 else math.inf
    return Within(_shaped(study, sessions, rounds, slice_ns), took_ns, width / before)


def _parts_ns(study: Study, slice_ns: int) -> tuple[int, int, int]:
    """The duration of a session without rounds, of a round, and of everything that happens once, including all that a
    search may add."""
    one, two, three = (
        plan(_shaped(study, sessions, rounds, slice_ns))
        for sessions, rounds in ((_ROUNDS_MIN, _ROUNDS_MIN), (_ROUNDS_MIN, _ROUNDS_MIN + 1), (_ROUNDS_MIN + 1, 2))
    )
    round_ns = max(1, (two.duration_max_ns - one.duration_max_ns) // _ROUNDS_MIN)
    session_ns = three.duration_max_ns - one.duration_max_ns
    return session_ns - _ROUNDS_MIN * round_ns, round_ns, one.duration_max_ns - _ROUNDS_MIN * session_ns


def _shaped(study: Study, sessions: int, rounds: int, slice_ns: int) -> Study:
    design = study.design.repeated(sessions).model_copy(update={"rounds": rounds, "slice": slice_ns})
    return study.model_copy(update={"design": design})


def reach(sessions: int, rounds: int, start_of_slice: float) -> float:
    return block_reach(sessions) * math.sqrt((start_of_slice + 1 / rounds) / sessions)


def advice(
    treatments: int,
    slices: Slices,
    sessions: int,
    duration_ns: int,
    share_of_sessions: float,
    *,
    hosts: bool = False,
) -> str | None:
    """Advice from a pilot for a plan by rounds: numbers that give narrower intervals in the same time; None if none
    gives much narrower ones. `share_of_sessions`: the share of a fresh start in the variance of a session's ratio, with
    the plan's own rounds."""
    share = min(share_of_sessions, _SHARE_MAX)
    start_of_slice = share / (1 - share) / slices.rounds
    try:
        own = {"slice_ns": slices.slice_ns, "settle_ns": slices.settle_ns}
        best = best_shape(treatments, duration_ns, start_of_slice, **own, hosts=hosts)
    except ValueError:
        return None
    narrower = 1 - best.reach / reach(sessions, slices.rounds, start_of_slice) if sessions > 1 else 1.0
    if narrower < _WORTH:
        return None
    return (
        f"By the scatter of that run `sessions: {best.sessions}, rounds: {best.rounds}` would give intervals "
        f"{show_share(narrower, 0)} narrower in the same time."
    )
