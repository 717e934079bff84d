"""What a run shows: a live line on a terminal, sparse lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from iotax.cli.console import Lasting
from iotax.design import Plan
from iotax.labs.base import Sample, Step
from iotax.runner import Listener
from iotax.trial import Attempt, Background, Trial
from iotax.units import show_minutes, show_rate, show_time

PLAIN_EVERY_S = 15.0
"""How often a run without a terminal says how far it is."""


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


class Display(Listener):
    """Lines that both displays print."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clock: Clock | None = None
        self._under_way = ""

    def close(self) -> None:
        """Takes a live line away."""

    def planned(self, plan: Plan, left: list[Trial], resumed: bool) -> None:
        self._clock = Clock(plan, left)
        if resumed:
            took = show_minutes(self._clock.left_s())
            done = len(plan.trials) - len(left)
            self._print(f"Resuming: {done} of {len(plan.trials)} trials are done, {len(left)} left, about {took}.")
        else:
            took = show_minutes(plan.duration_ns / 1e9)
            self._print(f"{len(plan.trials)} trials in {plan.blocks} block{'s'[: plan.blocks - 1]}, about {took}.")

    def extended(self, trials: list[Trial]) -> None:
        if self._clock is not None:
            self._clock.extend(trials)
        self._print(f"The search goes on: {len(trials)} trial{'s'[: len(trials) > 1]}.")

    def background(self, background: Background) -> None:
        machine_ns = background.cpu.machine_ns
        if machine_ns is not None:
            cores = machine_ns / background.duration_ns
            self._print(f"Block {background.block}: background {cores:.2f} cores busy without load.")

    def started(self, trials: Sequence[Trial], attempt: int) -> None:
        self._under_way = trials[0].id if len(trials) == 1 else f"session {trials[0].block}"
        if attempt > 1:
            self._print(f"{self._under_way}: trying again.")

    def ended(self, attempt: Attempt) -> None:
        if attempt.status == "done" and self._clock is not None:
            self._clock.finish(attempt.trial)
        elif attempt.status != "done":
            self.warning(f"{attempt.trial.id}: attempt {attempt.number} {attempt.status}: {attempt.reason}")

    def warning(self, message: str) -> None:
        self._print(message, style="yellow")

    def _print(self, message: str, style: str = "") -> None:
        self._console.print(Text(message, style=style), soft_wrap=True)


class LiveDisplay(Display):
    """A bar, the trial under way, its IOPS and latency, the time left."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()
        self._sample: Sample | None = None
        self._step: Step | None = None

    def close(self) -> None:
        self._live.stop()

    def step(self, step: Step) -> None:
        self._step = step
        self._draw()

    def started(self, trials: Sequence[Trial], attempt: int) -> None:
        super().started(trials, attempt)
        self._sample = self._step = None
        self._draw()

    def sample(self, sample: Sample) -> None:
        self._sample, self._step = sample, None
        self._draw()

    def ended(self, attempt: Attempt) -> None:
        super().ended(attempt)
        self._sample = None
        self._draw()

    def _draw(self) -> None:
        line = Table.grid(padding=(0, 2))
        cells: list[Text | ProgressBar] = []
        if self._clock is not None:
            cells += [
                ProgressBar(self._clock.total, self._clock.done, width=20),
                Text(f"{self._clock.done}/{self._clock.total}"),
                Text(
                    f"{show_minutes(self._clock.left_s(self._sample.at_ns if self._sample else 0))} left", style="cyan"
                ),
            ]
        if self._step is not None:
            share = f" {self._step.fraction:.0%}" if self._step.fraction is not None else ""
            cells.append(Text(f"{self._step.text}{share}"))
        elif self._under_way:
            cells.append(Text(_place(self._under_way, self._sample), style="bold"))
            cells.append(Text(_describe(self._sample)))
        line.add_row(*cells)
        self._live.update(line, refresh=True)


class PlainDisplay(Display):
    """For logs and pipes: now and then a line."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._said = time.monotonic()

    def step(self, step: Step) -> None:
        if step.fraction is None:
            self._print(f"{step.text[:1].upper()}{step.text[1:]}.")

    def ended(self, attempt: Attempt) -> None:
        super().ended(attempt)
        clock, result = self._clock, attempt.result
        if clock is None or result is None:
            return
        if time.monotonic() - self._said < PLAIN_EVERY_S and clock.done < clock.total:
            return
        self._said = time.monotonic()
        self._print(
            f"{clock.done}/{clock.total} {attempt.trial.id}: {show_rate(result.rate_iops)} IOPS, "
            f"p50 {show_time(result.latency_ns(50))}, p99 {show_time(result.latency_ns(99))}; "
            f"about {show_minutes(clock.left_s())} left"
        )


def display_on(stream: TextIO) -> Display:
    """The display that fits the stream."""
    console = Lasting(file=stream, highlight=False)
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


def _place(under_way: str, sample: Sample | None) -> str:
    """The trial under way; of a session also its round and whose slice ended last."""
    if sample is None or not sample.trial:
        return under_way
    return f"{under_way}, round {sample.round}, {sample.trial.rpartition('/')[0]}"


def _describe(sample: Sample | None) -> str:
    if sample is None:
        return "connecting"
    parts = [f"{show_rate(sample.rate_iops)} IOPS"]
    if sample.latency_p50_ns is not None and sample.latency_p99_ns is not None:
        parts.append(f"p50 {show_time(sample.latency_p50_ns)}, p99 {show_time(sample.latency_p99_ns)}")
    if sample.phase == "warmup":
        parts.append("warming up")
    return "  ".join(parts)
