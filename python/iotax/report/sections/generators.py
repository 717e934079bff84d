"""Generator against generator: the same load issued by two programs."""

from __future__ import annotations

from iotax.analysis import CellSummary, Estimate, Response, Summary
from iotax.analysis.data import Cell
from iotax.analysis.responses import CPU_INITIATOR, IOPS, LATENCY
from iotax.report.section import Section, Source, Table, Text
from iotax.report.tables import Column, Figure, Group, Row, absolute
from iotax.wording import title

GENERATOR = "generator"
_RESPONSES = (IOPS, LATENCY, CPU_INITIATOR)


def section(source: Source) -> Section | None:
    shown = groups(source.summary)
    if not shown:
        return None
    heading = "Generator against generator"
    lead = (
        "The same load on the same target, issued by two programs. Where they disagree beyond the interval, the "
        "measurement depends on the program."
    )
    return Section("generators", heading, [Text(lead), Table(columns(source.summary), shown, heading)], "Generators")


def columns(summary: Summary) -> list[Column]:
    first, second = _names(summary)
    return [Column(first, ""), Column(second, ""), Column("relative", f"{first} = 100")]


def groups(summary: Summary) -> list[Group]:
    """Empty if the study does not vary the generator, or compares generators anyway."""
    if GENERATOR not in summary.grid.others or len(summary.grid.factors[GENERATOR]) != 2:
        return []
    first, second = _names(summary)
    measured = {cell.cell for cell in summary.cells}
    pairs = [
        (cell, other)
        for cell in summary.cells
        if summary.grid.level(cell.cell, GENERATOR) == first
        and (other := summary.grid.with_levels(cell.cell, {GENERATOR: second})) in measured
    ]
    return [
        Group(f"{response.short} ({response.unit})", [_row(summary, response, *pair, first) for pair in pairs])
        for response in _RESPONSES
        if pairs and summary.models[response.key].observed
    ]


def _row(summary: Summary, response: Response, cell: CellSummary, other: Cell, first: str) -> Row:
    where = cell.condition.replace(f"generator {first}", "").strip(" ·")
    return Row(cell.arm, title(cell.arm), _both(summary, response, cell.cell, other), where)


def _both(summary: Summary, response: Response, cell: Cell, other: Cell) -> list[Figure]:
    model = summary.models[response.key]
    if cell not in model or other not in model:
        return [Figure("–"), Figure("–"), Figure("–")]
    ratio = Estimate.ratio(model.model.contrast({other: 1.0, cell: -1.0}))
    own = [absolute(model.absolute(each)) for each in (cell, other)]
    return [*own, absolute(ratio.percent)]


def _names(summary: Summary) -> list[str]:
    return [level.label for level in summary.grid.factors[GENERATOR]]
