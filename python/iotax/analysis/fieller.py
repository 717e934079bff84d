"""Fieller's interval: a ratio of two estimates that may correlate."""

import math

from iotax.analysis import student


def fieller(
    numerator: float,
    denominator: float,
    variances: tuple[float, float],
    covariance: float,
    df: float,
    confidence: float = 0.95,
) -> tuple[float, float] | None:
    """The values of numerator/denominator that the data do not contradict. None if the set is unbounded: then the
    denominator is not significantly different from zero, and no finite interval is right."""
    t2 = student.reach(df, confidence) ** 2
    a = denominator**2 - t2 * variances[1]
    if a <= 0:
        return None
    b = numerator * denominator - t2 * covariance
    c = numerator**2 - t2 * variances[0]
    root = math.sqrt(max(0.0, b * b - a * c))
    return (b - root) / a, (b + root) / a
