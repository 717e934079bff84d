"""Instructions per I/O: one stacked bar for each arm, by families of layers."""

from __future__ import annotations

from iotax.analysis import Summary
from iotax.analysis.profile import cell_profiles
from iotax.report.charts.base import Drawing, arm_titles, file_name
from iotax.report.charts.cpu import stacked
from iotax.wording import figure
from iotax.wording.profile import FAMILIES, LayerTable, families, layer_tables

_COLOURS = (
    "part-rest", "part-disk", "part-initiator", "part-target",
    "part-copies", "part-memory", "part-hypervisor", "part-background",
)  # fmt: skip
FAMILY_COLOURS = tuple(zip(FAMILIES, _COLOURS, strict=True))


def instructions(summary: Summary) -> list[Drawing]:
    """One chart for each side and condition, all on one scale; none if no run has a profile."""
    profiles = cell_profiles(summary.cells)
    most = max((each.instructions for each in profiles), default=0.0)
    return [_drawing(summary, each, most) for each in layer_tables(profiles)]


def families_used(summary: Summary) -> list[tuple[str, str]]:
    """Families that some bar has, with their colours."""
    used = {family for profile in cell_profiles(summary.cells) for family in families(profile)}
    return [(family, colour) for family, colour in FAMILY_COLOURS if family in used]


def _drawing(summary: Summary, table: LayerTable, most: float) -> Drawing:
    names = arm_titles(summary)
    split = {each.arm: families(each) for each in table.profiles}
    heading = table.side[:1].upper() + table.side[1:] + (f", {table.condition}" if table.condition else "")
    said = "; ".join(
        f"{names[arm]}: " + ", ".join(f"{family} {figure(count)}" for family, count in parts.items())
        for arm, parts in split.items()
    )
    return Drawing(
        file_name("instructions", table.side, table.condition),
        heading,
        f"Instructions per {summary.counts} by layer. {said}.",
        lambda width: stacked(summary, split, FAMILY_COLOURS, width, heading, unit="instructions", most=most),
    )
