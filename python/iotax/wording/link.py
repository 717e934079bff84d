"""Sentences about how links limited the comparison."""

from iotax.analysis.data import Grid, StudyData
from iotax.analysis.link import BOUND, ceiling_bytes_per_s, is_bound, per_share, shares
from iotax.units import show_share
from iotax.wording.names import title


def sentences(data: StudyData) -> list[str]:
    """Each link's capacity, and the treatments that it limits: raw figures first, then shares."""
    if not data.study.links:
        return []
    grid = Grid(data.study)
    known = shares(data, grid)
    named = ", ".join(
        f"{label} {link.label} {ceiling_bytes_per_s(link) / 1e6:,.0f} MB/s" for label, link in data.study.links.items()
    )
    lines = [f"Capacity of the links, one way: {named}."]
    for cell, share in known.items():
        base = grid.baseline_of(cell)
        if not is_bound(known, cell, base):
            continue
        raw = share / known[base] / per_share(data.study, grid, cell, base)
        lines.append(
            f"{title(' · '.join(cell))}: {100 * raw:.0f} of {title(' · '.join(base))} = 100 as measured; as shares of "
            f"their links {show_share(share)} and {show_share(known[base])}, {100 * share / known[base]:.0f}."
        )
    if len(lines) == 1:
        lines.append(
            f"No comparison was limited by its links: in none did both sides reach {show_share(BOUND, 0)} of that."
        )
    return lines
