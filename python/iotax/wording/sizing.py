"""What a sizing must say of the costs that it takes."""

from collections.abc import Sequence

from iotax.analysis.cost import ServiceCost, Sizing
from iotax.wording.names import title
from iotax.wording.verdicts import caution


def not_sized(sizing: Sizing) -> list[str]:
    """Why nothing is sized, or not every treatment."""
    return [f"{title(each.arm)}: {each.why}" if each.arm else each.why for each in sizing.reasons]


def cost_cautions(costs: Sequence[ServiceCost]) -> list[str]:
    """A line for each cost that lacks an interval or rests on mostly doubtful runs."""
    lines = []
    for cost in costs:
        if cost.cost_us.low is None and cost.doubt is not None:
            lines.append(f"{title(cost.arm)}: its CPU per I/O has no interval: too few runs.")
        if cost.doubt is not None and (said := caution(cost.doubt)):
            lines.append(f"{title(cost.arm)}: {said}.")
    return lines


def comparable(costs: Sequence[ServiceCost]) -> bool:
    """Whether the greatest and the least cost differ by more than their intervals, so that one may be set against the
    other."""
    known = [cost.cost_us for cost in costs if cost.cost_us.low is not None and cost.cost_us.high is not None]
    if len(known) < len(costs) or len(known) < 2:
        return False
    least, most = min(known, key=lambda each: each.value), max(known, key=lambda each: each.value)
    return (least.high or 0.0) < (most.low or 0.0)
