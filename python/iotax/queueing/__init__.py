"""Queueing models and sizing. Pure: numbers in, numbers out.

Times are in seconds (`_s`), rates per second (`_per_s`). Each model's docstring names its assumptions.

- `erlang_b`, `erlang_c`: blocking and waiting probability of c servers.
- `MMc`: open, Poisson arrivals, exponential service; means and percentiles.
- `size`: servers (CPU cores) for a rate, under a utilisation cap and a response-time target.
"""

from iotax.queueing.open import MMc, erlang_b, erlang_c
from iotax.queueing.sizing import Size, SizingTarget, size, size_range

__all__ = [
    "MMc",
    "Size",
    "SizingTarget",
    "erlang_b",
    "erlang_c",
    "size",
    "size_range",
]
