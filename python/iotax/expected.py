"""How much longer a run takes, for whoever shows it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # A display is there before what is heavy.
    from iotax.design import Plan
    from iotax.trial import Trial


class Clock:
    """Expected time left: the plan's, stretched by how the trials so far compare with theirs."""

    def __init__(self, plan: Plan, left: list[Trial]) -> None:
        self._plan = plan
        self.total = len(left)
        self.done = 0
        self._left_ns = sum(self._expected_ns(trial) for trial in left)
        self._planned_ns = 0
        self._began = time.monotonic()

    def finish(self, trial: Trial) -> None:
        self.done += 1
        self._left_ns -= self._expected_ns(trial)
        self._planned_ns += self._expected_ns(trial)

    def extend(self, trials: list[Trial]) -> None:
        """More than was planned, as a search asks for it."""
        self.total += len(trials)
        self._left_ns += sum(self._expected_ns(trial) for trial in trials)

    def _expected_ns(self, trial: Trial) -> int:
        planned = self._plan.trial_ns
        return planned.get(trial.id, sum(planned.values()) // max(1, len(planned)))

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def left_s(self, of_trial_ns: int = 0) -> float:
        """`of_trial_ns` of the trial under way are over."""
        stretch = self.elapsed_s * 1e9 / self._planned_ns if self.done >= 3 else 1.0
        return max(0.0, self._left_ns - of_trial_ns) * stretch / 1e9
