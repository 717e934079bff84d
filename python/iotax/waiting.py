"""How a target that is gone is waited for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

WAIT_FOR_TARGET_S = 60.0
"""At most so long, where the user says nothing."""
_WAITS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)


def waits_s() -> Iterator[float]:
    """Between looks whether it is back: longer and longer, the last again and again."""
    return itertools.chain(_WAITS_S, itertools.repeat(_WAITS_S[-1]))
