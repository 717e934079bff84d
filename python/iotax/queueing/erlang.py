"""Erlang's loss and delay formulas, by the recurrence that neither overflows nor cancels."""

import math


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
