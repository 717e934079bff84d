"""Where the instructions of an I/O go, as tables on a terminal and as a document."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from iotax.analysis import Summary
from iotax.analysis.profile import cell_profiles
from iotax.cli.fit import fitting
from iotax.wording import title
from iotax.wording.profile import STRINGS, LayerTable, largest, layer_tables


def print_profiles(out: Console, summary: Summary) -> None:
    """Nothing where no run has one."""
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
        out.print(STRINGS, style="dim", soft_wrap=True, highlight=False)


def _parts(table: LayerTable, columns: int) -> list[Table]:
    """The table in pieces of so many columns."""
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
    return found


def profile_documents(summary: Summary) -> list[dict[str, Any]]:
    """As `iotax show --json` gives them; docs/reference/json.md."""
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
        }
        for each in cell_profiles(summary.cells)
    ]
