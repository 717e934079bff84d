"""What a lab can tell apart: how far runs of one and the same treatment scatter, and what that costs in replicates."""

import math
from dataclasses import dataclass

from iotax.analysis.compare import Comparison
from iotax.analysis.responses import Response
from iotax.analysis.summary import Summary

DIFFERENCES_PERCENT = (1.0, 2.0, 5.0, 10.0, 20.0)
REPLICATES_MAX = 10_000


@dataclass(frozen=True)
class Noise:
    """Of one response in an A/A run."""

    response: Response
    cv: float
    """Scatter of runs about their treatment and block, as a share."""
    comparison: Comparison
    """A against B, which are the same: its interval should hold 1."""


def noise_floor(summary: Summary) -> list[Noise]:
    """For each response of an A/A study whose runs leave a scatter to estimate."""
    found = []
    for overall in summary.overalls:
        model = summary.models[overall.response.key].model
        df = model.layout.residual_df
        if df > 0:
            sd = math.sqrt(model.sse / df)
            found.append(Noise(overall.response, math.sqrt(math.expm1(sd * sd)), overall.comparison))
    return found
