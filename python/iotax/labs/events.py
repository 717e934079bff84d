"""Makes a run's events happen while its load goes on, and keeps when."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from iotax.engine import EngineError
from iotax.labs.armed import Freezer
from iotax.labs.base import Outcome, TrialFailed
from iotax.records.interruptions import AFTER_EVENT, Happened
from iotax.study.events import Happening
from iotax.trial import TrialResult

_LEASE_S = 10.0
"""Added to the longest freeze of a target: afterwards it continues by itself."""


class Act(Protocol):
    """An event that can be made to happen and undone, several times. Both raise OSError."""

    def begin(self) -> None: ...
    def end(self) -> None: ...

    def close(self) -> None:
        """Undoes it if it has not been. Raises nothing."""


def freezes(happenings: Sequence[Happening], pid: int) -> dict[str, Act]:
    """Freezes a process of ours. It is armed from now on; raises TrialFailed if it cannot be."""
    if not (freezing := [each for each in happenings if each.do.freeze]):
        return {}
    longest_s = max(each.lasts_ns for each in freezing) / 1e9
    try:
        freezer = Freezer(pid, longest_s + _LEASE_S)
    except OSError as error:
        raise TrialFailed(f"the event cannot be undone safely, so it was not begun: {error}") from error
    return {each.do.words: freezer for each in freezing}


class OwnTarget:
    """Our own server is killed, or a path of it falls silent or has another access state. A server whose lab is gone
    ends, so this needs no second process."""

    def __init__(self, disturb: Callable[[bool], None]) -> None:
        """`disturb`: disturbs it, or ends that; raises EngineError."""
        self._disturb, self._is_disturbed = disturb, False

    def begin(self) -> None:
        self._tell(disturbed=True)

    def end(self) -> None:
        self._tell(disturbed=False)

    def _tell(self, *, disturbed: bool) -> None:
        try:
            self._disturb(disturbed)
        except EngineError as error:
            raise OSError(str(error)) from error
        self._is_disturbed = disturbed

    def close(self) -> None:
        if self._is_disturbed:
            with contextlib.suppress(OSError):
                self.end()


class Together:
    """Several that happen at once, in their order."""

    def __init__(self, acts: Sequence[Act]) -> None:
        self.acts = acts

    def begin(self) -> None:
        for each in self.acts:
            each.begin()

    def end(self) -> None:
        faults = []
        for each in self.acts:
            try:
                each.end()
            except OSError as error:
                faults.append(error)
        if faults:
            raise faults[0]

    def close(self) -> None:
        for each in self.acts:
            each.close()


def together(acts: Sequence[Act]) -> Act:
    return acts[0] if len(acts) == 1 else Together(acts)


class Flapping:
    """What happens and is undone again and again: half of the time it is so, half of the time it is not."""

    def __init__(self, act: Act, every_ns: int) -> None:
        self._act, self._half_s = act, every_ns / 2e9
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._fault: OSError | None = None

    def begin(self) -> None:
        self._over.clear()
        self._fault = None
        self._act.begin()
        self._thread = threading.Thread(target=self._flap, name="flapping", daemon=True)
        self._thread.start()

    def _flap(self) -> None:
        steps = itertools.cycle((self._act.end, self._act.begin))
        try:
            while not self._over.wait(self._half_s):
                next(steps)()
        except OSError as error:
            self._fault = error

    def _stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def end(self) -> None:
        self._stop()
        self._act.end()
        if self._fault is not None:
            raise self._fault

    def close(self) -> None:
        self._stop()
        self._act.close()


class Performer:
    """Makes a run's events happen. It undoes a current one when it is closed."""

    def __init__(self, happenings: Sequence[Happening], acts: Mapping[str, Act], ahead_ns: int = 0) -> None:
        """`acts`: by the words of the events. `ahead_ns`: how far the load's clock is ahead of this machine's."""
        self._happenings, self._acts, self._ahead_ns = happenings, acts, ahead_ns
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._done: list[tuple[Happening, int, int]] = []
        self.begun = False
        """Whether anything has happened."""
        self.fault = ""
        """What became of the event that was the last to be tried, if it failed."""

    def window_starts(self, at_unix_ns: int) -> None:
        """Call when the load's window starts, by the load's clock. From now on events happen by themselves."""
        deadline_s = time.monotonic() + (at_unix_ns - self._ahead_ns - time.time_ns()) / 1e9
        self._thread = threading.Thread(target=self._perform, args=(deadline_s,), name="events", daemon=True)
        self._thread.start()

    def _perform(self, start_s: float) -> None:
        for each in self._happenings:
            if self._over.wait(max(0.0, start_s + each.at_ns / 1e9 - time.monotonic())):
                return
            act = self._acts[each.do.words]
            try:
                act.begin()
            except OSError as error:
                self.fault = f"could not be done: {error}"
                return
            began_ns = time.time_ns()
            self.begun = True
            self._over.wait(each.lasts_ns / 1e9)
            try:
                act.end()
            except OSError as error:
                self.fault = f"could not be undone: {error}"
                return
            self._done.append((each, began_ns, time.time_ns()))

    def close(self) -> None:
        """Undoes current events at once."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        for act in self._acts.values():
            act.close()

    def told(self, result: TrialResult) -> TrialResult:
        """The result with the events. Raises TrialFailed if not all of them happened."""
        self.close()
        if missing := self._happenings[len(self._done) :]:
            what = self.fault or "did not happen: the load ended before"
            raise TrialFailed(f"the event `{missing[0].do.words}` {what}")
        start_ns = result.window.start_unix_ns - self._ahead_ns
        happened = [
            Happened(
                what=each.do.words, asked_ns=each.at_ns, began_ns=began_ns - start_ns, undone_ns=undone_ns - start_ns
            )
            for each, began_ns, undone_ns in self._done
        ]
        return result.model_copy(update={"events": tuple(happened)})


def blamed(failed: TrialFailed, *, begun: bool) -> TrialFailed:
    """The failure, with a reason that says so if wrong data were read after an event."""
    if failed.kind != "verify" or not begun:
        return failed
    return TrialFailed(f"{AFTER_EVENT}: {failed.reason}", failed.log, failed.connected, failed.kind, failed.host)


def performed(performer: Performer, run: Callable[[Callable[[int], None]], Outcome]) -> Outcome:
    """The outcome of a load with the events that happened during it. `run` is given what to call when the window
    starts. Raises TrialFailed; its reason says whether wrong data were read after an event."""
    with contextlib.closing(performer):
        try:
            outcome = run(performer.window_starts)
        except TrialFailed as failed:
            raise blamed(failed, begun=performer.begun) from failed
        return replace(outcome, result=performer.told(outcome.result))
