"""The order of slices: every treatment once a round, those that are compared with each other side by side.

What disturbs a machine lasts longer than a slice, so slices that are neighbours are disturbed alike and their ratio is
the more exact (Fisher's blocks). Treatments of one condition, which differ only in what the baseline names, are
therefore a group and run together. Groups take turns, and so do the treatments within each, in the order of Williams,
E. J. (1949): Experimental designs balanced for the estimation of residual effects of treatments, Australian Journal of
Scientific Research A 2, 149-168. A square of as many rounds as treatments is balanced where their number is even; where
it is odd, the square and its mirror image are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from iotax.design.plan import LOADED_PER_IDLE, LOADS
from iotax.design.random import shuffled

if TYPE_CHECKING:
    from iotax.study import Study
    from iotax.trial import LevelValue, Trial


def session_rounds(study: Study, trials: Sequence[Trial], session: int) -> list[list[int]]:
    """The rounds of one session, counted from 1: each has the positions in `trials` in the order of measurement. The
    order of `trials` does not matter: a treatment's place depends on its levels."""
    levels = {name: [level.value for level in some] for name, some in study.levels().items()}
    apart = set(study.compared)
    if trials[0].role == "confirm":
        # Winners of a search are compared whatever load each won with.
        apart |= set(LOADS)
    others = [name for name in levels if name not in apart]
    groups: dict[tuple[LevelValue, ...], list[int]] = {}
    for place in sorted(
        range(len(trials)), key=lambda at: [levels[name].index(trials[at].treatment[name]) for name in levels]
    ):
        groups.setdefault(tuple(trials[place].treatment[name] for name in others), []).append(place)
    slices = study.design.slices
    assert slices is not None, "only a study by rounds has sessions"
    places = [place for group in groups.values() for place in group]
    sizes = [len(group) for group in groups.values()]
    return [[places[each] for each in row] for row in rounds_of(sizes, slices.rounds, session, study.design.seed)]


def session_of(study: Study, trial: Trial) -> tuple[LevelValue, ...]:
    """The session that measures a trial: its block and, in a split plot, the levels of its whole plot."""
    return (trial.block, *(trial.treatment[name] for name in study.design.hard_to_change))


def with_idle(rounds: Sequence[Sequence[int]]) -> list[list[int | None]]:
    """The same rounds, some of which end with a slice without load (None): if whole machines are measured, it gives
    their background. The first round has one, then every eighth slice of load is followed by one."""
    loaded = idle = 0
    found: list[list[int | None]] = []
    for row in rounds:
        loaded += len(row)
        needed = idle * LOADED_PER_IDLE < loaded
        idle += needed
        found.append([*row, None] if needed else [*row])
    return found


def rounds_of(sizes: Sequence[int], rounds: int, session: int, seed: int) -> list[list[int]]:
    """The rounds of one session of groups of so many treatments, numbered from 0 through all groups.

    Sessions go in pairs: the one runs every round of the other backwards, and lots decide which. What its lead-in
    leaves of a session's start (caches, clocks and queues are new) meets what runs first in the one and last in the
    other. Pairs go on where the one before stopped, so that the balance holds over all of them; which group and
    which treatment takes which place is drawn.
    """
    rows = _one_group(sizes[0], seed) if len(sizes) == 1 else _groups(sizes, seed)
    pair, second = divmod(session - 1, 2)
    own = [rows[(pair * rounds + at) % len(rows)] for at in range(rounds)]
    backwards = shuffled((False, True), seed, f"sessions {pair}")[second]
    return [row[::-1] for row in own] if backwards else own


def williams(count: int) -> list[list[int]]:
    """Rows of treatments 0 to count - 1: `count` rows for an even count, twice as many for an odd one.

    Each row holds every treatment once, each column as well, and over all rows each treatment stands directly behind
    each other one equally often. With each row its mirror image is there, too.
    """
    zigzag = [(at + 1) // 2 if at % 2 else (count - at // 2) % count for at in range(count)]
    square = [[(each + shift) % count for each in zigzag] for shift in range(count)]
    return square if count % 2 == 0 else [*square, *(row[::-1] for row in square)]


def _one_group(count: int, seed: int) -> list[list[int]]:
    rows = shuffled(williams(count), seed, "rounds")
    names = shuffled(range(count), seed, "slices")
    return [[names[each] for each in row] for row in rows]


def _groups(sizes: Sequence[int], seed: int) -> list[list[int]]:
    """Rounds in pairs, of the same order of groups: in the second each group runs backwards.

    In a round every other group runs backwards, so that each group of equal size starts with the protocol that ended
    the previous group, and what a group follows favours none of its treatments.
    """
    orders = shuffled(williams(len(sizes)), seed, "rounds")
    names = shuffled(range(len(sizes)), seed, "groups")
    forwards = {size: _forwards(size, seed) for size in set(sizes)}
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    rows = []
    for pair in range(math.lcm(len(orders), *(len(each) for each in forwards.values()))):
        for back in (0, 1):
            row: list[int] = []
            for at, name in enumerate(orders[pair % len(orders)]):
                group = names[name]
                some = forwards[sizes[group]]
                arms = some[pair % len(some)]
                row += [starts[group] + arm for arm in (arms[::-1] if (at + back) % 2 else arms)]
            rows.append(row)
    return rows


def _forwards(size: int, seed: int) -> list[list[int]]:
    """One of each row of Williams and its mirror image, with the treatments' places drawn."""
    names = shuffled(range(size), seed, "slices")
    found: list[list[int]] = []
    for row in shuffled([[names[each] for each in row] for row in williams(size)], seed, "arms"):
        if row[::-1] not in found:
            found.append(row)
    return found
