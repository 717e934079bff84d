"""The table that `iotax aa` prints: how many replicates it takes to detect a difference of a given size."""

from __future__ import annotations

from rich.table import Table

DIFFERENCES_PERCENT = (1.0, 2.0, 5.0, 10.0, 20.0)
REPLICATES_MAX = 10_000


def noise_table(*more: str) -> Table:
    """One row for each response: its noise floor, `more`, and the replicates needed by size of difference."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("response")
    for name in ("noise floor", *more):
        table.add_column(name, justify="right", no_wrap=True)
    for percent in DIFFERENCES_PERCENT:
        table.add_column(f"{percent:g} %", justify="right")
    return table


def needed_columns(cv: float) -> list[str]:
    return [_needed(cv, percent) for percent in DIFFERENCES_PERCENT]


def _needed(cv: float, percent: float) -> str:
    from iotax.design.power import replicates_to_detect

    try:
        count = replicates_to_detect(cv, 1 + percent / 100)
    except ValueError:
        return f"> {REPLICATES_MAX:,}"
    return f"{count:,}" if count <= REPLICATES_MAX else f"> {REPLICATES_MAX:,}"
