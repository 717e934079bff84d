"""A table of costs for the simulator, made from what was measured.

How often a thread of a protocol wakes, takes a turn and sends for an I/O is not in a notebook. So each measured
treatment is simulated, which counts it; the costs are fitted to the measured CPU per I/O; and since costs change how
often threads wake, that is repeated with the costs found until they stay.

All of it is done for several measures of how much turns vary, of which the one with the closest rates is taken.
Threads whose turns all take what they cost wait for each other in step, or never. Real ones do not: what varies shows
in the rate wherever two threads have work for each other at the same time.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iotax.analysis.cost_fit import Costed, Figure, figure_of, fit_costs
from iotax.analysis.data import StudyData
from iotax.calibration.prediction import Row, rows
from iotax.calibration.treatments import SIDES, NothingMeasured, Treatment, measured_treatments, simulated, split
from iotax.labs.sim.costs import document, told, turn_cv_percent
from iotax.study.sim import Cost, Costs, CostTable, Sides, Spread
from iotax.trial import SiteWork

_TIMES = 4
"""Maximum simulations of each treatment; the second changes little."""
_STAYS = 0.01
"""Costs that change by less, as a share, stay."""
_DELAY = "wake_delay"


@dataclass(frozen=True)
class Check:
    """CPU time per I/O of one side, measured and as the table made from it says."""

    treatment: str
    side: str
    measured_ns: float
    simulated_ns: float

    @property
    def off(self) -> float:
        """Difference as a share of the measured value."""
        return self.simulated_ns / self.measured_ns - 1


@dataclass(frozen=True)
class Made:
    """A table, its fit to the measurements behind it, its predictions for other treatments, and what was left out."""

    table: CostTable
    checks: list[Check]
    others: list[Row]
    left_out: list[str]


def make_table(
    data: StudyData,
    source: str,
    base: CostTable,
    base_name: str,
    program: Path,
    say: Callable[[str], None],
    only: Mapping[str, Sequence[str]] | None = None,
) -> Made:
    """`source` names the notebook and its run; `only` the treatments that the table is made from: factor → labels of
    its levels. Raises NothingMeasured, TrialFailed, EngineError."""
    left_out: list[str] = []
    found, others = split(measured_treatments(data, source, base, left_out), only or {})
    if not found:
        raise NothingMeasured(f"{source} holds no treatment with all of these levels")
    own = {each.protocol: [one for one in found if one.protocol == each.protocol] for each in found}
    told_apart = tell_turns_apart(found)

    def fit(cv_percent: int) -> dict[str, _Fit]:
        say(f"simulating {len(found)} treatments, turns varying by {cv_percent} %")
        return {
            protocol: _fitted(treatments, base.protocols[protocol], cv_percent, program)
            for protocol, treatments in own.items()
        }

    tried: dict[int, dict[str, _Fit]] = {}

    def rms_at(cv_percent: int) -> float:
        tried[cv_percent] = fit(cv_percent)
        rates_iops = {name: rate for each in tried[cv_percent].values() for name, rate in each.rates_iops.items()}
        return rms_off(found, rates_iops)

    cv_percent = closest_percent(rms_at) if told_apart else turn_cv_percent(base)
    fits = tried.get(cv_percent) or fit(cv_percent)
    protocols, checks = {}, []
    for protocol, treatments in own.items():
        fitted = fits[protocol]
        checks += fitted.checks
        made = {
            side: _costs(fitted.figures[side], costs, _source(source, treatments, side, data), base_name, source)
            for side, costs in told(base.protocols[protocol]).items()
        }
        protocols[protocol] = Sides(initiator=made["initiator"], target=made["target"])
    turn_cv = _turn_cv(cv_percent, base, f"{source}, {_when_and_where(data)}" if told_apart else "", base_name, source)
    table = CostTable(about=_about(data, source), turn_cv=turn_cv, protocols=protocols)
    known = [each for each in others if each.protocol in protocols]
    if len(known) < len(others):
        left_out.append(f"{len(others) - len(known)} treatments: the table has no costs of their protocol")
    if known:
        say(f"simulating {len(known)} others")
    return Made(table, checks, rows(known, table, program), left_out)


def _turn_cv(percent: int, base: CostTable, fitted: str, base_name: str, notebook: str) -> Spread | None:
    if fitted:
        return Spread(percent=percent, source=f"{fitted}: in steps of 5 %, the one with the closest rates")
    if base.turn_cv is None:
        return None
    return base.turn_cv.model_copy(update={"source": _as_in(base_name, notebook, base.turn_cv.source)})


def _costs(figures: Mapping[str, Figure], base: Costs, source: str, base_name: str, notebook: str) -> Costs:
    given = base.figures()
    for name, like in (("kib_sent", "kib"), ("wake_short", "wake")):
        if figures[name] != figures[like]:
            given.setdefault(name, getattr(base, like))
    if figures[_DELAY].fitted:
        given.setdefault(_DELAY, base.wake)
    made = {name: _cost(figures[name], cost, source, base_name, notebook) for name, cost in given.items()}
    if "wake_short" in made and figures["wake_short"].fitted:
        ratio = f"{source}; in the ratio to wake that {base_name} has"
        made["wake_short"] = made["wake_short"].model_copy(update={"source": ratio})
    return Costs(**made)


def _cost(figure: Figure, base: Cost, source: str, base_name: str, notebook: str) -> Cost:
    if not figure.fitted:
        return base.model_copy(update={"source": _as_in(base_name, notebook, base.source)})
    if figure.low_ns is None or figure.high_ns is None:
        return Cost(ns=round(figure.ns), source=f"{source}; no interval, for there is one block")
    return Cost(ns=round(figure.ns), low_ns=int(figure.low_ns), high_ns=round(figure.high_ns + 0.5), source=source)


def _as_in(base_name: str, notebook: str, source: str) -> str:
    return f"as in {base_name}, since {notebook} does not tell it apart: {source}"


def _source(source: str, treatments: list[Treatment], side: str, data: StudyData) -> str:
    blocks = set.intersection(*(set(each.measured_ns[side]) for each in treatments))
    halves = "; both ends in one kernel, half of its CPU each (assumed)" if treatments[0].halves else ""
    return f"{source}, {_when_and_where(data)}: fitted to {len(treatments)} treatments in {len(blocks)} blocks{halves}"


def _about(data: StudyData, source: str) -> str:
    facts = data.runs[0].result.facts
    return f"measured in the {facts.lab} lab, {_when_and_where(data)} ({source})"


def _when_and_where(data: StudyData) -> str:
    first_ns = min(run.result.window.start_unix_ns for run in data.runs)
    date = datetime.datetime.fromtimestamp(first_ns / 1e9, datetime.UTC).date().isoformat()
    machine = data.environment.get("machine", {})
    parts = [machine.get("cpu_model"), f"Linux {machine['kernel']}" if "kernel" in machine else None]
    return ", ".join([date, *(part for part in parts if part)])


@dataclass(frozen=True)
class _Fit:
    """Costs of one protocol."""

    figures: dict[str, dict[str, Figure]]
    """Side → name → figure."""
    checks: list[Check]
    rates_iops: dict[str, float]
    """Treatment → its rate, simulated."""


def _fitted(treatments: list[Treatment], base: Sides, cv_percent: int, program: Path) -> _Fit:
    others = {
        side: {"kib_sent": float(costs.kib.ns), "wake_short": float(costs.wake.ns)}
        | {name: float(cost.ns) for name, cost in costs.figures().items() if name != _DELAY}
        for side, costs in told(base).items()
    }
    delays = {side: _delay(treatments, costs) for side, costs in told(base).items()}
    several_mtus = len({each.document["link"].get("mtu_bytes") for each in treatments}) > 1
    costs = {side: others[side] | {_DELAY: delays[side].ns} for side in SIDES}
    figures: dict[str, dict[str, Figure]] = {}
    for _ in range(_TIMES):
        counted = _counted(treatments, costs, cv_percent, program)
        for side in SIDES:
            costed = [
                Costed(each.measured_ns[side], found.counts[side])
                for each, found in zip(treatments, counted, strict=True)
            ]
            try:
                found = fit_costs(costed, others[side], several_mtus=several_mtus)
                figures[side] = found | {_DELAY: delays[side]}
            except ValueError as error:
                raise NothingMeasured(f"{treatments[0].protocol}: {error}") from error
        before, costs = costs, {side: {name: each.ns for name, each in figures[side].items()} for side in SIDES}
        if all(_stay(before[side], costs[side]) for side in SIDES):
            break
    counted = _counted(treatments, costs, cv_percent, program)
    rates_iops = {each.name: found.rate_iops for each, found in zip(treatments, counted, strict=True)}
    return _Fit(figures, list(_checked(treatments, counted, costs)), rates_iops)


def _delay(treatments: list[Treatment], base: Costs) -> Figure:
    """Time that a thread takes to wake besides its CPU time: half of the time between I/Os in which neither side
    worked, since each side wakes once for each. Mean over treatments; the other table's value if none determines it."""
    idle: dict[int, list[float]] = {}
    for each in (each for each in treatments if each.alone):
        for block, gap_ns in (each.gaps_ns or {}).items():
            worked_ns = sum(each.measured_ns[side][block] for side in SIDES)
            idle.setdefault(block, []).append(max(0.0, gap_ns - worked_ns) / 2)
    by_block = [sum(each) / len(each) for each in idle.values()]
    if not by_block:
        return Figure(float(base.wake_delay.ns) if base.wake_delay else 0.0)
    return figure_of(sum(by_block) / len(by_block), by_block)


def _stay(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
    return all(abs(after[name] - before[name]) <= max(1.0, _STAYS * before[name]) for name in before)


@dataclass(frozen=True)
class _Counted:
    """The simulated result of a treatment at given costs."""

    counts: dict[str, dict[str, float]]
    """Side → name → how often it counts for an I/O."""
    rate_iops: float


def _counted(
    treatments: Sequence[Treatment], costs: Mapping[str, Mapping[str, float]], cv_percent: int, program: Path
) -> list[_Counted]:
    documents = {side: document(costs[side], cv_percent) for side in SIDES}
    found = []
    for result in simulated(treatments, lambda _: documents, program):
        assert result.simulated is not None, "the engine is of this version"
        works = {"initiator": result.simulated.initiators, "target": result.simulated.target}
        counts = {side: _per_io(work, result.ios) for side, work in works.items()}
        found.append(_Counted(counts, result.rate_iops))
    return found


def _checked(
    treatments: list[Treatment], counted: list[_Counted], costs: Mapping[str, Mapping[str, float]]
) -> Iterator[Check]:
    for each, found in zip(treatments, counted, strict=True):
        for side in SIDES:
            blocks = each.measured_ns[side]
            spent_ns = sum(costs[side][name] * count for name, count in found.counts[side].items())
            yield Check(each.name, side, sum(blocks.values()) / len(blocks), spent_ns)


def _per_io(work: SiteWork, ios: int) -> dict[str, float]:
    deep = work.wakes if work.wakes_deep_permille is None else work.wakes_deep_permille / 1000
    return {
        "wake": deep / ios,
        "wake_short": (work.wakes - deep) / ios,
        "turn": work.turns / ios,
        "send": work.sends / ios,
        "io": 1.0,
        "kib": (work.bytes - work.sent_bytes) / 1024 / ios,
        "kib_sent": work.sent_bytes / 1024 / ios,
        "segment": work.segments / ios,
    }


_COARSE_PERCENT = (0, 20, 40, 60, 80, 100)
_FINER_PERCENT = (10, 5)
_TREATMENTS_MIN = 3


def tell_turns_apart(treatments: Sequence[Treatment]) -> bool:
    """Whether rates say how much turns vary: those over loopback of several I/Os at a time."""
    return sum(each.gaps_ns is not None and not each.alone for each in treatments) >= _TREATMENTS_MIN


def closest_percent(rms_at: Callable[[int], float]) -> int:
    """The coefficient of variation, in steps of 5 %, with the smallest error; calls `rms_at` once for each."""
    found: dict[int, float] = {}

    def ask(percents: Sequence[int]) -> int:
        for percent in percents:
            if percent not in found:
                found[percent] = rms_at(percent)
        return min(found, key=lambda percent: (found[percent], percent))

    best = ask(_COARSE_PERCENT)
    for step in _FINER_PERCENT:
        best = ask([percent for percent in (best - step, best + step) if 0 <= percent <= 100])
    return best


def rms_off(treatments: Sequence[Treatment], rates_iops: Mapping[str, float]) -> float:
    """Root mean square of the logarithmic errors of simulated rates against measured ones over loopback. `rates_iops`:
    treatment → rate."""
    squares = [
        math.log(rates_iops[each.name] * sum(each.gaps_ns.values()) / len(each.gaps_ns) / 1e9) ** 2
        for each in treatments
        if each.gaps_ns
    ]
    return math.sqrt(sum(squares) / len(squares))
