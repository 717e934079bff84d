"""Throughput as a share of what the links can carry."""

from __future__ import annotations

from iotax.analysis import CellSummary, Estimate, Summary
from iotax.analysis.data import PROTOCOL
from iotax.analysis.link import BOUND, ceiling_bytes_per_s, is_bound, link_of, per_share, shares
from iotax.analysis.responses import BANDWIDTH
from iotax.report.section import Section, Source, Table, Text
from iotax.report.section import note as remark
from iotax.report.tables import Column, Figure, Group, absolute, by_condition
from iotax.units import counted, show_share
from iotax.wording import figure, title

_ROUNDING = 0.02
"""Share that counts as at the limit."""
MEGABYTES = (1 << 20) / 1e6
"""Bandwidth is printed in MiB/s, links in powers of ten."""


def section(source: Source) -> Section | None:
    summary = source.summary
    shown = groups(summary)
    if not shown:
        return None
    lead = (
        "Protocols over links with different rates, raw and as shares of what their link can carry one way, after "
        f"framing and TCP/IP or Fibre Channel headers: {ceilings(summary)}."
    )
    table = Table(columns(summary), shown, "Throughput as a share of the links")
    return Section("links", "Links", [Text(lead), table, remark(note(summary))], "Links")


def ceilings(summary: Summary) -> str:
    """Each link by its name, with its capacity one way."""
    return ", ".join(
        f"{title(label)} {link.label}{_mtu(link.rate, link.mtu)} {figure(ceiling_bytes_per_s(link) / 1e6)} MB/s"
        for label, link in summary.data.study.links.items()
    )


def _mtu(rate: str, mtu: int) -> str:
    return f" with MTU\u00a0{mtu}" if rate.endswith("GbE") else ""


def columns(summary: Summary) -> list[Column]:
    base = f"{title(summary.grid.baseline_arm)} = 100"
    return [
        Column("Carried", "MB/s, both ways"),
        Column("relative", f"as measured, {base}"),
        Column("Busier way", "share of the link"),
        Column("relative", f"as shares of links, {base}"),
    ]


def groups(summary: Summary) -> list[Group]:
    """Empty if the study names no links. Two shares are compared only if links limited both."""
    study, grid = summary.data.study, summary.grid
    known = shares(summary.data, grid)

    def figures(cell: CellSummary) -> list[Figure]:
        base = grid.baseline_of(cell.cell)
        if BANDWIDTH.key not in cell.values:
            return [Figure("–")] * 4
        carried = _figure(cell.values[BANDWIDTH.key], MEGABYTES)
        share = Figure(f"{100 * known[cell.cell]:.1f} %") if cell.cell in known else Figure("–")
        if cell.cell == base:
            return [carried, Figure("100", tone="base"), share, Figure("100", tone="base")]
        comparison = cell.ratios.get(BANDWIDTH.key)
        if comparison is None:
            return [carried, Figure("–"), share, Figure("–")]
        raw = comparison.ratio
        if not is_bound(known, cell.cell, base):
            return [carried, _figure(raw, 100), share, Figure("–", "not bound by links")]
        return [carried, _figure(raw, 100), share, _figure(raw, 100 * per_share(study, grid, cell.cell, base))]

    cells = [cell for cell in summary.cells if link_of(study, grid, cell.cell) is not None]
    return by_condition(cells, figures)


def note(summary: Summary) -> str:
    """How many treatments links limited, and what follows from that."""
    known = shares(summary.data, summary.grid)
    bound = sum(is_bound(known, cell, summary.grid.baseline_of(cell)) for cell in known)
    if over := beyond(summary):
        are = "treatment" if over == 1 else "treatments"
        return f"{over} {are} carried more than their link can: check the link's rate, in the study and in the lab."
    floor = show_share(BOUND, 0)
    if not bound:
        return f"No link carried {floor} of that on both sides of a comparison: no difference here comes from its rate."
    return (
        f"In {counted(bound, 'comparison')} both links carried {floor} of that or more: there the raw difference "
        f"comes from the links, and the shares compare the protocols. Latency and CPU are not normalised and "
        "stay as measured."
    )


def beyond(summary: Summary) -> int:
    """Treatments that carried more than their link can, which is impossible."""
    return sum(share > 1 + _ROUNDING for share in shares(summary.data, summary.grid).values())


def is_known(summary: Summary) -> bool:
    """Whether the link's capacity is known for every compared protocol."""
    grid = summary.grid
    labels = {grid.level(cell.cell, PROTOCOL) for cell in summary.cells} if PROTOCOL in grid.factors else set()
    return bool(labels) and labels <= set(summary.data.study.links)


def _figure(estimate: Estimate, times: float) -> Figure:
    ends = (None if end is None else times * end for end in (estimate.low, estimate.high))
    return absolute(Estimate(times * estimate.value, *ends))
