"""The resource that limits a simulated load, and the one that would limit it next, by utilisation. A resource with
utilisation U at rate X can serve at most X / U (the utilisation law, Denning and Buzen, ACM Computing Surveys 10:3,
1978). So if the busiest resource no longer limits, the rate can rise to X / U of the second.

Bounded queues and credits do no work: they fill up behind a slow resource. They count as the limit only if no working
resource is saturated, and no law says how far the rate can rise until they limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from iotax.analysis.limits import SATURATED

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
