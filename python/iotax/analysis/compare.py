"""Ratios to the baseline and differences to local, with intervals and verdicts.

If no treatment ran twice, nothing is known of the scatter of runs, and a ratio has no interval. Under n conditions
there are n ratios of two arms, though, and their mean has one (`Paired`): Student's t over the conditions, each of
which counts once (Cochran, "Sampling Techniques", §2.5). It holds what differs between conditions and the scatter of
single runs together, so it says how the arms differ over conditions such as these. It is not a verdict: it tells no
condition from chance, and the conditions were chosen, not drawn.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from iotax.analysis.brackets import Brackets, End, Pair, agreed
from iotax.analysis.data import Cell, Grid, StudyData
from iotax.analysis.estimate import Contrast, Estimate, mean_of
from iotax.analysis.model import CellModel, Layout, Weights
from iotax.analysis.replicates import ReplicateModel
from iotax.analysis.responses import CPU, CPU_INITIATOR, CPU_TARGET, IOPS, LATENCY, UTILISATION, Response, Run
from iotax.analysis.strata import Variation, WholePlots, variation, whole_plots
from iotax.analysis.verdict import Cause, Verdict, Withheld, judge, log_margin, two_sided_p
from iotax.analysis.withheld import Carriers, carriers_of, unlike_carriers, withheld
from iotax.records import Carrier


@dataclass(frozen=True)
class Comparison:
    """An arm against the baseline under one condition; `condition` is None over all of them."""

    response: Response
    arm: str
    condition: str | None
    ratio: Estimate
    """Ratio of geometric means, arm over baseline. For judged comparisons, the intervals of this response hold
    simultaneously with 95 %, and the verdict follows from the interval."""
    p_difference: float | None = None
    """Adjusted for all comparisons of this response (Dunnett)."""
    verdict: Verdict | None = None
    withheld: Withheld | None = None
    """Why there is no verdict for a judged arm; local is not judged."""
    ends: tuple[End, ...] = ()
    """If a side is a protocol with two bounds in this lab: the comparison at each bound. The verdict holds for both.
    `ratio` is that of the named arm and baseline."""


@dataclass(frozen=True)
class Overall:
    """An arm against the baseline over all conditions: interactions come before averages."""

    response: Response
    arm: str
    comparison: Comparison
    interaction_p: float | None
    flips: bool
    """Better under one condition and worse under another."""

    @property
    def depends(self) -> bool:
        """Then the answer is given by condition and there is no overall one."""
        return self.flips or (self.interaction_p is not None and self.interaction_p < 0.05)


@dataclass(frozen=True)
class Tax:
    """The cost of a treatment beyond the same volume reached locally under the same load."""

    arm: str
    condition: str
    latency_us: Estimate
    cpu_us: Estimate | None
    cpu_of: Response
    throughput_percent: Estimate | None
    """Share of the local throughput that is lost; None if the study set the rate."""
    carrier: Carrier
    """The treatment's cell."""
    initiator_us: Estimate | None
    """CPU time beyond that of the local load."""
    target_us: Estimate | None
    """CPU time of the server: all of it, since local access has no server."""


class Model:
    """The blocked model of one response, over the runs that have it."""

    def __init__(self, response: Response, grid: Grid, data: StudyData, layouts: "LayoutCache") -> None:
        self.response = response
        runs, drawn = data.runs, data.costs_drawn
        self.confidence = data.confidence
        """The confidence with which judged ratios hold simultaneously at 95 %, including the study's stopping rule and
        its interim looks."""
        self._looked = bool(data.looks)
        values = [(run, response.of(run)) for run in runs]
        self.observed = [(run, value) for run, value in values if value is not None and value > 0]
        self.grid = grid
        kept = [run for run, _ in self.observed]
        self.cells = [grid.cell(run.trial) for run in kept]
        # Virtual time does not drift: where a replicate draws its costs, there is no other block than the draw.
        self.blocks = [run.trial.replicate if drawn else run.trial.block for run in kept]
        self.carriers: Carriers = carriers_of(self.cells, kept)
        self.rates_iops = _rates(self.cells, kept) if response in UTILISATION else {}
        """Rates of each cell, if the response is comparable at equal rates only."""
        self.brackets = Brackets(response, grid, self.cells, kept, self.carriers)
        self._layouts = layouts
        model = ReplicateModel if drawn else CellModel
        self.model = model(layouts.get(self.cells, self.blocks), np.log([value for _, value in self.observed]))

    def __contains__(self, cell: object) -> bool:
        return self.model.layout.count(cell) > 0

    @cached_property
    def withheld(self) -> Mapping[str, Withheld]:
        """Arms that get no verdict against the baseline, and why."""
        of_response = withheld(self.response, self.grid, [run for run, _ in self.observed])
        if not self._looked:
            return of_response
        return {arm: of_response.get(arm, Withheld(Cause.LOOKED)) for arm in self.grid.arms}

    def absolute(self, cell: Cell) -> Estimate | None:
        """Geometric mean of a cell's runs, with the interval of those runs alone (including drift between blocks)."""
        logs = self.model.of(cell)
        return Estimate.ratio(mean_of(logs), self.confidence) if len(logs) else None

    def interaction_p(self, arm: str) -> float | None:
        """Does this arm's ratio to the baseline depend on the condition?"""
        pair = [i for i, cell in enumerate(self.cells) if self.grid.arm(cell) in (arm, self.grid.baseline_arm)]
        cells = [self.cells[i] for i in pair]
        if len({self.grid.condition(cell) for cell in cells}) < 2:
            return None
        if isinstance(self.model, ReplicateModel):
            pairs = [(cell, self.grid.baseline_of(cell)) for cell in dict.fromkeys(cells) if self.grid.arm(cell) == arm]
            return self.model.differ([{cell: 1.0, base: -1.0} for cell, base in pairs if base in self])
        blocks = self._plots if self.split else self.blocks
        layout = self._layouts.get(cells, [blocks[i] for i in pair])
        test = CellModel(layout, self.model.y[pair]).interaction(
            {cell: self.grid.arm(cell) for cell in cells}, {cell: self.grid.condition(cell) for cell in cells}
        )
        return test.p if test else None

    @property
    def split(self) -> bool:
        """If the arms change between whole plots, the plots are the observations."""
        if isinstance(self.model, ReplicateModel):
            return False
        return bool(self.grid.hard) and set(self.grid.compared) <= set(self.grid.hard)

    @cached_property
    def whole_plots(self) -> WholePlots:
        """Runs grouped by the levels of hard-to-change factors."""
        hard = [self.grid.hard_levels(cell) for cell in self.cells]
        return whole_plots(self.model, hard, list(zip(self.blocks, self._plots, strict=True)))

    @cached_property
    def _plots(self) -> list[int]:
        """The number of each run's whole plot."""
        numbers: dict[tuple[object, ...], int] = {}
        return [
            numbers.setdefault((run.trial.block, run.trial.replicate, self.grid.hard_levels(cell)), len(numbers))
            for (run, _), cell in zip(self.observed, self.cells, strict=True)
        ]

    @cached_property
    def variation(self) -> Variation | None:
        """The shares of variation between blocks, whole plots and runs; None if the design is not balanced."""
        return variation(self.model, self.blocks, self.whole_plots if self.grid.hard else None)


class LayoutCache:
    """Responses measured in the same runs share a layout; making one costs a matrix inverse."""

    def __init__(self) -> None:
        self._layouts: dict[tuple[tuple[Cell, ...], tuple[int, ...]], Layout] = {}

    def get(self, cells: Sequence[Cell], blocks: Sequence[int]) -> Layout:
        key = tuple(cells), tuple(blocks)
        if key not in self._layouts:
            self._layouts[key] = Layout(cells, blocks)
        return self._layouts[key]


def compare(model: Model, margin_percent: float) -> list[Comparison]:
    """Every cell against the baseline under its condition. Local is shown, not judged: it is the other reference."""
    grid = model.grid
    pairs = [
        (cell, grid.baseline_of(cell))
        for cell in grid.cells()
        if cell != grid.baseline_of(cell) and cell in model and grid.baseline_of(cell) in model
    ]
    judged = [pair for pair in pairs if not grid.is_local(pair[0])]
    found = [
        Comparison(model.response, grid.arm(cell), grid.condition(cell), _ratio(model, cell, base))
        for cell, base in pairs
        if grid.is_local(cell)
    ]
    at_ends = {pair: model.brackets.pairs(*pair) for pair in judged}
    family = dict.fromkeys([*judged, *((each.cell, each.base) for ends in at_ends.values() for each in ends)])
    contrasts = _judge(model, [{cell: 1.0, base: -1.0} for cell, base in family], margin_percent)
    of = dict(zip(family, contrasts, strict=True))
    for pair in judged:
        named = _named(of[pair], model, grid.arm(pair[0]), grid.condition(pair[0]))
        ends = [(each, of[each.cell, each.base]) for each in at_ends[pair]]
        said = _within_carriers(model, _at_ends(model, named, pair, ends), [pair])
        found.append(_at_equal_rates(model, said, [pair], margin_percent))
    return found


def _rates(cells: Sequence[Cell], runs: Sequence[Run]) -> dict[Cell, float]:
    """Geometric means."""
    logs: dict[Cell, list[float]] = {}
    for cell, run in zip(cells, runs, strict=True):
        if run.result.rate_iops:
            logs.setdefault(cell, []).append(math.log(run.result.rate_iops))
    return {cell: math.exp(math.fsum(each) / len(each)) for cell, each in logs.items()}


def at_equal_rates(model: Model, pairs: Sequence[tuple[Cell, Cell]], margin_percent: float) -> bool:
    """Whether the rates of all pairs differ by no more than the margin; true for responses that do not
    depend on rates."""
    if model.response not in UTILISATION:
        return True
    reach = 1 + margin_percent / 100
    rates = model.rates_iops
    return all(
        one in rates and other in rates and 1 / reach <= rates[one] / rates[other] <= reach for one, other in pairs
    )


def _at_equal_rates(
    model: Model, comparison: Comparison, pairs: Sequence[tuple[Cell, Cell]], margin_percent: float
) -> Comparison:
    if comparison.verdict is None or at_equal_rates(model, pairs, margin_percent):
        return comparison
    return replace(comparison, verdict=None, withheld=Withheld(Cause.RATES))


def _at_ends(
    model: Model, comparison: Comparison, pair: tuple[Cell, Cell], found: Sequence[tuple[Pair, Comparison]]
) -> Comparison:
    """Adds the comparisons at both bounds if one side has them; the other side is used as it is."""
    if not found or comparison.verdict is None:
        return comparison
    if any(model.carriers[cell].emulated and not model.brackets.has(cell) for cell in pair):
        return comparison
    ends = tuple(End(each.carriers, contrast.ratio, contrast.verdict) for each, contrast in found)
    verdict, withheld = agreed(ends)
    return replace(comparison, verdict=verdict, withheld=withheld, ends=ends)


def _within_carriers(model: Model, comparison: Comparison, pairs: Sequence[tuple[Cell, Cell]]) -> Comparison:
    """Removes the verdict if a pair of cells differs in its carrier and no second bound covers that."""
    reasons = (unlike_carriers(model.carriers[cell], model.carriers[base]) for cell, base in pairs)
    reason = next((each for each in reasons if each is not None), None)
    if reason is None or comparison.verdict is None or comparison.ends:
        return comparison
    return replace(comparison, verdict=None, withheld=reason)


def compare_overall(model: Model, by_condition: Sequence[Comparison], margin_percent: float) -> list[Overall]:
    """Every judged arm against the baseline over all conditions, each weighing the same."""
    grid = model.grid
    arms: dict[str, list[tuple[Cell, Cell]]] = {}
    for arm in grid.arms:
        pairs = [
            (c, grid.baseline_of(c))
            for c in grid.cells()
            if grid.arm(c) == arm and c in model and grid.baseline_of(c) in model
        ]
        if pairs and arm != grid.baseline_arm and not grid.is_local(pairs[0][0]):
            arms[arm] = pairs
    at_ends = {arm: _arms_at_ends(model, pairs) for arm, pairs in arms.items()}
    family = dict.fromkeys([*map(tuple, arms.values()), *(pairs for ends in at_ends.values() for _, pairs in ends)])
    judged = (_judge_plots if model.split else _judge)(model, [_mean(pairs) for pairs in family], margin_percent)
    of = dict(zip(family, judged, strict=True))
    result = []
    for arm, pairs in arms.items():
        verdicts = {c.verdict for c in by_condition if c.arm == arm}
        flips = {Verdict.BETTER, Verdict.WORSE} <= verdicts
        ends = [(end, of[at]) for end, at in at_ends[arm]]
        said = _at_ends(model, _named(of[tuple(pairs)], model, arm, None), pairs[0], ends)
        said = _at_equal_rates(model, _within_carriers(model, said, pairs), pairs, margin_percent)
        result.append(Overall(model.response, arm, said, model.interaction_p(arm), flips))
    return result


def _arms_at_ends(model: Model, pairs: Sequence[tuple[Cell, Cell]]) -> list[tuple[Pair, tuple[tuple[Cell, Cell], ...]]]:
    """An arm's pairs at each bound; none if some pair lacks a bound."""
    ends = [model.brackets.pairs(*pair) for pair in pairs]
    if len({len(each) for each in ends}) != 1:
        return []
    return [(some[0], tuple((each.cell, each.base) for each in some)) for some in zip(*ends, strict=True)]


def _mean(pairs: Sequence[tuple[Cell, Cell]]) -> dict[Cell, float]:
    """The contrast of these pairs, each weighing the same."""
    weights: dict[Cell, float] = {}
    for cell, base in pairs:
        weights[cell] = weights.get(cell, 0.0) + 1.0 / len(pairs)
        weights[base] = weights.get(base, 0.0) - 1.0 / len(pairs)
    return weights


def _named(comparison: Comparison, model: Model, arm: str, condition: str | None) -> Comparison:
    """The comparison for this arm, without a verdict if one is withheld."""
    named = replace(comparison, arm=arm, condition=condition)
    why = model.withheld.get(arm) if named.verdict is not None else None
    return replace(named, verdict=None, withheld=why) if why else named


def taxes(models: dict[str, Model]) -> list[Tax]:
    """Each cell against the same treatment reached locally."""
    latency, throughput = models[LATENCY.key], models[IOPS.key]
    grid = latency.grid
    result = []
    for cell in grid.cells():
        local = grid.local_of(cell)
        if local is None or any(c not in model for c in (cell, local) for model in (latency, throughput)):
            continue
        cpu = next(
            (models[r.key] for r in (CPU, CPU_INITIATOR) if cell in models[r.key] and local in models[r.key]), None
        )
        arm = grid.arm(cell)
        result.append(
            Tax(
                arm,
                grid.condition(cell),
                _beyond(latency, cell, local),
                _beyond(cpu, cell, local) if cpu else None,
                cpu.response if cpu else CPU,
                None if arm in throughput.withheld else _lost(throughput, cell, local),
                latency.carriers[cell],
                _initiator_us(models[CPU_INITIATOR.key], cell, local),
                models[CPU_TARGET.key].absolute(cell) if cell in models[CPU_TARGET.key] else None,
            )
        )
    return result


def _initiator_us(model: Model, cell: Cell, local: Cell) -> Estimate | None:
    if cell not in model or local not in model:
        return None
    return _beyond(model, cell, local)


def _lost(throughput: Model, cell: Cell, local: Cell) -> Estimate:
    """In percent."""
    kept = _ratio(throughput, cell, local)
    ends = (None if end is None else 100 * (1 - end) for end in (kept.high, kept.low))
    return Estimate(100 * (1 - kept.value), *ends)


def _ratio(model: Model, cell: Cell, base: Cell) -> Estimate:
    """Comparisons that are not judged."""
    return Estimate.ratio(model.model.contrast({cell: 1.0, base: -1.0}), model.confidence)


def _beyond(model: Model, cell: Cell, local: Cell) -> Estimate:
    """A difference of geometric means, in the response's unit."""
    return Estimate.plain(model.model.difference_of_means(cell, local), model.confidence)


@dataclass(frozen=True)
class _PlotModel:
    """The model of whole plots, as `_judge` takes it."""

    response: Response
    model: CellModel
    confidence: float


def _judge_plots(model: Model, family: Sequence[Mapping[Cell, float]], margin_percent: float) -> list[Comparison]:
    """Contrasts of arms by the means of whole plots."""
    plots = model.whole_plots
    by_plots: list[dict[Cell, float]] = []
    for weights in family:
        by_plot: dict[Cell, float] = {}
        for cell, weight in weights.items():
            levels = model.grid.hard_levels(cell)
            by_plot[levels] = by_plot.get(levels, 0.0) + weight
        by_plots.append(by_plot)
    layout = Layout(plots.treatments, plots.blocks)
    own = _PlotModel(model.response, CellModel(layout, plots.means), model.confidence)
    return _judge(own, by_plots, margin_percent)


def _judge(
    model: Model | _PlotModel, family: Sequence[Mapping[Cell, float]], margin_percent: float
) -> list[Comparison]:
    """Verdicts of a family of contrasts of one response, with the intervals that hold together and that they follow."""
    weights: list[Weights] = [{**one} for one in family]
    contrasts = [model.model.contrast(w) for w in weights]
    sure = [i for i, c in enumerate(contrasts) if c.standard_error is not None]
    too_few = Withheld(Cause.RUNS)
    ratios = [Estimate.ratio(each, model.confidence) for each in contrasts]
    result = [Comparison(model.response, "", None, each, withheld=too_few) for each in ratios]
    if not sure:
        return result
    margin = log_margin(margin_percent)
    alone = [two_sided_p(c.estimate, c.standard_error or 0.0, c.df or 1.0) for c in (contrasts[i] for i in sure)]
    confidence, adjusted = model.model.together([weights[i] for i in sure], alone, model.confidence)
    for i, p_difference in zip(sure, adjusted, strict=True):
        interval = contrasts[i].interval(confidence)
        assert interval is not None
        verdict = judge(interval, margin, model.response.more_is_better)
        ratio = Estimate.ratio(contrasts[i], confidence)
        result[i] = Comparison(model.response, "", None, ratio, p_difference, verdict)
    return result


CONDITIONS_MIN = 5
"""With fewer conditions the interval is too wide to be useful."""


@dataclass(frozen=True)
class Paired:
    """An arm against the baseline over conditions that were each measured once."""

    response: Response
    arm: str
    ratio: Estimate
    """Geometric mean of the conditions' ratios, with the 95 % interval of their scatter."""
    conditions: int
    least: tuple[float, str]
    """The smallest ratio of a condition, and the condition."""
    most: tuple[float, str]


def paired(model: Model) -> list[Paired]:
    """For each arm that is compared, where no treatment ran twice; empty if some did: then runs give intervals."""
    grid = model.grid
    found = []
    if len(set(model.cells)) < len(model.cells):
        return []
    values = {cell: math.log(value) for cell, (_, value) in zip(model.cells, model.observed, strict=True)}
    for arm in grid.arms:
        pairs = [
            (values[cell] - values[base], grid.condition(cell))
            for cell in grid.cells()
            if grid.arm(cell) == arm and cell in values and (base := grid.baseline_of(cell)) in values and base != cell
        ]
        if len(pairs) < CONDITIONS_MIN or arm in model.withheld or arm == grid.local:
            continue
        logs = np.array([log for log, _ in pairs])
        error = float(logs.std(ddof=1) / math.sqrt(len(logs)))
        contrast = Contrast(float(logs.mean()), error, len(logs) - 1)
        least, most = min(pairs), max(pairs)
        ends = [(math.exp(log), condition) for log, condition in (least, most)]
        found.append(Paired(model.response, arm, Estimate.ratio(contrast), len(pairs), ends[0], ends[1]))
    return found
