"""What a ratio to the baseline means: better, worse, equivalent, or not known."""

import math
from dataclasses import dataclass
from enum import StrEnum

from iotax.analysis import student


class Verdict(StrEnum):
    """`INCONCLUSIVE` is an answer: these runs cannot tell. It never means "the same"."""

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
    """What carries the two protocols differs in kind: a real adapter, software in its place, a loop."""
    RATES = "rates"
    """A utilisation compares what I/Os cost at equal rates only, and the rates differ by more than the margin."""
    ENCRYPTED = "encrypted"
    """Another encryption, where time is a count of instructions: it takes few that take long."""
    COUNTS = "counts"
    """Of a percentile: too few I/Os of a run lie beyond it."""
    BOUNDS = "bounds"
    """Of both sides some values are upper bounds only: gaps of several threads or clients that none had alone."""
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
    """What the arm has, where the cause lies in a difference: its carrier."""
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
    """What an interval of a log ratio says, and nothing else: the verdict and the interval printed beside it agree.

    Equivalent where all of it lies within the margin (two one-sided tests, each at half the interval's level:
    Schuirmann 1987). That comes first: a difference that is sure but within the margin does not matter, by the study's
    word. Better or worse where it leaves out "no difference".
    """
    low, high = interval
    if -margin < low and high < margin:
        return Verdict.EQUIVALENT
    if low > 0 or high < 0:
        return Verdict.BETTER if (low > 0) == more_is_better else Verdict.WORSE
    return Verdict.INCONCLUSIVE
