"""What a link can carry, and throughput as a share of it: protocols over links of unequal rate are compared so.

Only where the link bounds a treatment, and only throughput: latency and CPU owe nothing to a link's rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from iotax.analysis.data import PROTOCOL, Cell, Grid, StudyData
from iotax.analysis.responses import Run
from iotax.study import Study
from iotax.study.model import Link

DATA_BITS_PER_S: Mapping[str, float] = {
    **{f"{gigabits}GbE": gigabits * 1e9 for gigabits in (1, 10, 25, 40, 50, 100, 200)},
    # Fibre Channel's lines carry less than their names: 8b/10b up to 8GFC, 64b/66b after (FC-PI).
    "4GFC": 4.25e9 * 8 / 10,
    "8GFC": 8.5e9 * 8 / 10,
    "16GFC": 14.025e9 * 64 / 66,
    "32GFC": 28.05e9 * 64 / 66,
}
"""Bits of data a second, after the line's own coding, by the names that a study may say."""

_ETHERNET_BYTES = 8 + 14 + 4 + 12
"""Preamble, header, check sequence and gap of each frame (IEEE 802.3)."""
_TCP_IP_BYTES = 20 + 20 + 12
"""IPv4, TCP and its timestamps, which Linux sends (RFC 7323)."""
_FC_PAYLOAD_BYTES = 2112
_FC_BYTES = 4 + 24 + 4 + 4 + 6 * 4
"""Start, header, check, end, and six words between frames (FC-FS)."""
BOUND = 0.9
"""A link that carries less than this share of its ceiling does not bound the treatment."""

_Shares: TypeAlias = dict[Cell, float]


def ceiling_bytes_per_s(link: Link) -> float:
    """Payload of TCP or of Fibre Channel frames that the link carries one way, headers of the storage protocol
    included."""
    bits_per_s = DATA_BITS_PER_S[link.rate]
    if link.rate.endswith("GFC"):
        return bits_per_s / 8 * _FC_PAYLOAD_BYTES / (_FC_PAYLOAD_BYTES + _FC_BYTES)
    return bits_per_s / 8 * (link.mtu - _TCP_IP_BYTES) / (link.mtu + _ETHERNET_BYTES)


def shares(data: StudyData, grid: Grid) -> _Shares:
    """Cell → geometric mean over its runs of what the busier direction carried, as a share of the link's ceiling."""
    found: dict[Cell, list[float]] = {}
    for run in data.runs:
        link = _link(data.study, run)
        if link is not None:
            found.setdefault(grid.cell(run.trial), []).append(_busier_bytes_per_s(run) / ceiling_bytes_per_s(link))
    return {cell: math.exp(sum(map(math.log, some)) / len(some)) for cell, some in found.items() if all(some)}


def sentences(data: StudyData) -> list[str]:
    """What each link can carry, and the treatments that it bounds: raw first, then as shares."""
    if not data.study.links:
        return []
    grid = Grid(data.study)
    known = shares(data, grid)
    named = ", ".join(
        f"{label} {link.rate} {ceiling_bytes_per_s(link) / 1e6:,.0f} MB/s" for label, link in data.study.links.items()
    )
    lines = [f"What the links can carry one way: {named}."]
    for cell, share in known.items():
        base = grid.baseline_of(cell)
        if base == cell or base not in known or min(share, known[base]) < BOUND:
            continue
        links = [_link_of(data.study, grid.level(each, PROTOCOL)) for each in (cell, base)]
        raw = share * ceiling_bytes_per_s(links[0]) / (known[base] * ceiling_bytes_per_s(links[1]))
        lines.append(
            f"{' · '.join(cell)}: {100 * raw:.0f} of {' · '.join(base)} = 100 as measured; as shares of their links "
            f"{share:.1%} and {known[base]:.1%}, {100 * share / known[base]:.0f}."
        )
    if len(lines) == 1:
        lines.append(f"No link carried {BOUND:.0%} of that on both sides of a comparison: nothing is owed to its rate.")
    return lines


def _busier_bytes_per_s(run: Run) -> float:
    """Links carry both directions at once."""
    return max(run.result.read.bytes, run.result.write.bytes) / run.duration_s


def _link(study: Study, run: Run) -> Link | None:
    return study.links.get(str(run.trial.treatment.get(PROTOCOL, "")))


def _link_of(study: Study, label: str) -> Link:
    return study.links[label]
