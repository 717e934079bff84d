"""The CPU cost of an I/O by the model of busy processors over the rate, and the model's checks."""

from __future__ import annotations

from dataclasses import replace

from iotax.analysis import Estimate, Summary
from iotax.analysis.cost import PARTS, CpuCosts
from iotax.analysis.cpu_model import CpuModel
from iotax.analysis.regression import FTest
from iotax.analysis.responses import CPU
from iotax.design.power import BLOCKS_ENOUGH, block_reach
from iotax.report import charts
from iotax.report.section import Heading, Panels, Part, Section, Source, Table, Text, facts, note
from iotax.report.tables import Column, Figure, Group, Row
from iotax.units import counted
from iotax.wording import figure, inside, title
from iotax.wording.costs import by_rate, priced
from iotax.wording.figures import ALIKE
from iotax.wording.processors import contents
from iotax.wording.verdicts import cautioned

_NOTHING = 1e-6
"""Share of a cost: a smaller term is a rounding error."""


def section(source: Source) -> Section | None:
    summary, looks = source.summary, source.looks
    costs = summary.costs
    if costs is None:
        return None
    base, legend = summary.grid.baseline_arm, source.legend(costs.model.arms)
    columns = (
        "Slopes of busy processors over achieved IOPS, means over the levels of the other factors; below each its 95 % "
        f"interval (of the blocks for µs, Fieller’s for the ratio). {' '.join(contents(summary))}"
    )
    caption = (
        "Left: every run, and the model at the mean over its factors; open points are measurements without load. "
        "Right: by how much each factor changes the CPU time per I/O, with 95 % intervals; right of zero is more CPU."
    )
    lines = source.drawn([charts.cost_lines(costs, looks), charts.cost_effects(costs, looks)])
    parts: list[Part] = [
        *(Text(text, "lead") for text in cost_lead(summary)),
        Table(cost_columns(costs, base), cost_groups(costs, base), "CPU time per I/O by the model"),
        note(columns),
        Panels(lines, caption, 2, legend, 2),
    ]
    if by_factor := source.drawn(charts.cost_interactions(costs, looks)):
        caption = (
            "CPU time per I/O by level, a line for each protocol, 95 % intervals. Where lines are not parallel the "
            "effect depends on the protocol."
        )
        parts.append(Panels(by_factor, caption))
    parts += [Heading("Checks of the model"), facts(cost_facts(costs), one_column=True), note(_equation_note(costs))]
    if half_normal := source.drawn([charts.cost_half_normal(costs, looks, base)]):
        caption = " ".join(each.description for each in half_normal)
        parts.append(Panels(half_normal, caption, 2, legend, 2))
    residuals = source.drawn(charts.cost_residuals(costs, looks))
    said = " ".join(f"{each.title}: {inside(each.description)}" for each in residuals)
    caption = f"Residuals, as a share of the fitted value of each run. {said}"
    parts.append(Panels(residuals, caption, first=3))
    return Section("cost", "CPU cost per I/O", parts, "Cost")


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
            figures.append(estimated(model.cost_us(arm)) if arm in model.arms else Figure("–"))
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


def cost_facts(costs: CpuCosts) -> list[tuple[str, str]]:
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
    facts = [("Blocks", _blocks(model)), ("Background", background)]
    facts += [(f"Equation, {title(arm)}", _equation(model, arm)) for arm in model.arms]
    facts.append(("Linear in IOPS", _linear(costs)))
    if model.lack_of_fit is not None:
        missed = model.lack_of_fit.p < 0.05
        text = (
            "a separate cost for each treatment and rate explains more than the model"
            if missed
            else "no sign of a missing term"
        )
        facts.append(("Lack of fit", f"{text} ({_test(model.lack_of_fit)})"))
    for (one, other), test in model.interactions.items():
        name = f"{_name(one)} × {_name(other)}"
        facts.append((name, f"{'matters' if test.p < 0.05 else 'no sign that it matters'} ({_test(test)})"))
    facts.append(
        (
            "Scatter",
            f"standard deviation of runs about the model {100 * model.residual_share:.1f} %; prediction error of each "
            "run "
            f"from all others {100 * model.prediction_share:.1f} % (PRESS); {model.fitted.residual_df} degrees of "
            "freedom",
        )
    )
    return facts


def _equation_note(costs: CpuCosts) -> str:
    """How to read its terms."""
    several = any(len(levels) > 2 for levels in costs.model.factors.values())
    other = "its factor’s last, and 0 at others" if several else "the other"
    return f"In equations [factor level] is +1 at the level named and −1 at {other}."


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


def estimated(estimate: Estimate) -> Figure:
    """A cost, or that too few blocks give no interval."""
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

    if estimate.low is None or estimate.high is None:
        return f"{text(estimate.value)} processors ({_span(estimate)})"
    return f"{text(estimate.value)} processors ({text(estimate.low)} to {text(estimate.high)})"


def _test(test: FTest) -> str:
    return f"F({test.df_model}, {test.df_error}) = {figure(test.f_value)}, p {_p(test.p)}"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _name(factor: str) -> str:
    return factor.replace("_", " ")
