"""What a runner tells whoever shows it: one method for each kind of news."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # A display is there before what is heavy.
    from iotax.design import Plan
    from iotax.labs.base import Sample, Step
    from iotax.trial import Attempt, Background, Trial


class Listener:
    """What a runner tells while it works; a display overrides what it shows."""

    def planned(self, plan: Plan, left: list[Trial], resumed: bool) -> None: ...

    def replicated(self, trials: list[Trial]) -> None:
        """The study asks for more replicates than its earlier run had; these trials come after it."""

    def extended(self, trials: list[Trial]) -> None:
        """A search goes on."""

    def step(self, step: Step) -> None: ...

    def background(self, background: Background) -> None: ...

    def started(self, trials: Sequence[Trial], attempt: int) -> None:
        """One trial, or all of a session that measures them in turns."""

    def sample(self, sample: Sample) -> None: ...

    def ended(self, attempt: Attempt) -> None: ...

    def warning(self, message: str) -> None: ...
