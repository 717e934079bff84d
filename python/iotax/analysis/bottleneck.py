"""What limits a simulated load, and what would limit it next: by how busy each resource was.

A resource whose utilisation is U at the rate X serves X / U at most (the utilisation law, Denning and Buzen, ACM
Computing Surveys 10:3, 1978). So where the busiest no longer limits, the rate rises to X / U of the second at most.

Queues with an end and credits do no work: they fill up behind whatever is slow. They limit only where nothing that
works is saturated, and no law says how the rate rises until they do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from iotax.analysis.limits import SATURATED

_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Bottleneck:
    """What limits, as a name of `utilisation`; None where none of them is saturated: the load itself asks no more."""

    rate_iops: float
    utilisation: Mapping[str, float]
    limit: str | None
    next: str | None
    rise_max: float | None
    """By which share the rate rises at most where `limit` no longer limits; None where no other was busy at all."""


def bottleneck(rate_iops: float, utilisation: Mapping[str, float], held: Mapping[str, float] = _NONE) -> Bottleneck:
    """`utilisation`: resource → busy share; `held`: the same of what does no work, of equals to the percent the first \
before those that wait because of it."""
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
