"""What others have published beside what was measured here: the same ratio, to the same baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from iotax.analysis.compare import Model, at_equal_rates
from iotax.analysis.data import Cell
from iotax.analysis.estimate import Estimate
from iotax.analysis.model import Weights
from iotax.analysis.responses import (
    BANDWIDTH,
    CPU,
    CPU_HYPERVISOR,
    CPU_INITIATOR,
    CPU_MACHINE,
    CPU_TARGET,
    DISK_IOPS,
    IOPS,
    LATENCY,
    P99,
    TRANSACTIONS,
    UTILISATION,
    Response,
)
from iotax.records import Carrier
from iotax.study import Study
from iotax.study.published import PublishedFigure, Span
from iotax.trial import LevelValue

RESPONSE_OF = {
    "iops": IOPS,
    "bandwidth": BANDWIDTH,
    "latency": LATENCY,
    "latency_p99": P99,
    "cpu_per_io": CPU,
    **{each.key: each for each in (CPU_INITIATOR, CPU_TARGET, CPU_HYPERVISOR, CPU_MACHINE, *UTILISATION)},
    "transactions": TRANSACTIONS,
    "disk_iops": DISK_IOPS,
}
"""A source's response → ours."""

Agreement: TypeAlias = Literal["agrees", "lower", "higher", "between", "unknown", "carrier", "rates"]
"""Of two ends of a transport, `lower` and `higher` hold at both; `between`: neither does. Not judged: `carrier`, for
what carries it here is emulated, and the source’s was not; `rates`, for a utilisation compares costs at equal rates
only, and here the rates differ by more than the study's margin, or are not known to."""


@dataclass(frozen=True)
class Beside:
    """One published figure and the measurement that answers it. Relative figures count the baseline as 100."""

    arm: str
    """As the grid knows it; empty where the figure is about no single one."""
    treatment: str
    called: str
    published: Span | None
    measured: Estimate | None
    published_absolute: Span | None
    measured_absolute: Estimate | None
    is_baseline: bool
    carrier: Carrier
    """An emulated one, of its own or of its baseline; else as nobody knows it."""
    at_equal_rates: bool = True
    """False of a relative utilisation where the rates differ."""
    ends: tuple[tuple[str, Estimate], ...] = ()
    """(name of the carrier, the relative figure there), where a lab has all of a transport in software and none of it:
    a real adapter lies between."""

    @property
    def agreement(self) -> Agreement:
        """Whether our interval and what was published meet; where ours lies if they do not."""
        if not self.at_equal_rates:
            return "rates"
        if self.ends and self.published is not None:
            return _between(self.published, [ratio for _, ratio in self.ends])
        if self.carrier.emulated:
            return "carrier"
        if self.published is not None:
            return _agreement(self.published, self.measured)
        return _agreement(self.published_absolute, self.measured_absolute)


@dataclass(frozen=True)
class Source:
    """What one source says of one response, figure by figure, beside ours."""

    citation: str
    remarks: str
    response: Response
    baseline: str
    figures: list[Beside]


def beside_published(study: Study, models: Mapping[str, Model]) -> list[Source]:
    """Every published figure of the study; without a measurement where nothing of it ran."""
    found = []
    for published in study.published:
        model = models[RESPONSE_OF[published.response].key]
        base = _labels(study, study.baseline if published.baseline is None else published.baseline)
        figures = [_beside(study, model, base, figure) for figure in published.figures]
        found.append(Source(published.source, published.remarks, model.response, _name(base), figures))
    return found


def _beside(study: Study, model: Model, base: dict[str, str], figure: PublishedFigure) -> Beside:
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
        pairs = [(cell, _with(model, cell, base)) for cell in cells]
        compared = [pair for pair in pairs if pair[0] != pair[1] and pair[1] in model]
        measured = _ratio(model, compared)
    return Beside(
        arms.pop() if len(arms) == 1 else "",
        _name(of),
        figure.called,
        figure.relative,
        measured,
        figure.absolute,
        _mean(model, cells),
        is_baseline,
        _emulated(model, [*cells, *(base_cell for _, base_cell in compared)]),
        at_equal_rates(model, compared, study.margin),
        _ends(model, compared),
    )


def _ends(model: Model, pairs: Sequence[tuple[Cell, Cell]]) -> tuple[tuple[str, Estimate], ...]:
    """The same ratio at both ends of a transport; empty where a pair has none, or an emulated carrier is left."""
    if any(model.carriers[cell].emulated and not model.brackets.has(cell) for pair in pairs for cell in pair):
        return ()
    at_ends = [model.brackets.pairs(*pair) for pair in pairs]
    if len({len(each) for each in at_ends}) != 1:
        return ()
    found = []
    for each in zip(*at_ends, strict=True):
        ratio = _ratio(model, [(pair.cell, pair.base) for pair in each])
        if ratio is not None:
            found.append((" and ".join(each[0].carriers), ratio))
    return tuple(found)


def _emulated(model: Model, cells: Sequence[Cell]) -> Carrier:
    """The first emulated carrier of these cells; one that is not known where there is none."""
    carriers = (model.carriers[cell] for cell in cells)
    return next((each for each in carriers if each.emulated), Carrier())


def _ratio(model: Model, pairs: Sequence[tuple[Cell, Cell]]) -> Estimate | None:
    """Geometric mean of the ratios of pairs, each weighing the same; × 100."""
    if not pairs:
        return None
    weights: dict[Cell, float] = {}
    for cell, base in pairs:
        weights[cell] = weights.get(cell, 0.0) + 1 / len(pairs)
        weights[base] = weights.get(base, 0.0) - 1 / len(pairs)
    contrast: Weights = {**weights}
    return Estimate.ratio(model.model.contrast(contrast)).percent


def _mean(model: Model, cells: Sequence[Cell]) -> Estimate | None:
    """Geometric mean over cells, each weighing the same; drift between blocks is in its interval."""
    return Estimate.ratio(model.model.level(cells)) if cells else None


def _with(model: Model, cell: Cell, levels: Mapping[str, str]) -> Cell:
    return tuple(levels.get(name, label) for name, label in zip(model.grid.factors, cell, strict=True))


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
    if max(high for high in highs if high is not None) < published[0]:
        return "lower"
    return "higher" if min(low for low in lows if low is not None) > published[1] else "between"


def _agreement(published: Span | None, measured: Estimate | None) -> Agreement:
    if published is None or measured is None or measured.low is None or measured.high is None:
        return "unknown"
    if measured.high < published[0]:
        return "lower"
    return "higher" if measured.low > published[1] else "agrees"
