"""What an I/O costs at held rates, in sentences; the baseline's own first."""

from iotax.analysis.estimate import Estimate
from iotax.analysis.responses import CPU
from iotax.analysis.summary import Summary
from iotax.analysis.validity import Doubt
from iotax.wording.figures import figure
from iotax.wording.names import title
from iotax.wording.verdicts import Finding

DEPENDS_P = 0.05


def priced(summary: Summary) -> list[tuple[Finding, Doubt]]:
    """Each arm's cost over all rates, with the doubt about its runs, which the sentence does not say yet. None without
    a CPU model."""
    if summary.costs is None:
        return []
    model, base = summary.costs.model, summary.grid.baseline_arm
    said = []
    for arm in sorted(model.arms, key=lambda arm: arm != base):
        text = f"{_us(model.cost_us(arm))} of CPU per I/O"
        if arm != base and base in model.arms:
            ends = summary.models[CPU.key].brackets.arms(summary.grid, base)
            own = f"{title(base)}’s"
            if arm in [each for _, each in ends]:
                text += f"; {title(base)} and {title(arm)} are two ends, and a real adapter lies between"
            elif ends:
                ratios = [_times(model.ratio(arm, end), f"{own} over {carrier}") for carrier, end in ends]
                text += f", {' and '.join(ratios)}"
            else:
                text += f", {_times(model.ratio(arm, base), own)}"
        said.append((Finding(title(arm), text, verb="costs"), summary.doubt(arm, CPU)))
    return said


def by_rate(summary: Summary) -> list[Finding]:
    """That the cost depends on the rate, where it does: then a slope is the cost of each further I/O."""
    if summary.costs is None or summary.costs.model.linearity is None:
        return []
    model = summary.costs.model
    if model.linearity is None or model.linearity.p >= DEPENDS_P:
        return []
    costs = [
        f"{title(each.arm)} {figure(each.lightest_us)} µs at {each.lightest_iops:,.0f} IOPS and "
        f"{figure(each.heaviest_us)} µs at {each.heaviest_iops:,.0f}"
        for each in model.curvatures
    ]
    p = "p < 0.001" if model.linearity.p < 0.001 else f"p = {model.linearity.p:.3f}"
    text = f"It depends on the rate ({p}), so these are the cost of each further I/O; over all I/Os {'; '.join(costs)}"
    return [Finding("", text)]


def _times(ratio: Estimate, whose: str) -> str:
    reach = f"95 % CI {_ends(ratio)}" if ratio.low is not None else "no finite interval: Fieller’s is unbounded"
    return f"{figure(ratio.value)} times {whose} ({reach})"


def _us(estimate: Estimate) -> str:
    reach = "no interval: too few blocks" if estimate.low is None else f"95 % CI {_ends(estimate)}"
    return f"{figure(estimate.value)} µs ({reach})"


def _ends(estimate: Estimate) -> str:
    assert estimate.low is not None and estimate.high is not None
    return f"{figure(estimate.low)} to {figure(estimate.high)}"
