"""Queueing models and sizing. Pure: numbers in, numbers out.

Times are in seconds (`_s`), rates per second (`_per_s`). Each model's docstring names its assumptions.

- `MMc`: open, Poisson arrivals, exponential service; means.
- `size`: servers (CPU cores) for a rate, under a utilisation cap and a response-time target.
"""

from iotax.queueing.open import MMc
from iotax.queueing.sizing import Size, SizingTarget, size

__all__ = [
    "MMc",
    "Size",
    "SizingTarget",
    "size",
]
