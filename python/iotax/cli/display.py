"""Shows a run: a live line on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from iotax.cli.console import console_on
from iotax.expected import Clock
from iotax.listener import Listener
from iotax.protocols import titles
from iotax.units import counted, show_minutes, show_rate, show_share, show_time

if TYPE_CHECKING:
    # Slow imports come later, so that the first line of a run appears at once.
    from iotax.analysis.responses import CpuPart
    from iotax.design import Plan
    from iotax.labs.base import Closing, Sample, Step
    from iotax.study import Study
    from iotax.trial import Attempt, Background, Trial, TrialResult

PLAIN_EVERY_S = 15.0
"""How often a run without a terminal reports its progress after its first trial."""
_BAR_COLUMNS = 20


class Display(Listener):
    """Lines that both displays print."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clock: Clock | None = None
        self._under_way = ""

    def close(self) -> None:
        """Removes a live line."""

    def asked(self, study: Study) -> None:
        """The first line of a run, printed before anything slow."""
        self._print(f"{study.name}: {study.question}")

    def planned(self, plan: Plan, left: list[Trial], resumed: bool) -> None:
        self._clock = Clock(plan, left)
        if resumed:
            took = show_minutes(self._clock.left_s())
            done = len(plan.trials) - len(left)
            self._print(f"Resuming: {done} of {len(plan.trials)} trials are done, {len(left)} left, about {took}.")
        else:
            self._print(f"{plan.amount}.")

    def replicated(self, trials: list[Trial], unit: str) -> None:
        more = sorted({trial.replicate for trial in trials if trial.compared})
        numbers = f"{unit} {more[0]}" if len(more) == 1 else f"{unit}s {more[0]} to {more[-1]}"
        self._print(f"Adding {numbers}, {counted(len(trials), 'trial')}, to the run that this notebook holds.")

    def extended(self, trials: list[Trial]) -> None:
        if self._clock is not None:
            self._clock.extend(trials)
        self._print(f"The search goes on: {counted(len(trials), 'trial')}.")

    def started(self, trials: Sequence[Trial], attempt: int) -> None:
        self._under_way = trials[0].id if len(trials) == 1 else f"session {trials[0].block}"
        if self._clock is not None:
            self._clock.begin(trials)
        if attempt > 1:
            self._print(f"{self._under_way}: trying again.")

    def ended(self, attempt: Attempt) -> None:
        if attempt.status == "done" and self._clock is not None:
            self._clock.finish(attempt.trial)
        elif attempt.status != "done":
            self.warning(f"{attempt.trial.id}: attempt {attempt.number} {attempt.status}: {attempt.why}")

    def said(self, message: str) -> None:
        self._print(message)

    def warning(self, message: str) -> None:
        self._print(message, style="yellow")

    def closed(self, closing: Closing) -> None:
        for line in closing.said.splitlines():
            self._print(line)
        super().closed(closing)

    def _print(self, message: str, style: str = "") -> None:
        self._console.print(Text(message, style=style), soft_wrap=True)


class _SoFar:
    """The results so far of each arm, without a verdict."""

    def __init__(self, study: Study) -> None:
        self._names = [name for name in study.compared if name in study.levels()]
        self._levels = study.levels()
        self._results: dict[str, list[TrialResult]] = {}

    def add(self, trial: Trial, result: TrialResult) -> None:
        arm = " · ".join(self._label(name, trial.treatment.get(name)) for name in self._names)
        self._results.setdefault(arm, []).append(result)

    def _label(self, name: str, value: object) -> str:
        return next((level.label for level in self._levels[name] if level.value == value), str(value))

    def table(self, rows_max: int) -> Table | None:
        if not self._results:
            return None
        from iotax.wording import figure

        # Nothing reads the CPU time of targets that iotax did not start.
        both = any(_cpu_ns(each, "both") for results in self._results.values() for each in results)
        part: CpuPart = "both" if both else "initiator"
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("so far", no_wrap=True)
        for name in ("trials", "IOPS", "latency µs", "CPU µs/IO" if both else "initiator CPU µs/IO"):
            table.add_column(name, justify="right", no_wrap=True)
        for arm, results in [*self._results.items()][:rows_max]:
            latencies = [result.latency_mean_ns / 1e3 for result in results if result.ios]
            cpu = [ns / 1e3 / result.ios for result in results if result.ios and (ns := _cpu_ns(result, part))]
            table.add_row(
                escape(" · ".join(titles().get(name, name) for name in arm.split(" · "))),
                str(len(results)),
                show_rate(_mean([result.rate_iops for result in results])),
                figure(_mean(latencies)) if latencies else "–",
                figure(_mean(cpu)) if cpu else "–",
            )
        return table


def _mean(values: Sequence[float]) -> float:
    """Geometric mean, as for a report's absolute figures."""
    positive = [value for value in values if value > 0]
    return geometric_mean(positive) if positive else 0.0


def _cpu_ns(result: TrialResult, part: CpuPart) -> int:
    """CPU time of the part, 0 if it was not read."""
    from iotax.analysis.responses import cpu_ns

    return cpu_ns(result, part) or 0


class LiveDisplay(Display):
    """A bar, the current trial, its IOPS and latency, and the time left; above them the results so far of each arm."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._so_far: _SoFar | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()
        self._sample: Sample | None = None
        self._step: Step | None = None

    def close(self) -> None:
        self._live.stop()

    def asked(self, study: Study) -> None:
        super().asked(study)
        self._so_far = _SoFar(study)

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
        if self._so_far is not None and attempt.result is not None and attempt.trial.compared:
            self._so_far.add(attempt.trial, attempt.result)
        self._draw()

    def _draw(self) -> None:
        said = self._said()
        # The last column stays free: some terminals wrap when it is filled.
        width = self._console.width - 1
        line = Table.grid(padding=(0, 2))
        if self._clock is not None and len(said[0]) + 2 + _BAR_COLUMNS <= width:
            line.add_row(ProgressBar(1.0, self._clock.share, width=_BAR_COLUMNS), said[0])
        else:
            fitting = next((each for each in said if len(each) <= width), said[-1])
            fitting.truncate(width)
            line.add_row(fitting)
        table = self._so_far.table(self._console.height - 4) if self._so_far is not None else None
        self._live.update(Group(table, line) if table is not None else line, refresh=True)

    def _said(self) -> list[Text]:
        """The progress line in versions from the longest to the shortest."""
        begin: list[Text | str] = []
        if self._clock is not None:
            left = Text(f"{show_minutes(self._clock.left_s())} left", style="cyan")
            begin = [f"{self._clock.done}/{self._clock.total}", left]
        if self._step is not None:
            share = f" {show_share(self._step.fraction, 0)}" if self._step.fraction is not None else ""
            return [_in_one([*begin, f"{self._step.text}{share}"])]
        if not self._under_way:
            return [_in_one(begin)]
        begin.append(Text(_place(self._under_way, self._sample), style="bold"))
        parts = _describe(self._sample)
        return [_in_one([*begin, *parts[:count]]) for count in range(len(parts), -1, -1)]


def _in_one(parts: Sequence[Text | str]) -> Text:
    line = Text("  ").join(part if isinstance(part, Text) else Text(part) for part in parts)
    line.no_wrap = True
    return line


class PlainDisplay(Display):
    """The display for logs and pipes: a line now and then."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._said_s: float | None = None
        self._began_s = time.monotonic()

    def step(self, step: Step) -> None:
        said = f"{step.text[:1].upper()}{step.text[1:]}"
        if step.fraction is None:
            self._print(f"{said}.")
        elif time.monotonic() - max(self._began_s, self._said_s or 0.0) >= PLAIN_EVERY_S:
            self._said_s = time.monotonic()
            place = f"{self._clock.done}/{self._clock.total} {self._under_way}: " if self._clock is not None else ""
            self._print(f"{place}{step.text if place else said}, {show_share(step.fraction, 0)}")

    def started(self, trials: Sequence[Trial], attempt: int) -> None:
        super().started(trials, attempt)
        self._began_s = time.monotonic()

    def sample(self, sample: Sample) -> None:
        # A single trial is reported when it ends, since that is soon. The trials of a session all end at once.
        if self._clock is not None and sample.trial and self._is_due():
            self._tell(self._clock, _place(self._under_way, sample), ", ".join(_describe(sample)))

    def ended(self, attempt: Attempt) -> None:
        super().ended(attempt)
        clock, result = self._clock, attempt.result
        if clock is None or result is None:
            return
        is_last = clock.done == clock.total
        if self._under_way == attempt.trial.id and (is_last or self._is_due()):
            self._tell(clock, attempt.trial.id, ", ".join(_measured(result)))
        elif self._under_way != attempt.trial.id and clock.between and (is_last or self._is_due()):
            self._tell(clock, self._under_way, "done")

    def background(self, background: Background) -> None:
        machine_ns = background.cpu.machine_ns
        if machine_ns is not None:
            cores = machine_ns / background.duration_ns
            self._print(f"Block {background.block}: background {cores:.2f} cores busy without load.")

    def _is_due(self) -> bool:
        return self._said_s is None or time.monotonic() - self._said_s >= PLAIN_EVERY_S

    def _tell(self, clock: Clock, place: str, measured: str) -> None:
        self._said_s = time.monotonic()
        self._print(f"{clock.done}/{clock.total} {place}: {measured}; about {show_minutes(clock.left_s())} left")


class QuietDisplay(Display):
    """Prints warnings only."""

    def warning(self, message: str) -> None:
        super()._print(message, style="yellow")

    def _print(self, message: str, style: str = "") -> None:
        """Prints nothing."""


def display_on(stream: TextIO) -> Display:
    """The display that fits the stream."""
    console = console_on(stream)
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


def _place(under_way: str, sample: Sample | None) -> str:
    """The current trial; in a session also its round and the treatment whose slice ended last."""
    if sample is None or not sample.trial:
        return under_way
    return f"{under_way}, round {sample.round}, {sample.trial.rpartition('/')[0]}"


def _measured(result: TrialResult) -> Iterator[str]:
    """Latencies only where they are known: of a command's result they may not be."""
    yield f"{show_rate(result.rate_iops)} {result.rate_unit}"
    for percent in (50, 99):
        if not math.isnan(latency_ns := result.latency_ns(percent)):
            yield f"p{percent} {show_time(latency_ns)}"


def _describe(sample: Sample | None) -> list[str]:
    """The latest figures, the most useful first."""
    if sample is None:
        return ["connecting"]
    parts = [f"{show_rate(sample.rate_iops)} IOPS"]
    if sample.phase == "warmup":
        parts.append("warming up")
    if sample.latency_p50_ns is not None and sample.latency_p99_ns is not None:
        parts.append(f"p50 {show_time(sample.latency_p50_ns)}, p99 {show_time(sample.latency_p99_ns)}")
    return parts
