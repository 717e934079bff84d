"""Instructions per I/O by layer and function, as tables on a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from iotax.analysis import Summary
from iotax.analysis.profile import Difference, ProfileChange, cell_profiles
from iotax.cli.console import fitting
from iotax.units import counted
from iotax.wording import title
from iotax.wording.profile import (
    COPIES_WEIGH,
    MEMORY,
    MEMORY_COUNTS,
    STRINGS,
    LayerTable,
    change_lead,
    change_note,
    change_rows,
    difference_cells,
    largest,
    largest_changes,
    layer_tables,
    not_zero,
)

_FUNCTIONS_MAX = 15
"""Functions shown on a terminal; the JSON has all."""
_LEADS_MAX = 3


def print_profiles(out: Console, summary: Summary) -> None:
    """Prints nothing if no run has a profile."""
    profiles = cell_profiles(summary.cells)
    for table in layer_tables(profiles):
        heading = f"Instructions per {summary.counts} by layer, {table.side}"
        out.print(Text(f"{heading}, {table.condition}:" if table.condition else f"{heading}:", style="bold"))
        columns = range(len(table.profiles), 0, -1)
        for part in fitting(out, (_parts(table, width) for width in columns)):
            out.print(part)
        out.print(Text("Largest functions:"))
        for each in table.profiles:
            out.print(Text(f"{title(each.arm)}: {largest(each)}"), soft_wrap=True)
    if profiles:
        memory = [MEMORY] if any(each.copied_bytes or each.cache_lines for each in profiles) else []
        out.print(" ".join([STRINGS, *memory]), style="dim", soft_wrap=True, highlight=False)


def _parts(table: LayerTable, columns: int) -> list[Table]:
    """The table in pieces of at most this many columns."""
    return [_table(table, range(at, min(at + columns, len(table.arms)))) for at in range(0, len(table.arms), columns)]


def _table(table: LayerTable, columns: range) -> Table:
    found = Table(box=None, pad_edge=False, header_style="bold")
    found.add_column("")
    for at in columns:
        found.add_column(escape(table.arms[at]), justify="right", no_wrap=True)
    for layer in table.layers:
        figures = table.figures(layer)
        found.add_row(escape(layer), *(f"{figures[at]:,.0f}" for at in columns))
    found.add_row("all", *(f"{table.profiles[at].instructions:,.0f}" for at in columns), style="bold")
    for heading, counts in MEMORY_COUNTS.items():
        counted = [sum(getattr(table.profiles[at], counts).values()) for at in columns]
        if any(counted):
            found.add_row(heading.lower(), *(f"{count:,.0f}" for count in counted))
    return found


def print_leads(out: Console, changes: Sequence[ProfileChange]) -> None:
    """Two lines for each treatment and machine."""
    for each in changes[:_LEADS_MAX]:
        out.print(Text(change_lead(each)), soft_wrap=True)
        out.print(Text(f"  most in {largest_changes(each)}"), soft_wrap=True)
    if len(changes) > _LEADS_MAX:
        out.print(Text(f"{counted(len(changes) - _LEADS_MAX, 'more profile')}: see --long."))
    if changes:
        out.print(Text(COPIES_WEIGH, style="dim"), soft_wrap=True)


def print_changes(out: Console, changes: Sequence[ProfileChange]) -> None:
    """Layers, then the functions that differ most."""
    for each in changes:
        out.print(Text(change_lead(each), style="bold"), soft_wrap=True)
        out.print(_change_table("layer", change_rows(each)))
        out.print(_change_table("function", _functions(each)))
    if changes:
        out.print(Text(change_note(changes), style="dim"), soft_wrap=True)


def _functions(change: ProfileChange) -> list[tuple[str, ...]]:
    return [(each.function, *difference_cells(each)) for each in filter(not_zero, change.functions[:_FUNCTIONS_MAX])]


def _change_table(name: str, rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(name)
    for column in ("before", "after", "difference"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def change_documents(changes: Sequence[ProfileChange]) -> list[dict[str, Any]]:
    """The part of `iotax compare --json` about profiles; docs/reference/json.md."""
    return [
        {
            "treatment": each.treatment,
            "host": each.host,
            "role": each.role,
            "before": each.total.before,
            "after": each.total.after,
            "difference": each.total.more,
            "low": each.total.low,
            "high": each.total.high,
            "layers": [_difference(one) for one in each.layers],
            "functions": [_difference(one) for one in each.functions],
            "memory": {counts: _interval(one) for counts, one in each.memory.items()},
        }
        for each in changes
    ]


def _difference(each: Difference) -> dict[str, Any]:
    return {"layer": each.layer, "function": each.function or None, **_interval(each)}


def _interval(each: Difference) -> dict[str, Any]:
    return {
        "before": each.before, "after": each.after, "difference": each.more, "low": each.low, "high": each.high,
    }  # fmt: skip


def profile_documents(summary: Summary) -> list[dict[str, Any]]:
    """The part of `iotax show --json` about profiles; docs/reference/json.md."""
    return [
        {
            "arm": each.arm,
            "condition": each.condition,
            "host": each.host,
            "role": each.role,
            "runs": each.runs,
            "instructions_per_io": each.instructions,
            "layers": each.layers,
            "functions": [
                {"layer": layer, "function": name, "instructions_per_io": instructions}
                for (layer, name), instructions in each.functions.items()
            ],
            "calls": [
                {
                    "caller": frame.caller if frame.caller >= 0 else None,
                    "layer": frame.layer,
                    "function": frame.function,
                    "instructions_per_io": frame.instructions,
                }
                for frame in each.calls
            ],
            **{
                counts: [
                    {"layer": layer, "function": name, f"{counts}_per_io": count}
                    for (layer, name), count in getattr(each, counts).items()
                ]
                for counts in MEMORY_COUNTS.values()
            },
        }
        for each in cell_profiles(summary.cells)
    ]
