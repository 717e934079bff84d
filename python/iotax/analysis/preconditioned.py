"""The preconditioning done on a volume, and the rest to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iotax.analysis.steady import SniaWindow, snia_window
from iotax.records import Conditioning
from iotax.study.precondition import Precondition


@dataclass(frozen=True)
class Progress:
    """What was done to the volume of an endpoint, and what is left to do."""

    endpoint: str
    passes_left: int
    rounds: int
    """The state in the invocation that counts: a volume that rested may have changed."""
    rate_iops: float | None
    """The state after the latest round."""
    window: SniaWindow | None
    """None before there are enough rounds."""
    done: bool

    @property
    def steady(self) -> bool:
        return self.window is not None and self.window.steady


def progress_of(
    asked: Precondition, endpoint: str, steps: Sequence[Conditioning], invocation: int | None = None
) -> Progress:
    """`invocation` is the current one; an earlier one counts if it finished."""
    own = [each for each in steps if each.endpoint == endpoint]
    passes_left = max(0, asked.passes - sum(each.kind == "fill" for each in own))
    found: Progress | None = None
    for one in dict.fromkeys([each.invocation for each in own] + ([invocation] if invocation is not None else [])):
        rates = [each.rate_iops or 0.0 for each in own if each.invocation == one and each.kind == "round"]
        window = snia_window(rates)
        enough = len(rates) >= asked.rounds_max or (window is not None and window.steady)
        found = Progress(
            endpoint, passes_left, len(rates), rates[-1] if rates else None, window, passes_left == 0 and enough
        )
        if found.done:
            break
    return found or Progress(endpoint, passes_left, 0, None, None, passes_left == 0 and asked.rounds_max == 0)
