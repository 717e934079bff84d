"""How much longer a run takes, for whoever shows it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # A display is there before what is heavy.
    from iotax.design import Plan
    from iotax.trial import Trial


LEARNT_AFTER = 2
"""Trials, after which the time they took is better than the plan's."""


class Clock:
    """Expected time left: the plan's, stretched by how the trials so far compare with theirs. What is under way, a
    trial or a session of several, counts as long as it was expected to take."""

    def __init__(self, plan: Plan, left: list[Trial]) -> None:
        self._plan = plan
        self.total = len(left)
        self.done = 0
        self._left_ns = sum(self._expected_ns(trial) for trial in left)
        self._planned_ns = 0
        self._began = self._ended = self._unit_began = time.monotonic()
        self._unit: set[str] = set()
        self._unit_ns = 0
        self._learnt = False

    def begin(self, trials: Sequence[Trial]) -> None:
        """One trial, or all of a session, which end together."""
        self._unit = {trial.id for trial in trials}
        self._unit_ns = sum(self._expected_ns(trial) for trial in trials)
        self._unit_began = time.monotonic()

    def finish(self, trial: Trial) -> None:
        self.done += 1
        self._left_ns -= self._expected_ns(trial)
        self._planned_ns += self._expected_ns(trial)
        if trial.id in self._unit:
            self._unit.remove(trial.id)
            self._unit_ns -= self._expected_ns(trial)
        self._ended = time.monotonic()
        self._learnt = self.done >= LEARNT_AFTER and self.between

    @property
    def between(self) -> bool:
        """Whether nothing is under way: of a session, all trials have ended."""
        return not self._unit

    def extend(self, trials: list[Trial]) -> None:
        """More than was planned, as a search asks for it."""
        self.total += len(trials)
        self._left_ns += sum(self._expected_ns(trial) for trial in trials)

    def _expected_ns(self, trial: Trial) -> int:
        planned = self._plan.trial_ns
        return planned.get(trial.id, sum(planned.values()) // max(1, len(planned)))

    def left_s(self) -> float:
        stretch = (self._ended - self._began) * 1e9 / self._planned_ns if self._learnt else 1.0
        under_way_s = 0.0 if self.between else time.monotonic() - self._unit_began
        return self._left_ns * stretch / 1e9 - min(under_way_s, self._unit_ns * stretch / 1e9)

    @property
    def share(self) -> float:
        """Of the time that all takes, what is over."""
        left_s = self.left_s()
        over_s = time.monotonic() - self._began
        return over_s / (over_s + left_s) if over_s + left_s > 0 else 0.0
