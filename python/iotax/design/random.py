"""Random streams that are the same on every machine and in every version.

A stream is named by (seed, name, index); Python's own `random.Random` is fed with SHA-256 over the three, so that no
two streams of a study share their numbers and adding one changes no other. The generator (MT19937) and `shuffled` are
fixed: a change of either would change the order of half-finished plans.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def derive_seed(seed: int, name: str, index: int = 0) -> int:
    """63 bits for the stream (seed, name, index)."""
    digest = hashlib.sha256(f"{seed}/{name}/{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def shuffled(items: Sequence[Item], seed: int, name: str, index: int = 0) -> list[Item]:
    """A permutation drawn evenly from all: Fisher-Yates, written out because `random.shuffle` may change."""
    stream = random.Random(derive_seed(seed, name, index))  # noqa: S311 - no secret depends on it
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        # getrandbits is the one method whose output is promised never to change; rejection keeps it even.
        bits = (last + 1).bit_length()
        place = stream.getrandbits(bits)
        while place > last:
            place = stream.getrandbits(bits)
        order[last], order[place] = order[place], order[last]
    return order
