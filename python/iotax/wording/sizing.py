"""Remarks on the costs used for sizing."""

from collections.abc import Sequence

from iotax.analysis.cost import ServiceCost, Sizing
from iotax.wording.figures import listed
from iotax.wording.names import title
from iotax.wording.verdicts import caution


def not_sized(sizing: Sizing) -> list[str]:
    """Why nothing is sized, or not every treatment; one line for all arms with the same reason."""
    lines = []
    for why in dict.fromkeys(each.why for each in sizing.reasons):
        arms = [f"{title(each.arm)} {each.nearest}" for each in sizing.reasons if each.why == why and each.arm]
        lines.append(f"{why}; nearest: {', '.join(arms)}" if arms else why)
    return lines


def cost_cautions(costs: Sequence[ServiceCost]) -> list[str]:
    """Costs without an interval or from mostly doubtful runs; one line for all arms with the same caution."""
    arms: dict[str, list[str]] = {}
    for cost in costs:
        if cost.cost_us.low is None and cost.doubt is not None:
            arms.setdefault("CPU per I/O has no interval: too few runs", []).append(title(cost.arm))
        if cost.doubt is not None and (said := caution(cost.doubt)):
            arms.setdefault(said, []).append(title(cost.arm))
    return [f"{listed(names)}: {said}." for said, names in arms.items()]


def comparable(costs: Sequence[ServiceCost]) -> bool:
    """Whether the highest and lowest cost differ by more than their intervals, so that they can be contrasted."""
    known = [cost.cost_us for cost in costs if cost.cost_us.low is not None and cost.cost_us.high is not None]
    if len(known) < len(costs) or len(known) < 2:
        return False
    least, most = min(known, key=lambda each: each.value), max(known, key=lambda each: each.value)
    return (least.high or 0.0) < (most.low or 0.0)
