"""Published figures beside measured ones: the same ratio, to the same baseline."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from iotax.analysis.compare import Model, at_equal_rates
from iotax.analysis.data import Cell
from iotax.analysis.estimate import Estimate
from iotax.analysis.model import Weights
from iotax.analysis.responses import ASKED, BANDWIDTH, P99, Response
from iotax.records import Carrier
from iotax.study import Study
from iotax.study.published import PublishedFigure, Span, Statistic, rounding
from iotax.trial import LevelValue

RESPONSE_OF = ASKED | {"bandwidth": BANDWIDTH, "latency_p99": P99}
"""A source's response → ours."""

Agreement: TypeAlias = Literal["agrees", "lower", "higher", "between", "unknown", "carrier", "rates"]
"""For a transport with two bounds, `lower` and `higher` hold at both and `between` at neither. Not judged: `carrier`,
if the carrier is emulated here but was not at the source; `rates`, if the rates here differ by more than the study's
margin or are unknown, since utilisation compares costs at equal rates only."""


@dataclass(frozen=True)
class Beside:
    """One published figure and the measurement that answers it. Relative figures count the baseline as 100."""

    arm: str
    """The treatment in the grid; empty if the figure is about several."""
    treatment: str
    called: str
    published: Span | None
    measured: Estimate | None
    published_absolute: Span | None
    measured_absolute: Estimate | None
    is_baseline: bool
    carrier: Carrier
    """An emulated one, of its own or of its baseline; else an unknown one."""
    at_equal_rates: bool = True
    """False of a relative utilisation where the rates differ."""
    levels: tuple[tuple[str, str], ...] = ()
    """(factor, label) that the treatment is named by."""
    outstanding: tuple[int, ...] = ()
    """I/Os outstanding in total under its loads, as far as known."""
    ends: tuple[tuple[str, Estimate], ...] = ()
    """(name of the carrier, the relative figure there), where a lab has all of a transport in software and none of it:
    a real adapter lies between."""

    @property
    def agreement(self) -> Agreement:
        """Whether our interval and the published range overlap; if not, the side on which ours lies."""
        if not self.at_equal_rates:
            return "rates"
        if self.ends and self.published is not None:
            return _between(self.published, [ratio for _, ratio in self.ends])
        if self.carrier.emulated:
            return "carrier"
        return agreement_of(*self.judged)

    @property
    def judged(self) -> tuple[Span | None, Estimate | None]:
        """The figure that agreement is about: the relative one if there is one, else the absolute one."""
        if self.published is not None:
            return self.published, self.measured
        return self.published_absolute, self.measured_absolute

    @property
    def beyond(self) -> float:
        """The factor between our interval and the published range; 1 if they overlap or cannot be compared."""
        published, measured = self.judged
        if self.agreement not in ("lower", "higher") or published is None or measured is None or self.ends:
            return 1.0
        low, high = _printed(published)
        return low / (measured.high or low) if self.agreement == "lower" else (measured.low or high) / high


@dataclass(frozen=True)
class Source:
    """A source's figures for one response beside ours."""

    citation: str
    remarks: str
    response: Response
    baseline: str
    figures: list[Beside]
    statistic: Statistic = "geometric mean"
    reason: str = ""
    """Why ours may differ."""


@dataclass(frozen=True)
class Tally:
    """How many figures of one response agree, relative to one baseline."""

    response: Response
    baseline: str
    agree: int
    judged: int
    others: int
    """Not judged, or not measured."""


def tallies(sources: Sequence[Source]) -> list[Tally]:
    """In the order of the study."""
    found: dict[tuple[str, str], list[tuple[Source, Beside]]] = {}
    for source in sources:
        for each in source.figures:
            if each.judged[0] is not None and not (each.is_baseline and each.published_absolute is None):
                found.setdefault((source.response.key, source.baseline), []).append((source, each))
    result = []
    for own in found.values():
        known = [each for _, each in own if each.agreement in ("agrees", "lower", "higher") and not each.ends]
        agree = sum(each.agreement == "agrees" for each in known)
        first = own[0][0]
        result.append(Tally(first.response, first.baseline, agree, len(known), len(own) - len(known)))
    return result


def largest(sources: Sequence[Source], count: int = 3) -> list[tuple[Source, Beside]]:
    """The figures whose intervals lie farthest from the published ones, farthest first; one for each source and
    treatment, whatever the load."""
    apart = [(source, each) for source in sources for each in source.figures if each.beyond > 1.0]
    apart.sort(key=lambda pair: -pair[1].beyond)
    found: dict[tuple[str, str, str], tuple[Source, Beside]] = {}
    for source, each in apart:
        found.setdefault((source.response.key, source.baseline, each.arm), (source, each))
    return list(found.values())[:count]


def beside_published(study: Study, models: Mapping[str, Model]) -> list[Source]:
    """Every published figure of the study; without a measurement where nothing of it ran."""
    found = []
    for published in study.published:
        model = models[RESPONSE_OF[published.response].key]
        base = _labels(study, study.baseline if published.baseline is None else published.baseline)
        figures = [_beside(study, model, base, figure, published.statistic) for figure in published.figures]
        found.append(
            Source(
                published.source,
                published.remarks,
                model.response,
                _name(base),
                figures,
                published.statistic,
                published.reason,
            )
        )
    return found


def _beside(study: Study, model: Model, base: dict[str, str], figure: PublishedFigure, statistic: Statistic) -> Beside:
    of = _labels(study, figure.of)
    grid = model.grid
    cells = [
        cell
        for cell in grid.cells()
        if all(grid.level(cell, name) == label for name, label in of.items()) and cell in model
    ]
    arms = {grid.arm(cell) for cell in cells}
    is_baseline = bool(base) and all(of.get(name) == label for name, label in base.items())
    measured = None
    compared: list[tuple[Cell, Cell]] = []
    if figure.relative is not None:
        pairs = [(cell, model.grid.with_levels(cell, base)) for cell in cells]
        compared = [pair for pair in pairs if pair[0] != pair[1] and pair[1] in model]
        measured = _ratio(model, compared, statistic)
    return Beside(
        arms.pop() if len(arms) == 1 else "",
        _name(of),
        figure.called,
        figure.relative,
        measured,
        figure.absolute,
        _mean(model, cells, statistic),
        is_baseline,
        _emulated(model, [*cells, *(base_cell for _, base_cell in compared)]),
        at_equal_rates(model, compared, study.margin),
        tuple(of.items()),
        _outstanding(model, cells),
        _ends(model, compared, statistic),
    )


def _outstanding(model: Model, cells: Sequence[Cell]) -> tuple[int, ...]:
    of_cell = {cell: run.total_outstanding for (run, _), cell in zip(model.observed, model.cells, strict=True)}
    return tuple(sorted({total for cell in cells if (total := of_cell.get(cell)) is not None}))


def _ends(model: Model, pairs: Sequence[tuple[Cell, Cell]], statistic: Statistic) -> tuple[tuple[str, Estimate], ...]:
    """The same ratio at both bounds of a transport; empty if a pair has no bounds or an emulated carrier remains."""
    if any(model.carriers[cell].emulated and not model.brackets.has(cell) for pair in pairs for cell in pair):
        return ()
    at_ends = [model.brackets.pairs(*pair) for pair in pairs]
    if len({len(each) for each in at_ends}) != 1:
        return ()
    found = []
    for each in zip(*at_ends, strict=True):
        ratio = _ratio(model, [(pair.cell, pair.base) for pair in each], statistic)
        if ratio is not None:
            found.append((" and ".join(each[0].carriers), ratio))
    return tuple(found)


def _emulated(model: Model, cells: Sequence[Cell]) -> Carrier:
    """The first emulated carrier of these cells; one that is not known where there is none."""
    carriers = (model.carriers[cell] for cell in cells)
    return next((each for each in carriers if each.emulated), Carrier())


def _ratio(model: Model, pairs: Sequence[tuple[Cell, Cell]], statistic: Statistic) -> Estimate | None:
    """One ratio from those of pairs, averaged as the source did, times 100.

    For arithmetic means, the interval is that of the logarithm to first order: each cell has the weight of its share of
    the sum.
    """
    if not pairs:
        return None
    over, under, log = _shares(model, pairs, statistic)
    weights: dict[Cell, float] = {}
    for (cell, base), plus, minus in zip(pairs, over, under, strict=True):
        weights[cell] = weights.get(cell, 0.0) + plus
        weights[base] = weights.get(base, 0.0) - minus
    contrast: Weights = {**weights}
    found = model.model.contrast(contrast)
    return Estimate.ratio(found if log is None else replace(found, estimate=log)).percent


def _shares(
    model: Model, pairs: Sequence[tuple[Cell, Cell]], statistic: Statistic
) -> tuple[list[float], list[float], float | None]:
    """The weights of each pair's two sides in the logarithm of the ratio, and this logarithm if the weights do not give
    it."""
    if statistic == "geometric mean":
        alike = [1 / len(pairs)] * len(pairs)
        return alike, alike, None
    values = {cell: math.exp(model.model.mean(cell)) for pair in pairs for cell in pair}
    if statistic == "mean of ratios":
        ratios = [values[cell] / values[base] for cell, base in pairs]
        shares = [each / sum(ratios) for each in ratios]
        return shares, shares, math.log(sum(ratios) / len(ratios))
    tops, bottoms = ([values[pair[side]] for pair in pairs] for side in (0, 1))
    log = math.log(sum(tops) / sum(bottoms))
    return [each / sum(tops) for each in tops], [each / sum(bottoms) for each in bottoms], log


def _mean(model: Model, cells: Sequence[Cell], statistic: Statistic) -> Estimate | None:
    """One value from those of cells, averaged as the source did; drift between blocks is in its interval."""
    if not cells:
        return None
    if statistic == "geometric mean":
        return Estimate.ratio(model.model.level(cells))
    return Estimate.ratio(model.model.log_of_mean(cells))


def _labels(study: Study, treatment: Mapping[str, LevelValue]) -> dict[str, str]:
    found = {name: study.level(name, value) for name, value in treatment.items()}
    return {name: level.label for name, level in found.items() if level is not None}


def _name(labels: Mapping[str, str]) -> str:
    parts = [label if name == "protocol" else f"{name.replace('_', ' ')} {label}" for name, label in labels.items()]
    return " · ".join(parts)


def _between(published: Span, ends: Sequence[Estimate]) -> Agreement:
    lows, highs = [each.low for each in ends], [each.high for each in ends]
    if None in lows or None in highs:
        return "unknown"
    least, most = _printed(published)
    if max(high for high in highs if high is not None) < least:
        return "lower"
    return "higher" if min(low for low in lows if low is not None) > most else "between"


def agreement_of(published: Span | None, measured: Estimate | None) -> Agreement:
    """Whether our interval overlaps the values that round to the published number or range."""
    if published is None or measured is None or measured.low is None or measured.high is None:
        return "unknown"
    low, high = _printed(published)
    if measured.high < low:
        return "lower"
    return "higher" if measured.low > high else "agrees"


def _printed(published: Span) -> Span:
    """All values that round to the printed one."""
    low, high = published
    return low - rounding(low), high + rounding(high)
