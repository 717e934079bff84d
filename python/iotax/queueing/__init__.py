"""Queueing models and sizing. Pure: numbers in, numbers out.

Times are in seconds (`_s`), rates per second (`_per_s`). Each model's docstring names its assumptions.

- `erlang_b`, `erlang_c`: blocking and waiting probability of c servers.
- `MMc`: open, Poisson arrivals, exponential service; means and percentiles. `mgc_wait_s`: other variabilities,
  approximately.
- `closed_mmc`: a fixed population with think time, the shape of a benchmark with set outstanding I/O.
  `mva`: a chain of stations.
- `size`: servers (CPU cores) for a rate, under a utilisation cap and a response-time target.
"""

from iotax.queueing.closed import ClosedQueue, Mva, closed_mmc, knee_customers, mva
from iotax.queueing.erlang import erlang_b, erlang_c
from iotax.queueing.open import MMc, mgc_wait_s
from iotax.queueing.sizing import CurvePoint, Size, SizingTarget, response_curve, size, size_range

__all__ = [
    "ClosedQueue",
    "CurvePoint",
    "MMc",
    "Mva",
    "Size",
    "SizingTarget",
    "closed_mmc",
    "erlang_b",
    "erlang_c",
    "knee_customers",
    "mgc_wait_s",
    "mva",
    "response_curve",
    "size",
    "size_range",
]
