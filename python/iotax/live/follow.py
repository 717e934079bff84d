"""Writes a run on the board: a run of this process as the runner tells it, a run of another process by looking into its
notebook."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from iotax.design import Plan, plan
from iotax.expected import Clock
from iotax.labs.base import Sample, Step
from iotax.listener import Ending, Listener
from iotax.live.board import Board
from iotax.notebook import Notebook, NotebookError
from iotax.study.imported import ImportedStudy
from iotax.trial import Attempt, Trial

LOOK_S = 1.0
"""Between looks; one that finds nothing new asks SQLite for a number."""


class Follower:
    """Follows one run in a thread of its own, from `start` to `stop`."""

    def __init__(self, board: Board, path: Path, run: int) -> None:
        self._board, self._path, self._run = board, path, run
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follow", daemon=True)
        self._known: set[int] = set()
        """Attempts whose ending is on the board."""
        self._under_way: set[int] = set()
        self._trials: set[str] = set()
        self._clock: Clock | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(LOOK_S)

    def _follow(self) -> None:
        seen: tuple[int, bool] | None = None
        try:
            with Notebook(self._path) as notebook:
                while not self._stop.is_set():
                    now = (notebook.data_version(), notebook.is_written())
                    if now != seen:
                        self._look(notebook, written=now[1])
                        seen = now
                    self._stop.wait(LOOK_S)
        except NotebookError as error:
            self._board.end("stopped", f"The notebook can no longer be read: {error}")

    def _look(self, notebook: Notebook, *, written: bool) -> None:
        left = notebook.left(self._run)
        fresh = notebook.attempts_but(self._run, self._known)
        for number, attempt in fresh.items():
            if attempt.status != "running":
                self._known.add(number)
                self._board.end_attempt(attempt)
                if attempt.status == "done" and self._clock is not None:
                    self._clock.finish(attempt.trial)
        self._plan(notebook, left)
        running = {number: attempt for number, attempt in fresh.items() if attempt.status == "running"}
        if running and running.keys() != self._under_way:
            trials = [each.trial for each in running.values()]
            if self._clock is not None:
                self._clock.begin(trials)
            self._board.start(trials, max(each.number for each in running.values()))
        self._under_way = set(running)
        if not written:
            self._end(len(left))

    def _plan(self, notebook: Notebook, left: list[Trial]) -> None:
        """The plan first, later trials that a search adds, and the fact that work continues."""
        trials = notebook.trials(self._run)
        study = notebook.study(self._run)
        if not self._trials and not isinstance(study, ImportedStudy):
            self._clock = Clock(plan(study), left)
        elif self._clock is not None:
            self._clock.extend([trial for trial in trials if trial.id not in self._trials])
        self._trials = {trial.id for trial in trials}
        self._board.plan(self._clock, len(trials))

    def _end(self, left: int) -> None:
        if left:
            self._board.end("stopped", f"Trials left: {left}. The same command continues.")
        else:
            self._board.end("ended", f"The verdicts are in the report: iotax report {self._path}")


class LiveListener(Listener):
    def __init__(self, board: Board, notebook: Path) -> None:
        self._board, self._notebook = board, notebook
        self._clock: Clock | None = None

    def earlier(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._board.end_attempt(attempt)

    def planned(self, plan: Plan, left: list[Trial], resumed: bool) -> None:
        del resumed
        self._clock = Clock(plan, left)
        self._board.plan(self._clock, self._board.counts[0] + len(left))

    def extended(self, trials: list[Trial]) -> None:
        if self._clock is not None:
            self._clock.extend(trials)
        self._board.extend(len(trials))

    def step(self, step: Step) -> None:
        self._board.step(step)

    def started(self, trials: Sequence[Trial], attempt: int) -> None:
        if self._clock is not None:
            self._clock.begin(trials)
        self._board.start(trials, attempt)

    def sample(self, sample: Sample) -> None:
        self._board.sample(sample)

    def ended(self, attempt: Attempt) -> None:
        if attempt.status == "done" and self._clock is not None:
            self._clock.finish(attempt.trial)
        self._board.end_attempt(attempt)

    def warning(self, message: str) -> None:
        self._board.warn(message)

    def concluded(self, summary: Ending) -> None:
        if summary.interrupted:
            self._board.end("interrupted", "The same command continues.")
        elif summary.not_undone:
            self._board.end("stopped", f"An event was not undone ({summary.not_undone}).")
        elif summary.away:
            self._board.end("stopped", f"The target does not answer ({summary.away}); the same command continues.")
        else:
            self._board.end("ended", f"The verdicts are in the report of {self._notebook}.")
