"""Student's t for single numbers: as scipy.stats, without its overhead. A study of a thousand trials needs it ten
thousand times. Fieller's interval of a ratio rests on it."""

import math

from scipy.special import stdtr, stdtrit


def reach(df: float, confidence: float = 0.95) -> float:
    """Standard errors to each side of an estimate that make its two-sided interval."""
    return float(stdtrit(df, 0.5 + confidence / 2))


def beyond(t: float, df: float) -> float:
    """The chance of more than `t`."""
    return float(stdtr(df, -t))


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
    t2 = reach(df, confidence) ** 2
    a = denominator**2 - t2 * variances[1]
    if a <= 0:
        return None
    b = numerator * denominator - t2 * covariance
    c = numerator**2 - t2 * variances[0]
    root = math.sqrt(max(0.0, b * b - a * c))
    return (b - root) / a, (b + root) / a
