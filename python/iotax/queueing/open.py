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

    @property
    def customers(self) -> float:
        """Mean number in the system, by Little's law."""
        return self.arrivals_per_s * self.response_s if self.utilisation < 1 else math.inf

    def response_exceeds(self, time_s: float) -> float:
        """P(response > time). Wait and service are independent; their sum is convolved in closed form."""
        if self.utilisation >= 1:
            return 1.0
        if time_s <= 0:
            return 1.0
        mu = 1 / self.service_s
        theta = self.servers * mu - self.arrivals_per_s
        wait = self.wait_probability
        served = math.exp(-mu * time_s)
        if math.isclose(theta, mu, rel_tol=1e-7):
            # The general form is 0/0 here; this is its limit.
            return (1 - wait) * served + wait * (1 + mu * time_s) * served
        waited = (theta * served - mu * math.exp(-theta * time_s)) / (theta - mu)
        return (1 - wait) * served + wait * waited

    def response_percentile_s(self, percent: float) -> float:
        """The response time that `percent` of the work does not exceed."""
        if not 0 < percent < 100:
            raise ValueError(f"a percentile lies between 0 and 100, not at {percent}")
        if self.utilisation >= 1:
            return math.inf
        tail = 1 - percent / 100
        upper_s = self.response_s
        while self.response_exceeds(upper_s) > tail:
            upper_s *= 2
        lower_s = 0.0
        # Halved until the two are neighbours, or nearly so: 60 times at most.
        while (middle_s := (lower_s + upper_s) / 2) - lower_s > 1e-13 * upper_s:
            if self.response_exceeds(middle_s) > tail:
                lower_s = middle_s
            else:
                upper_s = middle_s
        return middle_s


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
