"""Open queues: work arrives whether or not the servers keep up. Erlang's loss and delay formulas use the recurrence
that neither overflows nor cancels."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class MMc:
    """M/M/c: Poisson arrivals, exponential service, `servers` alike, one queue, first come first served."""

    arrivals_per_s: float
    service_s: float
    servers: int

    def __post_init__(self) -> None:
        if self.arrivals_per_s < 0 or self.service_s <= 0 or self.servers < 1:
            raise ValueError(f"not a queue: {self}")

    @property
    def offered_load(self) -> float:
        """Erlangs: the mean number of servers that the work keeps busy."""
        return self.arrivals_per_s * self.service_s

    @property
    def utilisation(self) -> float:
        return self.offered_load / self.servers

    @property
    def wait_probability(self) -> float:
        return erlang_c(self.servers, self.offered_load)

    @property
    def wait_s(self) -> float:
        """Mean time in the queue; infinite from full utilisation on."""
        if self.utilisation >= 1:
            return math.inf
        return self.wait_probability * self.service_s / (self.servers * (1 - self.utilisation))

    @property
    def response_s(self) -> float:
        return self.service_s + self.wait_s


def erlang_b(servers: int, offered_load: float) -> float:
    """The probability that an arrival finds all `servers` busy and is lost (M/M/c/c).

    `offered_load` is arrival rate × service time, in erlangs.
    B(0) = 1, B(k) = a·B(k-1) / (k + a·B(k-1)).
    """
    _check(servers, offered_load)
    blocking = 1.0
    for k in range(1, servers + 1):
        blocking = offered_load * blocking / (k + offered_load * blocking)
    return blocking


def erlang_c(servers: int, offered_load: float) -> float:
    """The probability that an arrival has to wait (M/M/c); 1 if the load exceeds the servers' capacity."""
    _check(servers, offered_load)
    utilisation = offered_load / servers
    if utilisation >= 1:
        return 1.0
    blocking = erlang_b(servers, offered_load)
    return blocking / (1 - utilisation * (1 - blocking))


def _check(servers: int, offered_load: float) -> None:
    if servers < 1:
        raise ValueError(f"a queue needs at least 1 server, not {servers}")
    if not math.isfinite(offered_load) or offered_load < 0:
        raise ValueError(f"offered load must be a number of erlangs ≥ 0, not {offered_load}")
