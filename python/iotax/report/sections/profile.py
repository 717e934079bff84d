"""Where the instructions of an I/O go: parts of the section on CPU time."""

from __future__ import annotations

from collections import Counter

from iotax.analysis import Summary
from iotax.analysis.profile import CellProfile, cell_profiles
from iotax.report import charts
from iotax.report.section import Folded, Heading, Legend, Panels, Part, Source, Table, note
from iotax.report.tables import Column, Figure, Group, Row
from iotax.wording.profile import CALLS, MEMORY, MEMORY_COUNTS, STRINGS, LayerTable, layer_tables, most_memory

_FUNCTIONS_MAX = 30


def parts(source: Source) -> list[Part]:
    """Empty if no run has a profile."""
    summary = source.summary
    return [*_charts(source), *tables(summary)]


def _charts(source: Source) -> list[Part]:
    summary, parts = source.summary, []
    legend = Legend(charts.families_used(summary))
    if instructions := source.drawn(charts.instructions(summary)):
        caption = (
            f"Instructions that the guests’ processors executed for one {summary.counts}, by groups of layers; the "
            "tables below have each layer."
        )
        parts += [Heading("Where the instructions go"), Panels(instructions, caption, legend=legend)]
    if calls := source.drawn(charts.flame_graphs(summary)):
        caption = (
            "The width of a box shows the instructions of a function and all that it called. Its caller is the box "
            f"below. {CALLS}"
        )
        parts.append(Folded("Calls, as flame graphs", [Panels(calls, caption, 1, legend)]))
    return parts


def tables(summary: Summary) -> list[Part]:
    """Each side's layers, with a column for each arm, its largest functions and its memory."""
    shown: list[Part] = []
    for table in layer_tables(cell_profiles(summary.cells)):
        heading = f"Instructions by layer, {table.side}{f', {table.condition}' if table.condition else ''}"
        columns = [Column(arm, f"instructions per {summary.counts}") for arm in table.arms]
        functions = Table(columns, _functions(table), "Largest functions")
        shown += [
            Heading(heading),
            Table(columns, _layers(table), heading),
            Folded("Largest functions", [functions]),
        ]
        if memory := _memory(table):
            used = Table(columns, memory, f"Memory per {summary.counts}")
            shown.append(Folded("Memory", [used, note(MEMORY)]))
    return [*shown, note(STRINGS)] if shown else []


def _layers(table: LayerTable) -> list[Group]:
    rows = [
        Row("", layer, [_figure(count, each) for count, each in zip(table.figures(layer), table.profiles, strict=True)])
        for layer in table.layers
    ]
    rows.append(Row("", "all", [Figure(f"{each.instructions:,.0f}") for each in table.profiles]))
    return [Group("", rows)]


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
    """Bytes copied and cache lines fetched; empty if none were counted."""
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
