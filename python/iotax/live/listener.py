"""Writes a run of this process on the board, as the runner tells it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from iotax.design import Plan
from iotax.expected import Clock
from iotax.labs.base import Sample, Step
from iotax.listener import Ending, Listener
from iotax.live.board import Board
from iotax.trial import Attempt, Trial


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
        elif summary.away:
            self._board.end("stopped", f"The target does not answer ({summary.away}); the same command continues.")
        else:
            self._board.end("ended", f"The verdicts are in the report of {self._notebook}.")
