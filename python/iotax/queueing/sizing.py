"""How many servers (CPU cores) a rate of I/O needs.

A utilisation alone does not size a system: six cores may carry a load at 94 % and answer in four service times. So a
size meets a utilisation cap **and** a response-time target, in the M/M/c model.
"""

import math
from dataclasses import dataclass
from typing import Literal

from iotax.queueing.open import MMc

# A single queue is not a model of a larger machine.
SERVERS_MAX = 4096


@dataclass(frozen=True)
class SizingTarget:
    utilisation_max: float = 0.8
    response_max_s: float | None = None
    """Mean response, the storage's own time included."""
    response_max_ratio: float | None = None
    """Mean response of the cores as a multiple of their service time."""

    def __post_init__(self) -> None:
        if not 0 < self.utilisation_max <= 1:
            raise ValueError(f"a utilisation cap lies in (0, 1], not at {self.utilisation_max}")
        if self.response_max_ratio is not None and self.response_max_ratio <= 1:
            raise ValueError("no queue answers within its own service time: the response target must be above 1 x")


@dataclass(frozen=True)
class Size:
    queue: MMc
    bound_by: Literal["utilisation", "response"]
    storage_s: float = 0.0

    @property
    def servers(self) -> int:
        return self.queue.servers

    @property
    def response_s(self) -> float:
        return self.queue.response_s + self.storage_s


def size(rate_per_s: float, service_s: float, target: SizingTarget, storage_s: float = 0.0) -> Size:
    """The fewest servers that meet the target. `service_s`: CPU time per I/O. `storage_s`: the storage's own time,
    added to every response."""
    if rate_per_s <= 0 or service_s <= 0 or storage_s < 0:
        raise ValueError("sizing needs a rate and a service time above 0")
    if target.response_max_s is not None and target.response_max_s <= service_s + storage_s:
        raise ValueError(
            f"no number of cores answers within {target.response_max_s * 1e6:.0f} µs: "
            f"service and storage alone take {(service_s + storage_s) * 1e6:.0f} µs; allow more than that"
        )
    enough_for_cap = max(1, math.ceil(rate_per_s * service_s / target.utilisation_max - 1e-9))
    for servers in range(enough_for_cap, SERVERS_MAX + 1):
        queue = MMc(rate_per_s, service_s, servers)
        if _answers_in_time(queue, target, storage_s):
            return Size(queue, "utilisation" if servers == enough_for_cap else "response", storage_s)
    raise ValueError(f"more than {SERVERS_MAX} cores would be needed")


def _answers_in_time(queue: MMc, target: SizingTarget, storage_s: float) -> bool:
    if queue.utilisation >= 1:
        return False
    ratio, limit_s = target.response_max_ratio, target.response_max_s
    if ratio is not None and queue.response_s > ratio * queue.service_s:
        return False
    return limit_s is None or queue.response_s + storage_s <= limit_s
