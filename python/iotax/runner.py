"""Runs what is left of a plan and writes every attempt down. The only writer of measurements.

A trial whose attempt fails is tried once more, then left; the study goes on. Ctrl-C ends the attempt under way, never
the writing of one that is over.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from iotax.analysis.data import StudyData
from iotax.analysis.search import next_trials
from iotax.analysis.stopping import precise_enough
from iotax.design import Plan
from iotax.labs.base import Lab, Progress, Sample, Step, TrialFailed
from iotax.notebook import Writer
from iotax.study import Study
from iotax.trial import Attempt, Background, Trial

TRIES = 2
"""Attempts at a trial within one invocation."""


class Listener:
    """What a runner tells while it works; a display overrides what it shows."""

    def planned(self, plan: Plan, left: list[Trial], resumed: bool) -> None: ...

    def extended(self, trials: list[Trial]) -> None:
        """A search goes on."""

    def step(self, step: Step) -> None: ...

    def background(self, background: Background) -> None: ...

    def started(self, trial: Trial, attempt: int) -> None: ...

    def sample(self, sample: Sample) -> None: ...

    def ended(self, attempt: Attempt) -> None: ...

    def warning(self, message: str) -> None: ...


@dataclass(frozen=True)
class Summary:
    """How an invocation ended."""

    run: int
    done: int
    failed: tuple[str, ...]
    """Ids of trials that were given up."""
    interrupted: bool
    stopped: bool = False
    """The study's own rule ended it before its last block."""


def run_study(
    study: Study,
    plan: Plan,
    lab: Lab,
    writer: Writer,
    *,
    source: str,
    label: str,
    anew: bool,
    environment: dict[str, Any],
    listener: Listener,
) -> Summary:
    """Runs every trial that has no result yet. Raises LabUnusable before the first trial, NotebookError at any time."""
    started_unix_ns = time.time_ns()
    with _Interrupts() as interrupts:
        try:
            with interrupts.heard():
                lab.prepare(_progress(listener))
            if study.search is not None and not anew and (earlier := writer.latest(study, label)) is not None:
                # An invocation may have ended between the last trial and planning what comes after it.
                _plan_more(study, writer, earlier)
            run, resumed = writer.resume_or_begin(study, source, label, list(plan.trials), anew=anew)
            session = writer.begin_session(run, environment | lab.environment(), started_unix_ns)
            left = writer.left(run)
            listener.planned(plan, left, resumed)
            runner = _Runner(run, session, lab, writer, listener, interrupts)
            summary = runner.work(left)
            while not summary.interrupted and (more := _plan_more(study, writer, run, summary)):
                listener.extended(more)
                summary = runner.work(more)
            return summary
        finally:
            lab.close()


def _plan_more(study: Study, writer: Writer, run: int, so_far: Summary | None = None) -> list[Trial]:
    """What a search runs next, written down before it runs; empty where trials are left or the search is over.

    It goes on without trials that were given up, and without what the study's own rule made needless.
    """
    if study.search is None:
        return []
    given_up = so_far.failed if so_far else ()
    stopped = so_far is not None and so_far.stopped
    if not stopped and any(trial.id not in given_up for trial in writer.left(run)):
        return []
    more = next_trials(study, writer.trials(run), writer.attempts(run))
    writer.add_trials(run, more)
    return more


class _Runner:
    def __init__(
        self, run: int, session: int, lab: Lab, writer: Writer, listener: Listener, interrupts: _Interrupts
    ) -> None:
        self._run, self._session = run, session
        self._lab, self._writer, self._listener, self._interrupts = lab, writer, listener, interrupts
        self._failed: list[str] = []
        self._done = 0

    def work(self, left: list[Trial]) -> Summary:
        block = 0
        try:
            for trial in left:
                if trial.block != block:
                    if self._may_stop(trial.block):
                        return Summary(self._run, self._done, tuple(self._failed), interrupted=False, stopped=True)
                    block = trial.block
                    self._measure_background(block)
                self._try(trial)
        except KeyboardInterrupt:
            return Summary(self._run, self._done, tuple(self._failed), interrupted=True)
        return Summary(self._run, self._done, tuple(self._failed), interrupted=False)

    def _may_stop(self, block: int) -> bool:
        """Before a block that has not begun: do the blocks so far say enough?"""
        study = self._writer.study(self._run)
        if study.design.stop is None:
            return False
        attempts = self._writer.attempts(self._run)
        if any(each.trial.block == block for each in attempts):
            return False
        if not precise_enough(StudyData(study, attempts), block - 1):
            return False
        self._listener.warning(
            f"Precise enough after {block - 1} replicates, as the study's `stop:` says; ending here."
        )
        return True

    def _measure_background(self, block: int) -> None:
        try:
            with self._interrupts.heard():
                background = self._lab.background(block)
        except TrialFailed as failed:
            self._listener.warning(f"block {block}: the background could not be measured: {failed.reason}")
            return
        self._writer.add_background(self._session, self._run, background)
        self._listener.background(background)

    def _try(self, trial: Trial) -> None:
        for number in range(1, TRIES + 1):
            self._interrupts.check()
            attempt = self._writer.begin_attempt(self._session, self._run, trial)
            self._listener.started(trial, number)
            try:
                with self._interrupts.heard():
                    outcome = self._lab.run(trial, _progress(self._listener))
            except TrialFailed as failed:
                self._writer.end_attempt(
                    attempt, "failed", reason=failed.reason, connected=failed.connected, log=failed.log
                )
                self._listener.ended(self._writer.attempt(attempt))
            except KeyboardInterrupt:
                self._writer.end_attempt(attempt, "interrupted", reason="stopped by the user")
                raise
            except BaseException as error:
                self._writer.end_attempt(attempt, "failed", reason=f"{type(error).__name__}: {error}")
                raise
            else:
                self._writer.end_attempt(
                    attempt, "done", result=outcome.result, connected=outcome.connected, log=outcome.log
                )
                self._listener.ended(self._writer.attempt(attempt))
                self._done += 1
                return
        self._failed.append(trial.id)


class _Interrupts:
    """Turns SIGINT, SIGTERM and SIGHUP into KeyboardInterrupt, but only where the work can stop cleanly."""

    _SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._hearing = False
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._hear) for each in self._SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    @contextlib.contextmanager
    def heard(self) -> Generator[None]:
        """Within, a signal interrupts at once."""
        self._hearing = True
        try:
            self.check()
            yield
        finally:
            self._hearing = False

    def check(self) -> None:
        if self._asked:
            raise KeyboardInterrupt

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        first, self._asked = not self._asked, True
        if self._hearing and first:
            raise KeyboardInterrupt


def _progress(listener: Listener) -> Progress:
    def tell(news: Sample | Step) -> None:
        if isinstance(news, Sample):
            listener.sample(news)
        else:
            listener.step(news)

    return tell
