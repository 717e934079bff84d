"""Simulated studies for the CPU cost model."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from iotax.analysis.cpu_model import LoadPoint

PRICES = {"nfs3": 81.0, "fcp": 41.0}


def study3(
    rng: np.random.Generator,
    *,
    replicates: int = 3,
    prices: Mapping[str, float] = PRICES,
    background: float = 0.03,
    cv: float = 0.03,
    rates: tuple[int, ...] = (1000, 4000),
    block_us: float = 6.0,
    nfs_random_us: float = 0.0,
    bend: float = 0.0,
    block_cv: float = 0.02,
) -> list[LoadPoint]:
    """Study 3's design: protocol × block × read × random × rate, in blocks. Effects are half differences in µs."""
    loads, order = [], 0
    for block in range(1, replicates + 1):
        drift = rng.lognormal(0, block_cv)
        loads.append(LoadPoint("", {}, 0.0, background * rng.normal(1, cv), block=block))
        for arm, size, read, random, rate in itertools.product(
            prices, ("4KiB", "8KiB"), ("0%", "100%"), ("0%", "100%"), rates
        ):
            price = prices[arm] + (block_us if size == "8KiB" else -block_us)
            if arm == "nfs3":
                price += nfs_random_us if random == "100%" else -nfs_random_us
            price *= 1 + bend * rate / max(rates)
            busy = background + rate * 1e-6 * price * drift * rng.normal(1, cv)
            order += 1
            levels = {"block_size": size, "read": read, "random": random}
            loads.append(LoadPoint(arm, levels, rate, busy, rate, block, order))
    return loads
