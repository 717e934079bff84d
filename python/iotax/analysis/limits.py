"""The limit of each treatment: why it does not do twice as much, with the evidence."""

from collections.abc import Sequence
from dataclasses import dataclass
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
