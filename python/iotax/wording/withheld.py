"""Why there is no verdict: one sentence for each `analysis.verdict.Cause`."""

from iotax.analysis.histogram import TAIL_MIN
from iotax.analysis.verdict import Cause, Withheld


def because(withheld: Withheld, arm: str, base: str) -> str:
    """The reason, to end a sentence with; `arm` and `base` are written names."""
    match withheld.cause:
        case Cause.RUNS:
            return "too few runs for an interval"
        case Cause.IMPOSED:
            return "the study sets the rate, so throughput is an input and not a result"
        case Cause.CARRIER:
            return f"the carriers differ ({arm}: {withheld.arm}; {base}: {withheld.baseline})"
        case Cause.RATES:
            return "the rates differ, and utilisation compares costs only at equal rates"
        case Cause.ENCRYPTED:
            return "an instruction that encrypts counts as one, however long it takes, so no times are compared"
        case Cause.COUNTS:
            return f"fewer than {TAIL_MIN} I/Os of a run lie beyond this percentile"
        case Cause.BOUNDS:
            return "on both sides gaps are so short that only upper bounds are known"
        case Cause.LOOKED:
            return "replicates were added after results were known"
        case Cause.ENDS:
            return "it depends on how much of the transport the adapter handles"
