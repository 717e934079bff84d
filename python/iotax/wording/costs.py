"""What an I/O costs at held rates, in sentences, the baseline's own first; remarks on costs used for sizing."""

from collections.abc import Sequence

from iotax.analysis.capacity import STORAGE_US, slowdown
from iotax.analysis.cost import ServiceCost, Sizing
from iotax.analysis.estimate import Estimate
from iotax.analysis.responses import CPU
from iotax.analysis.summary import Summary
from iotax.analysis.validity import Doubt
from iotax.analysis.withheld import unlike_carriers
from iotax.records import Carrier
from iotax.wording.conditions import because
from iotax.wording.figures import Finding, figure, interval, listed, title
from iotax.wording.verdicts import caution


def priced(summary: Summary) -> list[tuple[Finding, Doubt]]:
    """Each arm's cost over all rates; the doubt about its runs is separate from the sentence. None without
    a CPU model."""
    if summary.costs is None:
        return []
    model, base = summary.costs.model, summary.grid.baseline_arm
    said = []
    for arm in sorted(model.arms, key=lambda arm: arm != base):
        text = f"{_us(model.cost_us(arm))} of CPU per I/O"
        if arm != base and base in model.arms:
            text += _against(summary, arm, base)
        said.append((Finding(title(arm), text, verb="costs"), summary.doubt(arm, CPU)))
    return said


def _against(summary: Summary, arm: str, base: str) -> str:
    """The cost as a multiple of the baseline's; for both bounds if the baseline has two. If an emulated carrier is part
    of it, the reason why it is not a verdict."""
    assert summary.costs is not None
    cpu, model = summary.models[CPU.key], summary.costs.model
    ends = cpu.brackets.arms(summary.grid, base)
    if arm in [each for _, each in ends]:
        return f"; {title(base)} and {title(arm)} are bounds; a real adapter lies between them"
    own = f"{title(base)}’s"
    ratios = [_times(model.ratio(arm, end), f"{own} over {carrier}") for carrier, end in ends]
    told = " and ".join(ratios or [_times(model.ratio(arm, base), own)])
    known = {summary.grid.arm(cell): carrier for cell, carrier in cpu.carriers.items()}
    carriers = dict.fromkeys((arm, base), Carrier()) | known
    answered = ends and not carriers[arm].emulated
    withheld = None if answered else unlike_carriers(carriers[arm], carriers[base])
    return f", {told}" + (f"; no verdict: {because(withheld, title(arm), title(base))}" if withheld else "")


def by_rate(summary: Summary) -> list[Finding]:
    """Says that the cost depends on the rate, if it does: then the slope is the cost of each further I/O."""
    if summary.costs is None or not summary.costs.model.bends:
        return []
    model = summary.costs.model
    assert model.linearity is not None
    costs = [
        f"{title(each.arm)} {figure(each.lightest_us)} µs at {each.lightest_iops:,.0f} IOPS and "
        f"{figure(each.heaviest_us)} µs at {each.heaviest_iops:,.0f}"
        for each in model.curvatures
    ]
    p = " (p < 0.001)" if model.linearity.p < 0.001 else f" (p = {model.linearity.p:.3f})"
    # If replicates differ only by random seed, the interval is not a probability.
    p = "" if summary.data.simulated and not summary.data.costs_drawn else p
    text = (
        f"The cost depends on the rate{p}, so these are the cost of each further I/O; over all I/Os {'; '.join(costs)}"
    )
    return [Finding("", text)]


def _times(ratio: Estimate, whose: str) -> str:
    return f"{figure(ratio.value)} times {whose} ({interval(ratio, 'no finite interval: Fieller’s is unbounded')})"


def _us(estimate: Estimate) -> str:
    return f"{figure(estimate.value)} µs ({interval(estimate, 'no interval: too few blocks')})"


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


def hidden(costs: Sequence[ServiceCost], cores: int) -> str:
    """How much the storage's own time reduces the difference of response times, without a full stop."""
    bare, *stored = (slowdown(costs, cores, 0.6, us) for us in STORAGE_US)
    rest = " and ".join(
        f"{each:.2f} behind {us:g} µs of storage" for each, us in zip(stored, STORAGE_US[1:], strict=True)
    )
    return (
        f"At 60 % busy the protocol with the most CPU per I/O responds in {bare:.2f} times the time of the one with "
        f"the least on the cores alone, in {rest}"
    )


def comparable(costs: Sequence[ServiceCost]) -> bool:
    """Whether the highest and lowest cost differ by more than their intervals, so that they can be contrasted."""
    known = [cost.cost_us for cost in costs if cost.cost_us.low is not None and cost.cost_us.high is not None]
    if len(known) < len(costs) or len(known) < 2:
        return False
    least, most = min(known, key=lambda each: each.value), max(known, key=lambda each: each.value)
    return (least.high or 0.0) < (most.low or 0.0)
