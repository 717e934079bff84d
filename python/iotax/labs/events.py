"""Makes a run's events happen while its load goes on, and keeps when."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from iotax.labs.armed import Freezer
from iotax.labs.base import TrialFailed
from iotax.records.interruptions import Happened
from iotax.study.events import Happening
from iotax.trial import TrialResult

COUNT_NS = 10_000_000
"""Intervals in which the I/Os of a run with events are counted."""
_LEASE_S = 10.0
"""Added to the longest freeze of a target: afterwards it continues by itself."""


class Performer:
    """Freezes a process of ours when a run's events say so. Armed from the beginning, disarmed when it is closed."""

    def __init__(self, happenings: Sequence[Happening], pid: int) -> None:
        """Raises TrialFailed if it cannot be armed: nothing has happened then."""
        self._happenings = happenings
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._done: list[tuple[Happening, int, int]] = []
        self.begun = False
        """Whether anything has happened."""
        self._fault = ""
        longest_s = max(each.lasts_ns for each in happenings) / 1e9
        try:
            self._freezer = Freezer(pid, longest_s + _LEASE_S)
        except OSError as error:
            raise TrialFailed(f"the event cannot be undone safely, so it was not begun: {error}") from error

    def window_starts(self, at_unix_ns: int) -> None:
        """Call when the load's window starts. From now on events happen by themselves."""
        deadline_s = time.monotonic() + (at_unix_ns - time.time_ns()) / 1e9
        self._thread = threading.Thread(target=self._perform, args=(deadline_s,), name="events", daemon=True)
        self._thread.start()

    def _perform(self, start_s: float) -> None:
        for each in self._happenings:
            if self._over.wait(max(0.0, start_s + each.at_ns / 1e9 - time.monotonic())):
                return
            try:
                self._freezer.freeze()
            except OSError as error:
                self._fault = f"the target could not be stopped: {error}"
                return
            began_ns = time.time_ns()
            self.begun = True
            self._over.wait(each.lasts_ns / 1e9)
            self._freezer.thaw()
            self._done.append((each, began_ns, time.time_ns()))

    def close(self) -> None:
        """Undoes current events at once."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._freezer.close()

    def told(self, result: TrialResult) -> TrialResult:
        """The result with the events. Raises TrialFailed if not all of them happened."""
        self.close()
        if missing := self._happenings[len(self._done) :]:
            reason = self._fault or "the load ended before"
            raise TrialFailed(f"the event `{missing[0].words}` did not happen: {reason}")
        start_ns = result.window.start_unix_ns
        happened = [
            Happened(what=each.words, asked_ns=each.at_ns, began_ns=began_ns - start_ns, undone_ns=undone_ns - start_ns)
            for each, began_ns, undone_ns in self._done
        ]
        return result.model_copy(update={"events": tuple(happened)})
