"""The limit of each treatment: why it does not do twice as much, with the evidence.

A simulation knows all its resources. One with utilisation U at rate X can serve at most X / U (the utilisation law,
Denning and Buzen, ACM Computing Surveys 10:3, 1978). So if the busiest resource no longer limits, the rate can rise to
X / U of the second.

Bounded queues and credits do no work: they fill up behind a slow resource. They count as the limit only if no working
resource is saturated, and no law says how far the rate can rise until they limit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from iotax.analysis.responses import Run
from iotax.analysis.validity import kept_up
from iotax.records import CpuTime

SATURATED = 0.95
"""Share of a part's processors above which they are saturated."""

Limiter: TypeAlias = Literal["rate", "initiator", "target", "machine", "outstanding", "unknown"]

TITLES: dict[Limiter, str] = {
    "rate": "the rate that was offered",
    "initiator": "the initiator’s processor",
    "target": "the target’s processor",
    "machine": "the machine’s processors",
    "outstanding": "the outstanding I/Os",
    "unknown": "not known",
}


@dataclass(frozen=True)
class Limit:
    limiter: Limiter
    evidence: str


def limit_of(runs: Sequence[Run]) -> Limit:
    """The limit of a treatment from means over its runs. A saturated processor comes before everything else."""
    initiator = _mean([_share(run.result.cpu.initiator) for run in runs])
    target = _mean([_share(run.result.cpu.target) for run in runs])
    machine = _mean([_share(each) for run in runs for each in _shared_by_both(run)])
    rates = [run.result.open for run in runs if run.result.open is not None]
    for limiter, busy, whose in (
        ("initiator", initiator, "the initiator kept its processors"),
        ("target", target, "the target kept its processors"),
        ("machine", machine, "the machine’s processors were"),
    ):
        if busy is not None and busy >= SATURATED:
            return Limit(limiter, f"{whose} {100 * min(busy, 1.0):.0f} % busy")
    if rates and all(map(kept_up, rates)):
        return Limit("rate", f"{100 * min(each.achieved for each in rates):.1f} % of it or more was done")
    if initiator is None:
        return Limit("unknown", "not known how much of its processors the initiator used")
    idle = f"initiator {100 * initiator:.0f} %"
    idle += f", target {100 * target:.0f} %" if target is not None else ""
    if rates:
        return Limit("unknown", f"the rate was not held, and no processor was busy throughout ({idle})")
    in_flight = [run.total_outstanding for run in runs]
    if None in in_flight:
        return Limit("unknown", f"not known how many I/Os were in flight; processors had time ({idle})")
    shared = sum(each or 0 for each in in_flight) / len(runs)
    return Limit("outstanding", f"{shared:g} in flight, each waits for its answer; processors had time ({idle})")


def _share(part: CpuTime | None) -> float | None:
    return None if part is None else part.busy_share


def _shared_by_both(run: Run) -> list[CpuTime]:
    """The processors of both ends, and everything else."""
    return [each for each in run.result.cpu if each.layer == "machine" or each.role == "both"]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Bottleneck:
    """The limiting resource, a name in `utilisation`; None if none is saturated: then the load itself is the limit."""

    rate_iops: float
    utilisation: Mapping[str, float]
    limit: str | None
    next: str | None
    rise_max: float | None
    """The share by which the rate can rise if `limit` no longer limits; None if no other resource was busy."""


def bottleneck(rate_iops: float, utilisation: Mapping[str, float], held: Mapping[str, float] = _NONE) -> Bottleneck:
    """`utilisation`: resource → busy share. `held`: the same for queues and credits. Among resources that are equal to
    the percent, the first comes before those that wait because of it."""
    ordered = sorted(utilisation, key=lambda name: -utilisation[name])
    limit = ordered[0] if ordered and utilisation[ordered[0]] >= SATURATED else None
    following = ordered[1 if limit else 0 :]
    if limit is None:
        fullest = max(held, key=lambda name: round(held[name], 2), default=None)
        limit = fullest if fullest is not None and held[fullest] >= SATURATED else None
    together = {**utilisation, **held}
    then = following[0] if following and utilisation[following[0]] > 0 else None
    if then is None:
        return Bottleneck(rate_iops, together, limit, None, None)
    return Bottleneck(rate_iops, together, limit, then, max(0.0, 1 / utilisation[then] - 1))
