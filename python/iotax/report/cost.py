"""The CPU model and the sizing as rows of text."""

from dataclasses import dataclass, replace

from iotax.analysis import Estimate, Summary
from iotax.analysis.capacity import (
    REPORT_CORES,
    REPORT_RATE_IOPS,
    STORAGE_US,
    UTILISATIONS,
    Demand,
    capacity,
    per_core_iops,
    rate_at,
    response_us,
    slowdown,
)
from iotax.analysis.cost import PARTS, CpuCosts
from iotax.analysis.cpu_model import CpuModel
from iotax.analysis.regression import FTest
from iotax.analysis.responses import CPU
from iotax.design.power import BLOCKS_ENOUGH, block_reach
from iotax.queueing import MMc, SizingTarget, size
from iotax.report.tables import Column, Figure, Group, Row
from iotax.units import counted
from iotax.wording import comparable, figure, title
from iotax.wording.costs import by_rate, priced
from iotax.wording.figures import ALIKE
from iotax.wording.verdicts import cautioned

TARGETS = (
    ("≤ 80 % busy", SizingTarget(0.8)),
    ("response ≤ 1.25 × service", SizingTarget(1.0, response_max_ratio=1.25)),
    ("response ≤ 1.1 × service", SizingTarget(1.0, response_max_ratio=1.1)),
)


_NOTHING = 1e-6
"""Share of a cost: a smaller term is a rounding error."""


@dataclass(frozen=True)
class Fact:
    name: str
    text: str


def cost_lead(summary: Summary) -> list[str]:
    """The answer in sentences, one for each protocol; the baseline first. None without a CPU model."""
    said = [cautioned(*each) for each in priced(summary)] + by_rate(summary)
    return [finding.sentence for finding in said]


def cost_columns(costs: CpuCosts, base: str) -> list[Column]:
    columns = [Column(_part(costs, key), "µs per I/O") for key in _keys(costs)]
    columns.insert(1, Column("relative", f"{title(base)} = 1"))
    if costs.model.curvatures:
        columns += [Column("At the lightest rate", "µs per I/O"), Column("At the heaviest rate", "µs per I/O")]
    return columns


def cost_groups(costs: CpuCosts, base: str) -> list[Group]:
    rows = []
    curved = {each.arm: each for each in costs.model.curvatures}
    for arm in costs.model.arms:
        figures = []
        for key in _keys(costs):
            model = costs.models[key]
            figures.append(_estimate(model.cost_us(arm)) if arm in model.arms else Figure("–"))
        if base not in costs.model.arms:
            relative = Figure("–")
        elif arm == base:
            relative = Figure("1", tone="base")
        else:
            ratio = costs.model.ratio(arm, base)
            relative = Figure(figure(ratio.value), _span(ratio) if ratio.low is not None else "unbounded")
        figures.insert(1, relative)
        if arm in curved:
            figures += [Figure(figure(curved[arm].lightest_us)), Figure(figure(curved[arm].heaviest_us))]
        runs = sum(load.arm == arm for load in costs.model.loads)
        rows.append(Row(arm, title(arm), figures, counted(runs, "run")))
    return [Group("", rows)]


def cost_facts(costs: CpuCosts) -> list[Fact]:
    """The model's facts that a critical reader asks for."""
    model = costs.model
    idle = "runs without load" if costs.idle_runs else "measurements before each block"
    background = f"{_cores(model.background_cores)}; "
    if not model.idle:
        background += "nothing was measured without load, so it comes only from the fitted line; "
    else:
        background += f"fitted as a treatment with {model.idle} {idle}, which gave {model.idle_cores:.4f}; "
    p = model.background_p
    if p is not None:
        background += f"{'' if p < 0.05 else 'not '}significantly different from zero (p {_p(p)}); "
    background += "the model keeps it anyway"
    facts = [Fact("Blocks", _blocks(model)), Fact("Background", background)]
    facts += [Fact(f"Equation, {title(arm)}", _equation(model, arm)) for arm in model.arms]
    facts.append(Fact("Linear in IOPS", _linear(costs)))
    if model.lack_of_fit is not None:
        missed = model.lack_of_fit.p < 0.05
        text = (
            "a separate cost for each treatment and rate explains more than the model"
            if missed
            else "no sign of a missing term"
        )
        facts.append(Fact("Lack of fit", f"{text} ({_test(model.lack_of_fit)})"))
    for (one, other), test in model.interactions.items():
        name = f"{_name(one)} × {_name(other)}"
        facts.append(Fact(name, f"{'matters' if test.p < 0.05 else 'no sign that it matters'} ({_test(test)})"))
    facts.append(
        Fact(
            "Scatter",
            f"standard deviation of runs about the model {100 * model.residual_share:.1f} %; prediction error of each "
            "run "
            f"from all others {100 * model.prediction_share:.1f} % (PRESS); {model.fitted.residual_df} degrees of "
            "freedom",
        )
    )
    return facts


def equation_note(costs: CpuCosts) -> str:
    """How to read its terms."""
    several = any(len(levels) > 2 for levels in costs.model.factors.values())
    other = "its factor’s last, and 0 at others" if several else "the other"
    return f"In equations [factor level] is +1 at the level named and −1 at {other}."


def size_columns() -> list[Column]:
    named = [Column(name, "cores") for name, _ in TARGETS]
    return [Column("CPU", "µs per I/O"), Column("Per core", "IOPS"), *named]


def size_groups(summary: Summary) -> list[Group]:
    rows = []
    for cost in summary.report_sizing.costs:
        figures = [_estimate(cost.cost_us), Figure(figure(per_core_iops(cost)))]
        for _, target in TARGETS:
            found = capacity(cost, Demand(REPORT_RATE_IOPS, target))
            if found.size is None:
                figures.append(Figure("–", found.reason))
                continue
            text = f"{100 * found.size.queue.utilisation:.0f} % busy, {figure(found.size.response_s * 1e6)} µs"
            ends = "" if found.cores == str(found.size.servers) else found.cores.partition(" ")[2].strip("()")
            figures.append(Figure(str(found.size.servers), f"{ends}; {text}" if ends else text))
        rows.append(Row(cost.arm, title(cost.arm), figures))
    return [Group(f"{REPORT_RATE_IOPS:,} IOPS", rows)]


@dataclass(frozen=True)
class Sized:
    """How a source computed its sizing."""

    source: str
    columns: list[Column]
    groups: list[Group]
    note: str


def sized_by_sources(summary: Summary) -> list[Sized]:
    """For each source that gives cores for a rate: how busy they would be at its own costs, how long an I/O would wait,
    and how many cores a limit of 80 % takes."""
    name, target = TARGETS[0]
    found = []
    for source in summary.data.study.published:
        rows, busiest = [], []
        for each in source.figures:
            if each.cores is None or each.absolute is None or source.rate_iops is None:
                continue
            us = sum(each.absolute) / 2
            load = source.rate_iops * us * 1e-6
            enough = size(source.rate_iops, us * 1e-6, target)
            theirs = Figure("no bound", "more than they can do")
            if load < each.cores:
                response = MMc(source.rate_iops, us * 1e-6, each.cores).response_s * 1e6
                theirs = Figure(figure(response), f"{response / us:.1f} times the service")
                busiest.append(load / each.cores)
            figures = [Figure(figure(us)), Figure(str(each.cores)), Figure(f"{100 * load / each.cores:.0f} %"), theirs]
            figures.append(Figure(str(enough.servers), f"{figure(enough.response_s * 1e6)} µs"))
            label = title(" · ".join(str(level) for level in each.of.values()))
            rows.append(Row("", label, figures, f"published as {each.called}" if each.called else ""))
        if not rows:
            continue
        columns = [
            Column("Published cost", "µs per I/O"),
            Column("Published cores", f"{source.rate_iops:,} IOPS"),
            Column("Busy", "of these"),
            Column("Mean response", "µs on them, M/M/c"),
            Column(name, "cores, and mean response"),
        ]
        note = "The source divides the rate by what one core can do, which keeps its cores almost fully busy."
        if busiest:
            more = figure(100 * (1 / max(busiest) - 1))
            note += (
                f" Do not size so: at {more} % more load, or where an I/O costs as much more, the queue grows without "
                "bound; and on the way there an I/O waits longer than it is served."
            )
        found.append(Sized(source.source, columns, [Group("", rows)], note))
    return found


def response_columns() -> list[Column]:
    return [Column(f"{100 * u:.0f} % busy", "µs") for u in UTILISATIONS]


def response_groups(summary: Summary) -> list[Group]:
    groups = []
    for storage_us in STORAGE_US:
        rows = []
        for cost in summary.report_sizing.costs:
            us = cost.cost_us.value
            figures = []
            for busy in UTILISATIONS:
                rate = f"{figure(rate_at(us, REPORT_CORES, busy))} IOPS" if busy and not storage_us else ""
                figures.append(Figure(figure(response_us(us, REPORT_CORES, busy, storage_us)), rate))
            rows.append(Row(cost.arm, title(cost.arm), figures))
        groups.append(Group(f"With {storage_us:g} µs in the storage" if storage_us else "Cores alone", rows))
    return groups


def size_note(summary: Summary) -> str:
    """How much the storage's own time reduces the difference."""
    if not comparable(summary.report_sizing.costs):
        return ""
    bare, *stored = (slowdown(summary.report_sizing.costs, REPORT_CORES, 0.6, us) for us in STORAGE_US)
    rest = ", ".join(
        f"{each:.2f} times with {us:g} µs of storage" for each, us in zip(stored, STORAGE_US[1:], strict=True)
    )
    return (
        f"At 60 % busy the protocol with the most CPU per I/O responds in {bare:.2f} times the time of the one with "
        "the "
        f"least on the cores alone, {rest}: the slower the storage, the less the difference shows in a response time, "
        "though it "
        "still takes the cores."
    )


def _blocks(model: CpuModel) -> str:
    """How precisely the cost in µs is known from this many blocks."""
    count = len(model.blocks)
    if count < 2:
        return "one: the µs are valid only for the time of this block, and drift is not in their intervals"
    text = (
        f"{count}: the µs are means over them, so their intervals use Student’s t with {count - 1} degrees of freedom, "
        f"{figure(block_reach(count))} standard errors to each side"
    )
    if count < BLOCKS_ENOUGH:
        text += f"; {BLOCKS_ENOUGH} or more narrow them to {figure(block_reach(BLOCKS_ENOUGH))} or less"
    return f"{text}. Ratios and effects are judged within blocks, so they do not include drift"


def _equation(model: CpuModel, arm: str) -> str:
    first, *others = model.equation(arm)
    text = figure(first.us)
    least_us = _NOTHING * abs(first.us)
    for term in (term if abs(term.us) > least_us else replace(term, us=0.0) for term in others):
        named = " × ".join(f"[{_name(name)} {level}]" for name, level in term.at)
        text += f" {'+' if term.us >= 0 else '−'} {figure(abs(term.us))} {named}"
    background = f"{round(model.background_cores.value, 4) + 0.0:.4f}".replace("-", "−")
    return f"busy processors = {background} + IOPS × ({text}) µs"


def _linear(costs: CpuCosts) -> str:
    model = costs.model
    if model.linearity is None:
        return "cannot be judged: add a middle rate, or runs without load"
    if model.linearity.p >= 0.05:
        return f"no sign of a curve ({_test(model.linearity)})"
    if not model.bends:
        return f"a curve of less than a thousandth ({_test(model.linearity)})"
    parts = ", ".join(
        f"{title(each.arm)} {figure(each.lightest_us)} → {figure(each.heaviest_us)} µs" for each in model.curvatures
    )
    return (
        f"no: the cost per I/O changes from the lightest to the heaviest rate, {parts} ({_test(model.linearity)}). "
        "The costs above hold for these rates; do not extrapolate far beyond them"
    )


def _keys(costs: CpuCosts) -> list[str]:
    """The headline part first."""
    return [costs.response.key, *(r.key for r in PARTS if r.key in costs.models and r is not costs.response)]


def _part(costs: CpuCosts, key: str) -> str:
    response = next(r for r in PARTS if r.key == key)
    return "Initiator + target" if response is CPU else response.title.partition(", ")[2].capitalize()


def _estimate(estimate: Estimate) -> Figure:
    return Figure(figure(estimate.value), _span(estimate))


def _span(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "no interval: too few blocks"
    if estimate.alike:
        return ALIKE
    return f"{figure(estimate.low)}–{figure(estimate.high)}"


def _cores(estimate: Estimate) -> str:
    def text(value: float) -> str:
        return f"{value:.4f}".replace("-", "−")

    return f"{text(estimate.value)} processors ({text(estimate.low or 0.0)} to {text(estimate.high or 0.0)})"


def _test(test: FTest) -> str:
    return f"F({test.df_model}, {test.df_error}) = {figure(test.f_value)}, p {_p(test.p)}"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _name(factor: str) -> str:
    return factor.replace("_", " ")
