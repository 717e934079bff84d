"""A closed queue: customers think, request service, wait, and think again. Gives the truth of simulated studies."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp


@dataclass(frozen=True)
class ClosedQueue:
    """The steady state of a closed queue."""

    throughput_per_s: float
    response_s: float
    utilisation: float
    """Mean share of busy servers."""


def closed_mmc(customers: int, service_s: float, servers: int, think_s: float = 0.0) -> ClosedQueue:
    """M/M/c//N: `customers` in total, exponential service and think times.

    Solved as a birth-death chain with logarithms. Textbook multi-server MVA loses precision in double arithmetic beyond
    about a hundred customers; sums of logarithms do not.
    """
    if customers < 1 or servers < 1 or service_s <= 0 or think_s < 0:
        raise ValueError("a closed queue needs customers, servers and a service time above 0, and think time ≥ 0")
    if think_s == 0:
        throughput = min(customers, servers) / service_s
        return ClosedQueue(throughput, customers / throughput, min(customers, servers) / servers)
    # p(n) ∝ N!/(N-n)! · (S/Z)^n / Π min(k, c): n of N customers are at the servers.
    n = np.arange(customers + 1)
    busy = np.minimum(n, servers)
    log_servers = np.concatenate(([0.0], np.cumsum(np.log(busy[1:]))))
    log_weight = gammaln(customers + 1) - gammaln(customers - n + 1) + n * math.log(service_s / think_s) - log_servers
    p = np.exp(log_weight - logsumexp(log_weight))
    throughput = float(p @ busy) / service_s
    return ClosedQueue(throughput, float(p @ n) / throughput, float(p @ busy) / servers)
