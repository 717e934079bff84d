"""Each treatment, absolute and relative to the baseline, as tables that fit their terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from iotax.analysis import CellSummary, Response, Summary, Verdict
from iotax.analysis.interruptions import interruptions
from iotax.analysis.responses import CPU_MACHINE, DISK_IOPS, IOPS, LONGEST_GAP, ROLE_OF, SLOW, UTILISATION
from iotax.cli.console import fitting
from iotax.units import show_rate
from iotax.wording import figure, indexed, indexed_ends, recovery, verdict_word

COLORS = {Verdict.BETTER: "green", Verdict.WORSE: "red", Verdict.EQUIVALENT: "cyan", Verdict.INCONCLUSIVE: "dim"}
_NAME_COLUMNS = 12
"""Columns kept for a treatment's name, however narrow the terminal."""
_CPU_PARTS = ("initiator", "target", "hypervisor")


@dataclass(frozen=True)
class _Column:
    title: str
    cell: Callable[[CellSummary], RenderableType]
    numeric: bool = True


def tables(console: Console, summary: Summary, primary: Response) -> Sequence[Table]:
    """One table if it fits; else separate tables for absolute and relative figures; else all factors in one column as
    well."""
    absolute, relative = _absolute(summary), _relative(summary, primary)
    runs = _Column("runs", lambda cell: str(len(cell.runs)))
    factors = [
        _Column(name.replace("_", " "), lambda cell, at=at: escape(cell.cell[at]), numeric=False)
        for at, name in enumerate(summary.grid.factors)
    ]
    treatment = [_Column("treatment", lambda cell: escape(" · ".join(cell.cell)), numeric=False)]
    together, apart = [[*absolute, *relative, runs]], [[*absolute, runs], relative]
    choices = ((factors, together), (factors, apart), (treatment, apart))
    return fitting(console, ([_table(summary, [*named, *part]) for part in parts] for named, parts in choices))


def _table(summary: Summary, columns: Sequence[_Column]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        # Breaks the treatment's name to make a table fit, never a figure.
        justify = "right" if column.numeric else "left"
        table.add_column(
            column.title, justify=justify, no_wrap=number > 0, min_width=_NAME_COLUMNS if not number else 0
        )
    for cell in summary.cells:
        table.add_row(*(column.cell(cell) for column in columns))
    return table


def _absolute(summary: Summary) -> list[_Column]:
    rate, keys = _columns(summary)
    return [
        _Column(rate.unit.replace("/", "\n/"), lambda cell: _rate(cell, rate.key)),
        *(_Column(title, lambda cell, key=key: _us(cell, key)) for title, key in keys.items()),
        *(_slow(over) for over in SLOW if "slow_ios" in summary.data.study.responses),
        *([_RECOVERY] if "recovery_time" in summary.data.study.responses else []),
    ]


_RECOVERY = _Column("recovery\ns", lambda cell: recovery.median(interruptions(cell.runs).recovery))


def _slow(over: str) -> _Column:
    """I/Os per run that took longer."""

    def cell(cell: CellSummary) -> str:
        count = interruptions(cell.runs).slow[over]
        return "–" if count is None else figure(count)

    return _Column(f"I/Os\n{over}", cell)


def measured_columns(summary: Summary) -> list[tuple[str, str, bool]]:
    """Title, response and whether it is a rate, for each column of absolute figures."""
    rate, keys = _columns(summary)
    return [
        (rate.unit.replace("/", "\n/"), rate.key, True),
        *((title, key, False) for title, key in keys.items() if not key.endswith("p95")),
    ]


def _columns(summary: Summary) -> tuple[Response, dict[str, str]]:
    """The rate, and title → response of the other columns."""
    cpu, each = ("cpu_transaction", "µs/trans.") if summary.database else ("cpu", "µs/IO")
    rate = summary.counted(IOPS)
    parts = [part for part in _CPU_PARTS if any(f"{cpu}_{part}" in cell.values for cell in summary.cells)]
    # If one machine is initiator and target at once, only their total CPU time is known.
    together = any(cpu in cell.values and f"{cpu}_initiator" not in cell.values for cell in summary.cells)
    keys = _latencies(summary)
    keys |= {f"CPU {each}\ntogether": cpu} if together else {}
    keys |= {f"CPU {each}\n{part}": f"{cpu}_{part}" for part in parts}
    keys |= {"disk\nIOPS": DISK_IOPS.key} if summary.database else {}
    asked = {each.key for each in summary.responses} - {*keys.values()}
    keys |= {f"CPU {each}\nmachine": CPU_MACHINE.key} if CPU_MACHINE.key in asked else {}
    keys |= {f"CPU %\n{ROLE_OF[each.key]}": each.key for each in UTILISATION if each.key in asked}
    keys |= {"gap\nms": LONGEST_GAP.key} if LONGEST_GAP.key in asked else {}
    return rate, keys


def _latencies(summary: Summary) -> dict[str, str]:
    """Title → response. Flushes come first, since a load that flushes is about them. Reads and writes are separate if
    nothing is known of both together, as in another program's mix."""
    known = {key for cell in summary.cells for key in cell.values}
    keys = {f"sync {name}\nµs": f"latency_sync_{name}" for name in ("p50", "p99") if f"latency_sync_{name}" in known}
    lacking = [cell for cell in summary.cells if not {"latency_p50", "latency_p99"} & cell.values.keys()]
    apart = {
        f"{side} {name}\nµs": key
        for side in ("read", "write")
        for name in ("p50", "p99")
        if any((key := f"latency_{side}_{name}") in cell.values for cell in lacking)
    }
    if not apart or len(lacking) < len(summary.cells):
        middle = {"p95\nµs": "latency_p95"} if summary.database else {}
        keys |= {"p50\nµs": "latency_p50"} | middle | {"p99\nµs": "latency_p99"}
    return keys | apart


def _relative(summary: Summary, primary: Response) -> list[_Column]:
    return [
        _Column("relative", lambda cell: _ratio(cell, primary, summary.grid.baseline_arm)),
        _Column("verdict", lambda cell: _verdict(summary, cell, primary), numeric=False),
    ]


def _rate(cell: CellSummary, key: str) -> str:
    return show_rate(cell.values[key].value) if key in cell.values else "–"


def _us(cell: CellSummary, key: str) -> str:
    if key not in cell.values:
        return "–"
    value = cell.values[key].value
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _ratio(cell: CellSummary, primary: Response, baseline: str) -> str:
    if cell.arm == baseline:
        return "100"
    if primary.key not in cell.ratios:
        return "–"
    ratio = cell.ratios[primary.key].ratio
    if ratio.low is None or ratio.high is None:
        return "–"
    if ratio.alike:
        return indexed(ratio.value)
    return f"{indexed(ratio.value)} \\[{', '.join(indexed_ends(ratio))}]"


def _verdict(summary: Summary, cell: CellSummary, primary: Response) -> Text:
    verdict = cell.ratios[primary.key].verdict if primary.key in cell.ratios else None
    if verdict is None:
        return Text("")
    word = verdict_word(primary, verdict)
    return Text(f"{word}, doubtful" if summary.doubt_of([cell], primary).most else word, style=COLORS[verdict])
