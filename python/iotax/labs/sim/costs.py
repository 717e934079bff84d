"""What the work of one trial costs: the figures of the table, or a draw from their intervals.

Figures with an interval are drawn anew for each replicate, each on its own, from the study's seed and the table. The
draws of a study are centred on the figure, and come from a distribution whose standard deviation is the figure's
standard error times the root of the number of replicates: their mean stands where the table puts it, and is as
uncertain as the figure is, be they few or many. Without that factor, replicates would average away what is unknown.
Their scatter is left as it falls: were it made the same in every study, Student's t over the replicates would cover
half of the differences over two replicates, and 92 % over three.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping

from iotax.design.random import derive_seed
from iotax.study import Study
from iotax.study.sim import Cost, Costs, CostTable, Sides, read_costs
from iotax.trial import SiteWork, Trial

TURN_CV = "turn_cv"
"""The one figure of a table that is not a time."""
_NORMAL = statistics.NormalDist()
_Z = _NORMAL.inv_cdf(0.975)
_BITS = 53


def trial_costs(study: Study, protocol: str, trial: Trial) -> dict[str, dict[str, int]]:
    """Side → the costs of its threads, as the engine's documents say them. Raises CostsError."""
    lab = study.settings(trial.treatment).sim
    assert lab is not None, "a study of this lab"
    table = read_costs(lab.costs)
    sides, drawn_from, cv = table.protocols[protocol], table.digest(), turn_cv_percent(table)
    count = study.design.replicates
    # A run beside the comparison belongs to a block; one to none takes the figures as they are.
    place = trial.replicate or (trial.block if trial.block <= count else 0)
    return {
        side: document(
            {
                name: _drawn(
                    cost, deviates(study.design.seed, f"costs {drawn_from} {protocol} {side} {name}", count), place
                )
                for name, cost in costs.figures().items()
            },
            cv,
        )
        for side, costs in sides.by_name().items()
    }


def table_costs(
    table: CostTable, protocol: str, times: Callable[[str, str], float] = lambda *_: 1.0
) -> dict[str, dict[str, int]]:
    """The costs as in the table, or each cost of a side multiplied by this factor. The variation of turns belongs to no
    side."""
    sides, cv = table.protocols[protocol], turn_cv_percent(table) * times("", TURN_CV)
    return {
        side: document({name: cost.ns * times(side, name) for name, cost in costs.figures().items()}, cv)
        for side, costs in sides.by_name().items()
    }


def turn_cv_percent(table: CostTable) -> int:
    """The variation of turns, which is not drawn."""
    return table.turn_cv.percent if table.turn_cv else 0


def document(figures: Mapping[str, float], cv_percent: float) -> dict[str, int]:
    """Costs of one side in the engine's form, which requires every figure."""
    every = {"kib_sent": figures["kib"], "wake_short": figures["wake"], "wake_delay": 0.0, **figures}
    return {f"{name}_ns": round(ns) for name, ns in every.items()} | {"turn_cv_percent": min(100, round(cv_percent))}


def told(sides: Sides) -> dict[str, Costs]:
    """The two ends of the wire, by their names."""
    return {"initiator": sides.initiator, "target": sides.target}


def initiators(costs: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Costs of the initiators' threads: guest and hypervisor together, if there are both."""
    added = {name: ns for name, ns in costs.get("hypervisor", {}).items() if name.endswith("_ns")}
    return {name: figure + added.get(name, 0) for name, figure in costs["initiator"].items()}


def hypervisor_ns(costs: Mapping[str, Mapping[str, int]], work: SiteWork | None, ios: int) -> int | None:
    """The hypervisor's part of the CPU time of the initiators' work; None if the table has none. A turn that the window
    cuts is counted as the simulator counts it. Except for rounding, this is exact if turns do not vary."""
    if "hypervisor" not in costs or work is None:
        return None
    figures = costs["hypervisor"]
    deep = 1000 * work.wakes if work.wakes_deep_permille is None else work.wakes_deep_permille
    return (
        (deep * figures["wake_ns"] + (1000 * work.wakes - deep) * figures["wake_short_ns"]) // 1000
        + work.turns * figures["turn_ns"]
        + work.sends * figures["send_ns"]
        + (work.bytes - work.sent_bytes) * figures["kib_ns"] // 1024
        + work.sent_bytes * figures["kib_sent_ns"] // 1024
        + work.segments * figures["segment_ns"]
        + ios * figures["io_ns"]
    )


def _drawn(cost: Cost, standard: list[float], place: int) -> int:
    if cost.interval is None or not 0 < place <= len(standard):
        return cost.ns
    low_ns, high_ns = cost.interval
    deviate = standard[place - 1]
    error_ns = (high_ns - cost.ns if deviate > 0 else cost.ns - low_ns) / _Z
    return max(0, round(cost.ns + deviate * error_ns))


def deviates(seed: int, name: str, count: int) -> list[float]:
    """Normal draws less their mean, of a distribution with a standard deviation of the root of `count`."""
    stream = random.Random(derive_seed(seed, name))  # noqa: S311 - no secret depends on it
    # getrandbits is the one method whose output is promised never to change.
    drawn = [_NORMAL.inv_cdf((stream.getrandbits(_BITS) + 0.5) / (1 << _BITS)) for _ in range(count)]
    if count < 2:
        return [0.0] * count
    mean = statistics.fmean(drawn)
    return [(each - mean) * count**0.5 for each in drawn]
