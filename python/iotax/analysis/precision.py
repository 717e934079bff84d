"""How precise a run is: the half-widths of its intervals, response by response."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from iotax.analysis.compare import Comparison, compare_overall
from iotax.analysis.estimate import Estimate
from iotax.analysis.responses import RESPONSES, Response
from iotax.analysis.summary import Summary
from iotax.design.power import block_reach, seen_errors


@dataclass(frozen=True)
class Precision:
    """Precision of one response: half-widths of the 95 % intervals of its ratios to the baseline, in percent, without
    local."""

    response: Response
    overall_percent: float | None
    """The widest over all loads of any arm; None if no arm has one."""
    cell_median_percent: float | None
    """Over the arms under each load."""
    cell_worst_percent: float | None


def half_width_percent(ratio: Estimate) -> float | None:
    """Half of a ratio's interval, by ratio: 5 for [1/1.05, 1.05]. None without an interval."""
    if ratio.low is None or ratio.high is None or ratio.low <= 0:
        return None
    return 100 * (math.sqrt(ratio.high / ratio.low) - 1)


def detectable_percent(half_width: float, sessions: int) -> float | None:
    """The smallest difference that is seen with 90 % power where intervals have this half-width (percent), over so
    many sessions or replicates; None for fewer than two."""
    if sessions < 2:
        return None
    return half_width * seen_errors(sessions - 1) / block_reach(sessions)


def precisions(summary: Summary) -> list[Precision]:
    """The precision of every response that was measured and is compared."""
    found = []
    for response in RESPONSES:
        cells = [
            c
            for c in summary.comparisons
            if c.response is response and c.condition is not None and (c.verdict or c.withheld)
        ]
        if not cells:
            continue
        whole = compare_overall(summary.models[response.key], cells, summary.data.study.margin)
        known = _known(cells)
        found.append(
            Precision(
                response,
                max(_known([each.comparison for each in whole]), default=None),
                median(known) if known else None,
                max(known, default=None),
            )
        )
    return found


def _known(comparisons: Sequence[Comparison]) -> list[float]:
    widths = (half_width_percent(each.ratio) for each in comparisons)
    return [width for width in widths if width is not None]
