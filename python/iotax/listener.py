"""What a runner tells whoever shows it: one method for each kind of news."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # A display is there before what is heavy.
    from iotax.design import Plan
    from iotax.labs.base import Closing, Sample, Step
    from iotax.trial import Attempt, Background, Trial


@dataclass(frozen=True)
class Ending:
    """How an invocation ended."""

    run: int
    done: int
    failed: tuple[str, ...]
    """Ids of trials that were given up."""
    interrupted: bool
    stopped: bool = False
    """The study's own rule ended it before its last block."""
    away: str = ""
    """Why the target did not answer, where it stayed away and the study ended before its time."""
    not_undone: str = ""
    """Why an event's undo failed: the study ended, because what the event did is still so."""
    finished: bool = False
    """There was nothing left to do: an earlier invocation had ended it, and the lab was not touched."""

    @property
    def ended_early(self) -> bool:
        """Whether trials are left that the same command continues with."""
        return self.interrupted or bool(self.away or self.not_undone)


class Listener:
    """What a runner tells while it works; a display overrides what it shows."""

    def planned(self, plan: Plan, left: list[Trial], resumed: bool) -> None: ...

    def earlier(self, attempts: Sequence[Attempt]) -> None:
        """What is there of a run that is taken up again; told before `planned`."""

    def replicated(self, trials: list[Trial], unit: str) -> None:
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

    def concluded(self, summary: Ending) -> None:
        """Nothing more runs in this invocation."""

    def closed(self, closing: Closing) -> None:
        """How the lab was left: the last word, also of an invocation that failed."""
        for fault in closing.faults:
            self.warning(fault)


class Listeners(Listener):
    """Tells several."""

    def __init__(self, *each: Listener) -> None:
        self._each = each


def _to_each(name: str) -> Callable[..., None]:
    def tell(self: Listeners, *news: object) -> None:
        for one in self._each:
            getattr(one, name)(*news)

    return tell


for _name in [name for name in vars(Listener) if not name.startswith("_")]:
    setattr(Listeners, _name, _to_each(_name))
