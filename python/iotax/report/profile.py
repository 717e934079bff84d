"""Tables of the page: where the instructions of an I/O go."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from iotax.analysis import Summary
from iotax.analysis.profile import CellProfile, cell_profiles
from iotax.report.tables import Column, Figure, Group, Row
from iotax.wording.profile import (
    CALLS,
    MEMORY,
    MEMORY_COUNTS,
    STRINGS,
    LayerTable,
    layer_tables,
    most_memory,
)

_FUNCTIONS_MAX = 30


@dataclass(frozen=True)
class ProfileTable:
    """One side's layers, with a column for each arm, and its largest functions."""

    heading: str
    columns: list[Column]
    groups: list[Group]
    function_columns: list[Column]
    function_groups: list[Group]
    memory_groups: list[Group]
    """Bytes copied and cache lines fetched; empty if none were counted."""


def tables_of(summary: Summary) -> list[ProfileTable]:
    """None if no run has a profile."""
    return [_table(summary, each) for each in layer_tables(cell_profiles(summary.cells))]


def _table(summary: Summary, table: LayerTable) -> ProfileTable:
    condition = f", {table.condition}" if table.condition else ""
    columns = [Column(arm, f"instructions per {summary.counts}") for arm in table.arms]
    rows = [
        Row("", layer, [_figure(count, each) for count, each in zip(table.figures(layer), table.profiles, strict=True)])
        for layer in table.layers
    ]
    rows.append(Row("", "all", [Figure(f"{each.instructions:,.0f}") for each in table.profiles]))
    return ProfileTable(
        f"Instructions by layer, {table.side}{condition}",
        columns,
        [Group("", rows)],
        columns,
        _functions(table),
        _memory(table),
    )


def _functions(table: LayerTable) -> list[Group]:
    total: Counter[tuple[str, str]] = Counter()
    for each in table.profiles:
        total.update(each.functions)
    return [
        Group(
            "",
            [
                Row("", name, [_figure(each.functions.get((layer, name), 0.0), each) for each in table.profiles], layer)
                for (layer, name), _ in total.most_common(_FUNCTIONS_MAX)
            ],
        )
    ]


def _memory(table: LayerTable) -> list[Group]:
    return [
        Group(heading, [_counted("all", table, None, counts), *rows])
        for heading, counts in MEMORY_COUNTS.items()
        if (rows := [_counted(name, table, (layer, name), counts) for layer, name in most_memory(table, counts)])
    ]


def _counted(name: str, table: LayerTable, key: tuple[str, str] | None, counts: str) -> Row:
    """The count of one function, or of all if none is named."""
    found = [getattr(each, counts) for each in table.profiles]
    values = [sum(each.values()) if key is None else each.get(key, 0.0) for each in found]
    return Row("", name, [Figure(f"{value:,.0f}") for value in values], key[0] if key else "")


def _figure(instructions: float, of: CellProfile) -> Figure:
    share = f"{100 * instructions / of.instructions:.1f} %" if of.instructions else ""
    return Figure(f"{instructions:,.0f}", share if instructions else "")


__all__ = ["CALLS", "MEMORY", "STRINGS", "ProfileTable", "tables_of"]
