"""The meaning of a ratio to the baseline: better, worse, equivalent, or not known."""

import math
from dataclasses import dataclass
from enum import StrEnum

from iotax.analysis import student


class Verdict(StrEnum):
    """`INCONCLUSIVE` is an answer: these runs cannot decide. It never means "the same"."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


class Cause(StrEnum):
    """Why an arm gets no verdict against the baseline."""

    RUNS = "runs"
    """Too few of them for an interval."""
    IMPOSED = "imposed"
    """The study sets what the response would measure: the rate of an open loop."""
    CARRIER = "carrier"
    """The carriers of the two protocols differ in kind: a real adapter, software in its place, a loop."""
    RATES = "rates"
    """Utilisation compares costs at equal rates only, and the rates differ by more than the margin."""
    ENCRYPTED = "encrypted"
    """Another encryption, where time is a count of instructions: it takes few that take long."""
    COUNTS = "counts"
    """Percentile: too few I/Os of a run lie beyond it."""
    BOUNDS = "bounds"
    """Some values of both sides are only upper bounds: gaps of single threads or clients."""
    LOOKED = "looked"
    """Replicates were added after results were there: adding them until something differs finds differences
    that do not exist."""
    ENDS = "ends"
    """With all of a transport in software and with none of it the verdicts differ, and a real adapter lies between."""


@dataclass(frozen=True)
class Withheld:
    """No verdict, and why; `iotax.wording.because` puts it into words."""

    cause: Cause
    arm: str = ""
    """The arm's carrier, if the cause is a difference in carriers."""
    baseline: str = ""


def two_sided_p(estimate: float, standard_error: float, df: float) -> float:
    """P-value of "no difference"."""
    if standard_error <= 0:
        return 0.0 if estimate else 1.0
    return 2 * student.beyond(abs(estimate) / standard_error, df)


def log_margin(margin_percent: float) -> float:
    """Half-width of the equivalence zone on the log scale: 5 % is [1/1.05, 1.05]."""
    return math.log1p(margin_percent / 100)


def judge(interval: tuple[float, float], margin: float, more_is_better: bool) -> Verdict:
    """The verdict of an interval of a log ratio, from nothing else: so the verdict and the printed interval agree.

    Equivalent if all of it lies within the margin (two one-sided tests, each at half the interval's level: Schuirmann
    1987). This comes first: a certain difference within the margin does not matter, by the study's definition. Better
    or worse if it excludes "no difference".
    """
    low, high = interval
    if -margin < low and high < margin:
        return Verdict.EQUIVALENT
    if low > 0 or high < 0:
        return Verdict.BETTER if (low > 0) == more_is_better else Verdict.WORSE
    return Verdict.INCONCLUSIVE
