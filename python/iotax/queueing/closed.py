"""Closed queues: a set number of customers that think, ask, wait and think again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp


@dataclass(frozen=True)
class ClosedQueue:
    """What a closed queue settles to."""

    throughput_per_s: float
    response_s: float
    utilisation: float
    """Mean share of the servers that are busy."""


def closed_mmc(customers: int, service_s: float, servers: int, think_s: float = 0.0) -> ClosedQueue:
    """M/M/c//N: `customers` in all, exponential service and thinking.

    Solved as a birth-death chain in logarithms: textbook multi-server MVA cancels in double precision beyond about
    a hundred customers, sums of logarithms do not.
    """
    if customers < 1 or servers < 1 or service_s <= 0 or think_s < 0:
        raise ValueError("a closed queue needs customers, servers and a service time above 0, and think time ≥ 0")
    if think_s == 0:
        throughput = min(customers, servers) / service_s
        return ClosedQueue(throughput, customers / throughput, min(customers, servers) / servers)
    # p(n) ∝ N!/(N-n)! · (S/Z)^n / Π min(k, c): n of N customers at the servers.
    n = np.arange(customers + 1)
    busy = np.minimum(n, servers)
    log_servers = np.concatenate(([0.0], np.cumsum(np.log(busy[1:]))))
    log_weight = gammaln(customers + 1) - gammaln(customers - n + 1) + n * math.log(service_s / think_s) - log_servers
    p = np.exp(log_weight - logsumexp(log_weight))
    throughput = float(p @ busy) / service_s
    return ClosedQueue(throughput, float(p @ n) / throughput, float(p @ busy) / servers)


def knee_customers(service_s: float, servers: int, think_s: float) -> float:
    """N*: where the light-load and the saturated asymptote of throughput meet."""
    return servers * (service_s + think_s) / service_s


@dataclass(frozen=True)
class Mva:
    throughput_per_s: float
    response_s: tuple[float, ...]
    """Residence per visit at each station."""
    queue: tuple[float, ...]
    """Mean customers at each station."""


def mva(customers: int, service_s: Sequence[float], visits: Sequence[float], think_s: float = 0.0) -> Mva:
    """Exact mean value analysis of single-server stations in a chain (product form: exponential or processor sharing).

    For a station of several servers use `closed_mmc`.
    """
    if customers < 1 or len(service_s) != len(visits) or not service_s:
        raise ValueError("mean value analysis needs at least one customer and a visit count for each station")
    service = np.asarray(service_s, dtype=float)
    visit = np.asarray(visits, dtype=float)
    queue = np.zeros_like(service)
    throughput, response = 0.0, service
    for n in range(1, customers + 1):
        response = service * (1 + queue)
        throughput = n / (think_s + float(visit @ response))
        queue = throughput * visit * response
    return Mva(throughput, tuple(map(float, response)), tuple(map(float, queue)))
