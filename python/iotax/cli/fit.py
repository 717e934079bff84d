"""Tables that fit their terminal: wider ones are broken or divided, and no figure is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_UNBOUND = 10_000


def fitting(console: Console, choices: Iterable[Sequence[Table]]) -> Sequence[Table]:
    """The first choice whose tables all fit the console, else the last."""
    tables: Sequence[Table] = ()
    for tables in choices:
        if all(_width(console, each) <= console.width for each in tables):
            break
    return tables


def _width(console: Console, table: Table) -> int:
    """Width of the table if nothing cuts it."""
    return Measurement.get(console, console.options.update(width=_UNBOUND), table).maximum
