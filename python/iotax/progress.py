"""How far `iotax.run` is: one line that a Jupyter notebook replaces as it changes, else a line for each trial."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from iotax.design import Plan
from iotax.expected import Clock
from iotax.labs.base import Sample
from iotax.listener import Listener
from iotax.outputs import visible
from iotax.runner import Ending
from iotax.trial import Attempt, Trial

_CELLS = 24
"""Of the bar."""


def progress() -> Listener:
    """For where this process runs."""
    display = _jupyter()
    return _Bar(display) if display is not None else Lines()


class Lines(Listener):
    """A line for each trial that ended, on standard error."""

    def ended(self, attempt: Attempt) -> None:
        said = f"{attempt.trial.id}: {attempt.status}" + (f" ({attempt.why})" if attempt.why else "")
        print(visible(said), file=sys.stderr)

    def warning(self, message: str) -> None:
        print(visible(f"warning: {message}"), file=sys.stderr)


class _Bar(Listener):
    """A bar, trials done and left, and the rate of the trial under way; warnings and failures stay below it."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._clock: Clock | None = None
        self._now = ""
        self._kept: list[str] = []

    def planned(self, plan: Plan, left: list[Trial], resumed: bool) -> None:
        del resumed
        self._clock = Clock(plan, left)
        self._draw()

    def replicated(self, trials: list[Trial], unit: str) -> None:
        self.extended(trials)

    def extended(self, trials: list[Trial]) -> None:
        if self._clock is not None:
            self._clock.extend(trials)

    def started(self, trials: Sequence[Trial], attempt: int) -> None:
        del attempt
        self._now = trials[0].id if len(trials) == 1 else f"{len(trials)} trials in turns"
        if self._clock is not None:
            self._clock.begin(trials)
        self._draw()

    def sample(self, sample: Sample) -> None:
        self._draw(f": {sample.rate_iops:,.0f} IOPS")

    def ended(self, attempt: Attempt) -> None:
        if attempt.why:
            self._kept.append(f"{attempt.trial.id}: {attempt.status} ({attempt.why})")
        elif self._clock is not None:
            self._clock.finish(attempt.trial)
        self._draw()

    def warning(self, message: str) -> None:
        self._kept.append(f"warning: {message}")
        self._draw()

    def concluded(self, summary: Ending) -> None:
        del summary
        self._now = ""
        self._draw()

    def _draw(self, more: str = "") -> None:
        clock = self._clock
        if clock is None:
            return
        full = round(_CELLS * clock.done / clock.total) if clock.total else _CELLS
        left = f", about {clock.left_s():.0f} s left" if self._now else ""
        line = f"{'█' * full}{'░' * (_CELLS - full)} {clock.done} of {clock.total} trials{left}"
        self._show("\n".join([line + (f" · {self._now}{more}" if self._now else ""), *self._kept]))


def _jupyter() -> Callable[[str], None] | None:
    """What replaces a notebook's output by a text; None if this process is not a kernel of one."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display  # noqa: PLC0415 - is there where it is loaded  # ty: ignore

    handle = display(_text(""), display_id=True, raw=True)

    def show(text: str) -> None:
        handle.update(_text(text), raw=True)

    return show


def _text(text: str) -> dict[str, str]:
    return {"text/plain": text}
