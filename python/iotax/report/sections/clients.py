"""Several hosts, their total and each alone: a part of the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from iotax.analysis import CellSummary, Summary
from iotax.analysis.clients import Clients, clients_of
from iotax.report.section import Answers, Folded, Part, Source, Table, note
from iotax.report.tables import Column, Figure, Group, by_condition
from iotax.units import counted, show_rate
from iotax.wording import clients as wording
from iotax.wording import figure

ROWS_MAX = 12
"""Rows shown before the rest is folded."""


def parts(source: Source) -> list[Part]:
    """Empty if no trial had several hosts."""
    summary = source.summary
    lines = wording.took_part(summary)
    if not lines:
        return []
    first, rest = groups(summary)
    shown: list[Part] = [Table(columns(summary), first, "Clients, their totals and CPU by role")]
    if rest:
        others = Table(columns(summary), rest, "Clients of the other treatments")
        shown.append(Folded("The other treatments", [others]))
    return [Answers([("Clients", [*shown, *map(note, lines)])])]


def columns(summary: Summary) -> list[Column]:
    return [
        Column("Clients", "hosts"),
        Column("Total", summary.rate_unit),
        Column("Least", f"{summary.rate_unit} of a client"),
        Column("Most", f"{summary.rate_unit} of a client"),
        Column("Fairness", "Jain’s index"),
        *(Column(f"{role.capitalize()}s", f"µs CPU per {summary.counts}") for role in _roles(clients_of(summary))),
    ]


def groups(summary: Summary) -> tuple[list[Group], list[Group]]:
    """The rows shown at first, and the folded ones; both empty if no trial had several hosts."""
    found = clients_of(summary)
    conditions = list(dict.fromkeys(each.cell.condition for each in found))
    # Rows that are compared stay together, on either side of the fold.
    found.sort(key=lambda each: conditions.index(each.cell.condition))
    roles = _roles(found)
    return _groups(found[:ROWS_MAX], roles), _groups(found[ROWS_MAX:], roles)


def _groups(found: Sequence[Clients], roles: Sequence[str]) -> list[Group]:
    by_cell = {each.cell.cell: each for each in found}
    return by_condition([each.cell for each in found], lambda cell: _figures(by_cell[cell.cell], roles), _note)


def _figures(clients: Clients, roles: Sequence[str]) -> list[Figure]:
    rates, costs = clients.rates_iops, clients.cpu_per_io_ns
    least, most = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
    each = [Figure(show_rate(rates[host]), host) for host in (least, most)] if len(rates) > 1 else [Figure("–")] * 2
    return [
        Figure(str(len(rates))),
        Figure(show_rate(clients.total_iops)),
        *each,
        Figure(f"{clients.fairness:.2f}" if len(rates) > 1 else "–"),
        *(Figure(figure(costs[role] / 1e3) if role in costs else "–") for role in roles),
    ]


def _note(cell: CellSummary) -> str:
    return counted(len(cell.runs), "run") + (", doubtful" if cell.doubt.most else "")


def _roles(found: Sequence[Clients]) -> list[str]:
    """The roles of which anything was read, in the usual order."""
    return [role for role in ("initiator", "target", "hypervisor") if any(role in each.cpu_per_io_ns for each in found)]
