"""Runs what is left of a plan and writes every attempt down. The only writer of measurements.

A trial whose attempt fails is tried once more, then left; the study goes on. What cannot go otherwise is not tried
again. A target that is gone is waited for, and where it stays away the study ends with its trials left, or goes on
without a host that is lost, where the user said so. Ctrl-C ends the attempt under way, never the writing of one that is
over.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Generator
from types import FrameType
from typing import Any

from iotax.analysis.data import StudyData
from iotax.analysis.precision import precise_enough
from iotax.analysis.search import next_trials
from iotax.design import Plan
from iotax.design.plan import added
from iotax.design.rounds import session_of
from iotax.labs.base import (
    NOT_UNDONE,
    CheckItem,
    Lab,
    LabUnusable,
    Outcome,
    Progress,
    Sample,
    SlicesEnded,
    Step,
    TrialFailed,
)
from iotax.listener import Ending, Listener
from iotax.notebook import Writer
from iotax.preconditioning import precondition
from iotax.redaction import learn_from
from iotax.study import Study
from iotax.trial import Connected, Kept, Status, Trial
from iotax.units import counted
from iotax.waiting import WAIT_FOR_TARGET_S, waits_s

TRIES = 2
"""Attempts at a trial within one invocation."""


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
    wait_for_target_s: float = WAIT_FOR_TARGET_S,
) -> Ending:
    """Runs every trial that has no result yet. Raises LabUnusable before the first trial, NotebookError at any time.

    The latest run of an equal study under the same label continues. A run with fewer replicates gets the missing
    ones, unless all of them draw their costs. `anew` begins another run
    whatever there is.
    """
    started_unix_ns = time.time_ns()
    learn_from(study.model_dump())
    session = None
    with _Interrupts() as interrupts:
        try:
            earlier = None if anew else writer.earlier(study, label)
            if earlier is not None:
                # An invocation may have ended between the last trial and planning what comes after it.
                _plan_more(study, writer, earlier)
                if not writer.left(earlier) and not writer.partial(earlier):
                    return Ending(earlier, 0, (), interrupted=False, finished=True)
            with interrupts.heard():
                lab.prepare(_progress(listener))
            for host, why in lab.absent.items():
                listener.warning(_without(host, why))
            run, resumed = _taken_up(study, plan, writer, earlier, source, label, listener, anew=anew)
            left = _left(writer, run, lab, listener)
            if not left:
                return Ending(run, 0, (), interrupted=False, finished=True)
            session = writer.begin_session(run, environment | lab.environment(), started_unix_ns)
            with interrupts.heard():
                _precondition(study, lab, writer, run, session, listener)
            if resumed:
                listener.earlier(writer.attempts(run))
            listener.planned(plan, left, resumed)
            runner = _Runner(run, session, lab, writer, listener, interrupts, wait_for_target_s)
            summary = runner.work(left)
            while not summary.ended_early and (more := _plan_more(study, writer, run, summary)):
                listener.extended(more)
                summary = runner.work(more)
            listener.concluded(summary)
            return summary
        finally:
            lab.close()
            closing = lab.closing()
            if session is not None and closing.log:
                writer.add_closing(session, run, closing.log)
            listener.closed(closing)


def _taken_up(
    study: Study,
    plan: Plan,
    writer: Writer,
    earlier: int | None,
    source: str,
    label: str,
    listener: Listener,
    *,
    anew: bool,
) -> tuple[int, bool]:
    """The run to work on, and whether it is an earlier one."""
    if earlier is not None:
        return earlier, True
    # A search plans by what it finds: with more replicates it is another one. Drawn costs scatter as their number asks.
    another = anew or study.search is not None or study.draws_costs()
    smaller = None if another else writer.smaller(study, label)
    if smaller is None:
        return writer.begin(study, source, label, list(plan.trials)), False
    more = added(study, writer.trials(smaller))
    writer.extend(smaller, study, source, more)
    listener.replicated(more, study.design.unit)
    if writer.looks(smaller):
        listener.warning(
            "This run had results when replicates were added, so its ratios get no verdict: adding until something "
            "differs finds differences that are not there. Another `seed:` in the study begins a new run, which does."
        )
    return smaller, True


def _left(writer: Writer, run: int, lab: Lab, listener: Listener) -> list[Trial]:
    """What has no result yet, and what ran without hosts that are all there now: the later result counts."""
    again = {trial for trial, without in writer.partial(run).items() if not set(without) & set(lab.absent)}
    if again:
        listener.warning(
            f"All hosts of {counted(len(again), 'trial')} that ran with fewer clients answer now: "
            f"{'it is' if len(again) == 1 else 'they are'} run again, and the earlier result counts no more."
        )
    open_trials = {trial.id for trial in writer.left(run)} | again
    return [trial for trial in writer.trials(run) if trial.id in open_trials]


def _precondition(study: Study, lab: Lab, writer: Writer, run: int, session: int, listener: Listener) -> None:
    """Raises LabUnusable; finished work is kept, and the next invocation continues from there."""
    if study.precondition is None:
        return
    try:
        precondition(
            study.precondition,
            lab,
            writer.preconditionings(run),
            session,
            lambda step: writer.add_preconditioning(session, run, step),
            _progress(listener),
            listener.warning,
        )
    except TrialFailed as failed:
        raise LabUnusable([CheckItem("error", "preconditioning", failed.reason)]) from failed


def _plan_more(study: Study, writer: Writer, run: int, so_far: Ending | None = None) -> list[Trial]:
    """What a search runs next, written down before it runs; empty if trials are left or the search is over.

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
        self,
        run: int,
        session: int,
        lab: Lab,
        writer: Writer,
        listener: Listener,
        interrupts: _Interrupts,
        wait_for_target_s: float,
    ) -> None:
        self._run, self._session, self._wait_for_target_s = run, session, wait_for_target_s
        self._lab, self._writer, self._listener, self._interrupts = lab, writer, listener, interrupts
        self._failed: list[str] = []
        self._done = 0
        self._block = 0

    def work(self, left: list[Trial]) -> Ending:
        self._lab.expect(left)
        try:
            for trials in self._together(left):
                if trials[0].block != self._block:
                    block = self._block = trials[0].block
                    if self._may_stop(block):
                        return Ending(self._run, self._done, tuple(self._failed), interrupted=False, stopped=True)
                    self._measure_background(block)
                self._try(trials)
        except KeyboardInterrupt:
            return Ending(self._run, self._done, tuple(self._failed), interrupted=True)
        except _TargetAway as away:
            return Ending(self._run, self._done, tuple(self._failed), interrupted=False, away=away.reason)
        except _NotUndone as event:
            return Ending(self._run, self._done, tuple(self._failed), interrupted=False, not_undone=event.reason)
        return Ending(self._run, self._done, tuple(self._failed), interrupted=False)

    def _may_stop(self, block: int) -> bool:
        """Before a block starts: do the blocks so far say enough?"""
        study = self._writer.study(self._run)
        design = study.design
        if design.stop is None:
            return False
        attempts = self._writer.attempts(self._run)
        if any(each.trial.block == block for each in attempts):
            return False
        if not precise_enough(StudyData(study, attempts), block - 1):
            return False
        self._listener.warning(
            f"Precise enough after {block - 1} {design.unit}s, as the study's `stop:` says; ending here."
        )
        return True

    def _measure_background(self, block: int) -> None:
        try:
            with self._interrupts.heard():
                background = self._lab.background(block)
        except TrialFailed as failed:
            self._listener.warning(f"block {block}: the background could not be measured: {failed.reason}")
            return
        if background is not None:
            self._writer.add_background(self._session, self._run, background)
            self._listener.background(background)

    def _together(self, left: list[Trial]) -> list[list[Trial]]:
        """Trials that are measured in turns, a session each; one by one where each is a run of its own."""
        study = self._writer.study(self._run)
        if study.design.slices is None:
            return [[trial] for trial in left]
        return [list(session) for _, session in itertools.groupby(left, lambda trial: session_of(study, trial))]

    def _measure(self, trials: list[Trial], kept: dict[str, list[Kept]]) -> list[Outcome]:
        """Adds what a session tells of its slices to `kept`, by trial."""
        told = _progress(self._listener)

        def progress(news: Sample | Step | SlicesEnded) -> None:
            if isinstance(news, SlicesEnded):
                kept.setdefault(news.trial, []).append(news.kept)
            else:
                told(news)

        with self._interrupts.heard():
            if self._writer.study(self._run).design.slices is None:
                return [self._lab.run(trial, progress) for trial in trials]
            return self._lab.run_rounds(trials, progress)

    def _try(self, trials: list[Trial]) -> None:
        number, fellow = 0, ""
        while number < TRIES:
            number += 1
            self._interrupts.check()
            attempts = [self._writer.begin_attempt(self._session, self._run, trial) for trial in trials]
            self._listener.started(trials, number)
            kept: dict[str, list[Kept]] = {}
            left = [kept.setdefault(trial.id, []) for trial in trials]
            try:
                outcomes = self._measure(trials, kept)
            except TrialFailed as failed:
                self._end_all(attempts, left, "failed", failed.reason, connected=failed.connected, log=failed.log)
                for attempt in attempts:
                    self._listener.ended(self._writer.attempt(attempt))
                if failed.kind == NOT_UNDONE:
                    raise _NotUndone(failed.reason) from failed
                if failed.permanent:
                    break
                again, fellow = bool(failed.host) and failed.host == fellow, failed.host
                if self._stays_away(trials, failed, again=again):
                    self._listener.warning(_without(failed.host, failed.reason))
                    number = 0
            except KeyboardInterrupt:
                self._end_all(attempts, left, "interrupted", "stopped by the user")
                raise
            except BaseException as error:
                self._end_all(attempts, left, "failed", f"{type(error).__name__}: {error}")
                raise
            else:
                for attempt, outcome in zip(attempts, outcomes, strict=True):
                    self._writer.end_attempt(
                        attempt, "done", result=outcome.result, connected=outcome.connected, log=outcome.log
                    )
                    self._listener.ended(self._writer.attempt(attempt))
                    self._done += 1
                return
        self._failed += [trial.id for trial in trials]

    def _end_all(
        self,
        attempts: list[int],
        left: list[list[Kept]],
        status: Status,
        reason: str,
        connected: Connected | None = None,
        log: str = "",
    ) -> None:
        """`left`: the slices that ended, by attempt."""
        for attempt, kept in zip(attempts, left, strict=True):
            self._writer.end_attempt(attempt, status, reason=reason, connected=connected, log=log, kept=kept)

    def _stays_away(self, trials: list[Trial], failed: TrialFailed, *, again: bool) -> bool:
        """Whether trials go on without the host that failed, which did so `again`. Raises _TargetAway where they cannot
        go on at all."""
        if again and self._lab.leave_out(failed):
            return True
        if failed.away:
            try:
                self._await(trials, failed.reason)
            except _TargetAway:
                if self._lab.leave_out(failed):
                    return True
                raise
        return False

    def _await(self, trials: list[Trial], reason: str) -> None:
        """Returns once all that the trials go to answers. Raises _TargetAway where it stays away too long."""
        until_s = time.monotonic() + self._wait_for_target_s
        for wait_s in waits_s():
            with self._interrupts.heard():
                if all(self._lab.answers(trial) for trial in trials):
                    return
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise _TargetAway(reason)
                self._listener.step(Step(f"the target does not answer; waiting {left_s:.0f} s more at most"))
                time.sleep(min(wait_s, left_s))


class _StudyEnds(Exception):  # noqa: N818 - an outcome, not a bug
    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class _TargetAway(_StudyEnds):
    pass


class _NotUndone(_StudyEnds):
    pass


class _Interrupts:
    """Turns SIGINT, SIGTERM and SIGHUP into KeyboardInterrupt, but only where the work can stop cleanly."""

    _SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._hearing = False
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            # What the caller has ignored, such as a hang-up by `nohup`, stays ignored.
            heard = [each for each in self._SIGNALS if signal.getsignal(each) != signal.SIG_IGN]
            self._before = {each: signal.signal(each, self._hear) for each in heard}
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


def _without(host: str, why: str) -> str:
    why = why.removeprefix(f"{host}: ")
    return f"{host} is left out ({why}). Trials that have it go on without it, and are compared with nothing."


def _progress(listener: Listener) -> Progress:
    def tell(news: Sample | Step | SlicesEnded) -> None:
        if isinstance(news, Sample):
            listener.sample(news)
        elif isinstance(news, Step):
            listener.step(news)

    return tell
