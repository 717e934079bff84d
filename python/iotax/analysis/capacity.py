"""The number of cores for a rate of I/O, with the uncertainty of the cost per I/O carried into the answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from iotax.analysis.cost import ServiceCost
from iotax.queueing import MMc, Size, SizingTarget, size

UTILISATIONS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)
STORAGE_US = (0.0, 150.0, 500.0)
"""No storage time; about a high-end array's; about a mid-range array's."""
REPORT_RATE_IOPS = 70_000
REPORT_CORES = 8


@dataclass(frozen=True)
class Demand:
    """The requirements on the cores."""

    rate_iops: float
    target: SizingTarget
    storage_us: float = 0.0


@dataclass(frozen=True)
class Capacity:
    """The answer for one arm: at the cost as estimated, and at both ends of its interval."""

    cost: ServiceCost
    size: Size | None
    low: Size | None
    high: Size | None
    reason: str = ""
    """Why there is no size."""

    @property
    def cores(self) -> str:
        """ "8", or "8 (7 to 9)" where the interval of the cost makes a difference."""
        if self.size is None:
            return "none"
        if self.low is None or self.high is None or self.low.servers == self.high.servers:
            return str(self.size.servers)
        return f"{self.size.servers} ({self.low.servers} to {self.high.servers})"


def capacity(cost: ServiceCost, demand: Demand) -> Capacity:
    """Sizes at the estimate and at both ends; a cost without an interval has no ends."""
    sizes: list[Size | None] = []
    reason = ""
    for us in (cost.cost_us.value, cost.cost_us.low, cost.cost_us.high):
        try:
            sizes.append(
                size(demand.rate_iops, max(us, 1e-3) * 1e-6, demand.target, demand.storage_us * 1e-6)
                if us is not None
                else None
            )
        except ValueError as error:
            reason = reason or str(error)
            sizes.append(None)
    return Capacity(cost, *sizes, reason=reason)


def response_us(cost_us: float, cores: int, utilisation: float, storage_us: float = 0.0) -> float:
    """Mean response of an I/O: service and waiting on the cores, and the storage's own time."""
    queue = MMc(utilisation * cores / cost_us, cost_us, cores)
    return queue.response_s + storage_us


def rate_at(cost_us: float, cores: int, utilisation: float) -> float:
    """IOPS that keep the cores this busy."""
    return utilisation * cores / cost_us * 1e6


def per_core_iops(cost: ServiceCost) -> float:
    return 1e6 / cost.cost_us.value


def slowdown(costs: Sequence[ServiceCost], cores: int, utilisation: float, storage_us: float) -> float:
    """Response time with the most CPU per I/O over that with the least, at one utilisation: storage time hides the
    difference."""
    responses = [response_us(each.cost_us.value, cores, utilisation, storage_us) for each in costs]
    return max(responses) / min(responses)
