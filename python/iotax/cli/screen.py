"""The first screen of a run: what each protocol costs and one line for each verdict, in 24 lines of 80 columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, geometric_mean

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from iotax.analysis import StudyData, Summary, Verdict, summarise
from iotax.analysis.compare import Tax
from iotax.analysis.data import Grid
from iotax.analysis.interruptions import interruptions
from iotax.analysis.responses import SLOW
from iotax.cli.console import console, fitting
from iotax.cli.treatments import COLORS, measured_columns
from iotax.units import counted, show_rate
from iotax.wording import brief, figure, processors, recovery, search, title
from iotax.wording.conditions import ENCRYPTED_BRIEF, encrypted, under
from iotax.wording.trust import SIMULATED_BRIEF, disturbed_trials

LINES = 24
_BARS = (8, 5, 3, 0)
"""Columns of a bar, depending on the terminal's width."""
_EIGHTHS = " ▏▎▍▌▋▊▉"
_NAME_COLUMNS = 12
"""Columns kept for an arm's name, however narrow the terminal."""
_ROWS_MIN = 3
_DOUBT = "?"


@dataclass(frozen=True)
class _Column:
    title: str
    values: dict[str, float]
    """Values by arm; arms without one are left out."""
    bars: bool = True
    rate: bool = False

    def said(self, arm: str) -> str:
        if arm not in self.values:
            return "–"
        return show_rate(self.values[arm]) if self.rate else figure(self.values[arm])


def print_screen(data: StudyData, reserved: int = 0) -> None:
    """`reserved`: lines printed above and below it, such as the paths of notebook and report."""
    out = console()
    for line in screen(out, data, LINES - reserved):
        out.print(line, soft_wrap=True if isinstance(line, Text) else None)


def screen(out: Console, data: StudyData, room: int) -> list[RenderableType]:
    """The screen in at most `room` lines, if the names of arms are short."""
    head = [Text(wrong, style="bold red")] if (wrong := recovery.wrong_data(data)) else []
    if not data.measured:
        return [*head, Text("No trial was measured yet.")]
    summary = summarise(data)
    if disturbed := disturbed_trials(summary):
        head.append(Text(disturbed, style="bold yellow"))
    if data.simulated:
        head.append(Text(SIMULATED_BRIEF, style="yellow"))
    counts = ENCRYPTED_BRIEF if encrypted(summary) else ""
    said = (counts, processors.missing(summary), brief.validity(summary), brief.precise(summary))
    tail = [Text(line, style="dim") for line in said if line]
    if not data.runs:
        return [*head, Text("The study's rules exclude every run: see --long.", style="yellow"), *tail]
    later = recovery.compared(summary) if not disturbed else ""
    beside = (recovery.sentence(summary), later, brief.published(summary))
    tail = [*(Text(line) for line in beside if line), *tail]
    verdicts = _folded() if disturbed else _verdicts(summary)
    others = sum(height(out, each) for each in (*head, *verdicts, *tail))
    table: list[RenderableType] = []
    of = _table_of(out, summary)
    for rows in range(room, _ROWS_MIN - 1, -1):
        table = of(rows)
        if others + sum(height(out, each) for each in table) <= room:
            break
    return [*head, *table, *verdicts, *tail]


def height(out: Console, part: RenderableType) -> int:
    """Lines that the part takes on this console."""
    with out.capture() as captured:
        out.print(part, soft_wrap=True if isinstance(part, Text) else None)
    return captured.get().count("\n")


def _folded() -> list[RenderableType]:
    return [Text("Verdicts of disturbed trials are doubtful: see --long.")]


def _verdicts(summary: Summary) -> list[RenderableType]:
    """A table without a header, a line about what it leaves out, and the meaning of its mark."""
    shown, rest = brief.first(summary)
    if not shown:
        return [Text(rest)] if rest else []
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=False)
    for justify in ("right", "left", "left"):
        table.add_column(justify=justify, no_wrap=True)
    for line in shown:
        style = COLORS[Verdict(line.tone)] if line.tone in COLORS else ""
        mark = f" {_DOUBT}" if line.doubtful else ""
        table.add_row(
            escape(line.subject),
            escape(line.name),
            line.effect,
            escape(line.interval),
            Text(f"{line.word}{mark}", style=style),
        )
    base = title(summary.grid.baseline_arm)
    heading = f"Compared with {base} (95 % intervals, margin {summary.data.study.margin:g} %):"
    found: list[RenderableType] = [Text(heading, style="bold"), table]
    if rest:
        found.append(Text(rest))
    if any(line.doubtful for line in shown):
        found.append(Text(f"{_DOUBT} doubtful: most of the runs behind it are flagged, see --long.", style="yellow"))
    return found


def _table_of(out: Console, summary: Summary) -> Callable[[int], list[RenderableType]]:
    """A function that makes the table with at most so many rows: one for each arm, or for each result of a search."""
    if found := search.rows(summary.data.study, summary.data.attempts):
        return partial(_found, found)
    heading, columns = _added(summary) if summary.taxes else _absolute(summary)
    return partial(_arms, out, summary.grid, heading, columns)


def _arms(out: Console, grid: Grid, heading: str, columns: Sequence[_Column], rows_max: int) -> list[RenderableType]:
    arms = [arm for arm in grid.arms if any(arm in column.values for column in columns)]
    shown = _kept(arms, grid.baseline_arm, rows_max)
    widths = _BARS if len(shown) > 1 else _BARS[-1:]
    [table] = fitting(out, ([_rows(shown, columns, bars)] for bars in widths))
    return [Text(heading, style="bold"), table, *_more(len(arms) - len(shown))]


def _more(rows: int) -> list[RenderableType]:
    return [Text(f"{counted(rows, 'more row')}: see --long.")] if rows else []


def _kept(arms: Sequence[str], baseline: str, rows_max: int) -> list[str]:
    """All arms if they fit, else the first ones and the baseline."""
    first = [*arms[:rows_max]]
    return first if baseline in first or baseline not in arms else [*first[:-1], baseline]


def _rows(arms: Sequence[str], columns: Sequence[_Column], bars: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", min_width=_NAME_COLUMNS)
    for column in columns:
        barred = bars if column.bars and column.values else 0
        # The title stands above the figures, not above their bars; non-breaking spaces hold it there.
        beside = "\u00a0" * (barred + 1) if barred else ""
        name = "\n".join(f"{part}{beside}" for part in column.title.split("\n"))
        table.add_column(name, justify="right", no_wrap=True)
    for arm in arms:
        table.add_row(escape(title(arm)), *(_cell(column, arm, bars if column.bars else 0) for column in columns))
    return table


def _cell(column: _Column, arm: str, bars: int) -> str:
    said = column.said(arm)
    if not bars:
        return said
    most = max(column.values.values(), default=0.0)
    return f"{said} {_bar(column.values.get(arm, 0.0) / most if most > 0 else 0.0, bars)}"


def _bar(share: float, width: int) -> str:
    """A bar drawn in eighths of a column."""
    eighths = round(max(0.0, share) * width * 8)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[part] if part else "")).ljust(width)


def _added(summary: Summary) -> tuple[str, list[_Column]]:
    """What each arm adds to an I/O, compared with the same volume reached locally, under the lightest load."""
    first: dict[str, Tax] = {}
    for tax in summary.taxes:
        first.setdefault(tax.arm, tax)
    conditions = {tax.condition for tax in first.values()}
    where = f" {under(conditions.pop())}" if len(conditions) == 1 else ""
    parts = {
        "latency\nµs": {arm: tax.latency_us.value for arm, tax in first.items()},
        "initiator\nCPU µs": {arm: tax.initiator_us.value for arm, tax in first.items() if tax.initiator_us},
        "target\nCPU µs": {arm: tax.target_us.value for arm, tax in first.items() if tax.target_us},
    }
    split = parts["initiator\nCPU µs"] and parts["target\nCPU µs"]
    if not split:
        parts = {
            "latency\nµs": parts["latency\nµs"],
            "CPU\nµs": {arm: tax.cpu_us.value for arm, tax in first.items() if tax.cpu_us},
        }
    columns = [_Column(name, values) for name, values in parts.items() if values]
    rest = {arm: 100 - tax.throughput_percent.value for arm, tax in first.items() if tax.throughput_percent}
    if rest:
        columns.append(_Column("throughput\n% of local", rest, bars=False))
    return f"Added to each {summary.counts}, compared with local{where}".rstrip(), columns


def _absolute(summary: Summary) -> tuple[str, list[_Column]]:
    """Geometric means of each arm over the loads that all arms were measured under."""
    grid = summary.grid
    by_arm: dict[str, dict[str, dict[str, float]]] = {}
    for cell in summary.cells:
        by_arm.setdefault(cell.arm, {})[cell.condition] = {key: value.value for key, value in cell.values.items()}
    shared = [c for c in grid.conditions if all(c in conditions for conditions in by_arm.values())] or grid.conditions
    columns = []
    for name, key, rate in measured_columns(summary):
        values = {}
        for arm, conditions in by_arm.items():
            some = [conditions[c][key] for c in shared if key in conditions.get(c, {})]
            if some and all(value > 0 and math.isfinite(value) for value in some):
                values[arm] = geometric_mean(some)
        if values:
            columns.append(_Column(name, values, rate=rate))
    asked = summary.data.study.responses
    if "slow_ios" in asked:
        # A study of interruptions shows these in place of the CPU that it does not ask for.
        if not any(each.startswith("cpu") for each in asked):
            columns = [each for each in columns if not each.title.startswith("CPU")]
        columns += _slow(summary, shared)
    over = f", means over {len(shared)} loads" if len(shared) > 1 else f" {under(shared[0])}" if shared else ""
    return f"What each {summary.counts} costs{over}".rstrip(), columns


def _slow(summary: Summary, conditions: Sequence[str]) -> list[_Column]:
    """I/Os per run that took longer, by arm."""
    counts: dict[str, dict[str, list[float]]] = {over: {} for over in SLOW}
    for cell in summary.cells:
        found = interruptions(cell.runs).slow if cell.condition in conditions else {}
        for over, count in found.items():
            if count is not None:
                counts[over].setdefault(cell.arm, []).append(count)
    columns = [(over, {arm: fmean(some) for arm, some in of_arm.items()}) for over, of_arm in counts.items()]
    return [_Column(f"I/Os\n{over}", values, bars=False) for over, values in columns if values]


def _found(rows: Sequence[search.Row], rows_max: int) -> list[RenderableType]:
    """What a search found, one row for each condition."""
    shown = rows[:rows_max]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", min_width=_NAME_COLUMNS)
    for name in ("workers ×\noutstanding", "IOPS", "95 %\ninterval", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in shown:
        table.add_row(*(escape(part) for part in (row.condition, row.load, row.rate, row.interval, row.ratio)))
    heading = Text(f"Most IOPS with {rows[0].objective}", style="bold")
    return [heading, table, *_more(len(rows) - len(shown))]
