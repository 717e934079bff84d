"""The noise floor: how much runs of the same treatment vary, and which differences that hides.

Every study with replicates has one, from its own residuals; an A/A study (`iotax aa`) has nothing else. A difference
below what the replicates can detect is not absent but undetected.
"""

import math
from dataclasses import dataclass

from iotax.analysis.compare import Model
from iotax.analysis.estimate import Estimate
from iotax.analysis.responses import Response
from iotax.analysis.validity import Check, Severity
from iotax.design.power import detectable_ratio
from iotax.units import show_share

_SHOWN_MIN = 0.001


@dataclass(frozen=True)
class Noise:
    """The noise floor of one response."""

    response: Response
    cv: float
    """Scatter of runs about their treatment and block, as a share; runs of local, where there are any, left out."""
    replicates: int
    """Replicates of the treatment with the fewest."""
    detectable_ratio: float | None
    """The smallest ratio of two treatments that so many replicates show with 90 % power."""


def noise_floor(model: Model) -> Noise | None:
    """None if the runs do not vary."""
    kept = [i for i, cell in enumerate(model.cells) if not model.grid.is_local(cell)] or list(range(len(model.cells)))
    variance, df = model.model.scatter(kept)
    if df < 1 or variance <= 0:
        return None
    cv = math.sqrt(math.expm1(variance))
    cells = {model.cells[i] for i in kept}
    replicates = min(model.model.layout.count(cell) for cell in cells)
    return Noise(model.response, cv, replicates, detectable_ratio(cv, replicates, df))


def noise_check(known: Estimate | None, margin_percent: float) -> Check:
    """Is a treatment known better than the margin by which treatments are judged?"""
    if known is None or known.low is None or known.high is None:
        return Check("noise", Severity.UNKNOWN, "too few runs to say")
    if known.alike:
        return Check("noise", Severity.GOOD, "its runs came out alike")
    half_width = math.sqrt(known.high / known.low) - 1
    known_to = show_share(max(half_width, _SHOWN_MIN))
    reach = f"±{known_to}" if half_width >= _SHOWN_MIN else f"better than ±{known_to}"
    text = f"its mean is known to {reach}, and the margin is {margin_percent:g} %"
    return Check("noise", Severity.NOTE if 100 * half_width > margin_percent else Severity.GOOD, text)
