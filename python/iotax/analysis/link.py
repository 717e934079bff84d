"""A link's capacity, and throughput as a share of it, to compare protocols over links of different rates. Applies only
to treatments limited by their link, and only to throughput: latency and CPU do not depend on a link's rate in this way.
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

Shares: TypeAlias = Mapping[Cell, float]


def ceiling_bytes_per_s(link: Link) -> float:
    """Payload of TCP or of Fibre Channel frames that the link, or all of them, carry one way, headers of the storage
    protocol included."""
    bits_per_s = link.count * DATA_BITS_PER_S[link.rate]
    if link.rate.endswith("GFC"):
        return bits_per_s / 8 * _FC_PAYLOAD_BYTES / (_FC_PAYLOAD_BYTES + _FC_BYTES)
    return bits_per_s / 8 * (link.mtu - _TCP_IP_BYTES) / (link.mtu + _ETHERNET_BYTES)


def shares(data: StudyData, grid: Grid) -> Shares:
    """Cell → geometric mean over its runs of the load of the busier direction, as a share of the link's capacity."""
    found: dict[Cell, list[float]] = {}
    for run in data.runs:
        cell = grid.cell(run.trial)
        link = link_of(data.study, grid, cell)
        if link is not None:
            found.setdefault(cell, []).append(_busier_bytes_per_s(run) / ceiling_bytes_per_s(link))
    return {cell: math.exp(sum(map(math.log, some)) / len(some)) for cell, some in found.items() if all(some)}


def is_bound(known: Shares, cell: Cell, base: Cell) -> bool:
    """Whether the links explain the difference between two cells: both carry about their maximum."""
    return cell != base and cell in known and base in known and min(known[cell], known[base]) >= BOUND


def per_share(study: Study, grid: Grid, cell: Cell, base: Cell) -> float:
    """The factor that turns a ratio of throughputs into one of shares of links."""
    one, other = link_of(study, grid, cell), link_of(study, grid, base)
    assert one is not None and other is not None
    return ceiling_bytes_per_s(other) / ceiling_bytes_per_s(one)


def _busier_bytes_per_s(run: Run) -> float:
    """Links carry both directions at once."""
    return max(run.result.read.bytes, run.result.write.bytes) / run.duration_s


def link_of(study: Study, grid: Grid, cell: Cell) -> Link | None:
    return study.links.get(grid.level(cell, PROTOCOL)) if PROTOCOL in grid.factors else None
