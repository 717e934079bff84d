"""The order of slices: every treatment once a round, each after each other one equally often.

Williams, E. J. (1949): Experimental designs balanced for the estimation of residual effects of treatments, Australian
Journal of Scientific Research A 2, 149-168. A square of as many rounds as treatments is balanced where their number is
even; where it is odd, the square and its mirror image are.
"""

from __future__ import annotations

from iotax.design.random import shuffled


def williams(count: int) -> list[list[int]]:
    """Rows of treatments 0 to count - 1: `count` rows for an even count, twice as many for an odd one.

    Each row holds every treatment once, each column as well, and over all rows each treatment stands directly behind
    each other one equally often.
    """
    zigzag = [(at + 1) // 2 if at % 2 else (count - at // 2) % count for at in range(count)]
    square = [[(each + shift) % count for each in zigzag] for shift in range(count)]
    return square if count % 2 == 0 else [*square, *(row[::-1] for row in square)]


def rounds_of(count: int, rounds: int, session: int, seed: int) -> list[list[int]]:
    """The rounds of one session, counted from 1, each the order of its `count` treatments.

    Sessions go on where the one before stopped, so that the balance holds over all of them; which treatment takes which
    place, and in which order the rows come, is drawn.
    """
    rows = shuffled(williams(count), seed, "rounds")
    names = shuffled(list(range(count)), seed, "slices")
    first = (session - 1) * rounds
    return [[names[each] for each in rows[(first + at) % len(rows)]] for at in range(rounds)]
