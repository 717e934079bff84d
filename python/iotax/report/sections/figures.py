"""Absolute and relative figures."""

from __future__ import annotations

from iotax.analysis import CellSummary, Response, Summary
from iotax.analysis.responses import BANDWIDTH, DISK_IOPS, LATENCY, P50, P95, P99, P999
from iotax.report.section import Folded, Section, Source, Table, note
from iotax.report.tables import Column, Figure, Group, absolute, both, by_condition
from iotax.wording import figure, title


def section(source: Source) -> Section:
    summary, base = source.summary, source.base
    first = "I/O on the volume" if summary.database else "Bandwidth"
    detail = Table(detail_columns(summary), detail_groups(summary), f"{first} and tail latency")
    parts = [
        Table(main_columns(summary), main_groups(summary), "Absolute and relative figures"),
        note(
            "Geometric means over runs; below each its 95 % interval. A relative figure is 100 × the ratio to "
            f"{base} in the same blocks, so it does not include drift between blocks; an absolute interval does."
        ),
        Folded(f"{first}, median and tail latency", [detail]),
    ]
    return Section("figures", "Figures", parts, "Figures")


def main_columns(summary: Summary) -> list[Column]:
    base = title(summary.grid.baseline_arm)
    columns = []
    for response in _main_responses(summary):
        columns += [Column(response.short, response.unit), Column("relative", f"{base} = 100")]
    return columns


def main_groups(summary: Summary) -> list[Group]:
    """Absolute and relative figures, condition by condition."""
    responses = _main_responses(summary)
    return by_condition(summary.cells, lambda cell: [f for r in responses for f in both(summary, cell, r)])


def _main_responses(summary: Summary) -> list[Response]:
    return [*summary.responses, *([P99] if LATENCY in summary.responses else [])]


def _detail(summary: Summary) -> tuple[Response, ...]:
    return (DISK_IOPS, P50, P95, P99, P999) if summary.database else (BANDWIDTH, P50, P99, P999)


def detail_columns(summary: Summary) -> list[Column]:
    return [
        *(Column(r.title, r.unit) for r in _detail(summary)),
        Column("Maximum latency", "µs"),
        Column("Transactions" if summary.database else "I/Os", "counted"),
    ]


def detail_groups(summary: Summary) -> list[Group]:
    """Bandwidth and percentiles: geometric means over the runs; the maximum is that of all runs."""

    def figures(cell: CellSummary) -> list[Figure]:
        own = [absolute(cell.values.get(r.key)) for r in _detail(summary)]
        return [*own, Figure(_slowest(cell)), Figure(f"{sum(run.result.ios for run in cell.runs):,}")]

    return by_condition(summary.cells, figures)


def _slowest(cell: CellSummary) -> str:
    """In µs, over all runs."""
    known = [run.result.latency_max_ns for run in cell.runs]
    return "–" if None in known else figure(max(each or 0 for each in known) / 1e3)
