"""Student's t for single numbers: as scipy.stats, without its overhead. A study of a thousand trials needs it ten
thousand times."""

from scipy.special import stdtr, stdtrit


def reach(df: float, confidence: float = 0.95) -> float:
    """Standard errors to each side of an estimate that make its two-sided interval."""
    return float(stdtrit(df, 0.5 + confidence / 2))


def beyond(t: float, df: float) -> float:
    """The chance of more than `t`."""
    return float(stdtr(df, -t))
