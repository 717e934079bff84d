"""How precise a run is: the half-widths of its intervals, response by response, and whether the study may end. That is
asked after each complete block, by the rule chosen before any data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from iotax.analysis.compare import Comparison, LayoutCache, Model, compare, compare_overall
from iotax.analysis.data import Grid, StudyData
from iotax.analysis.estimate import Estimate
from iotax.analysis.responses import RESPONSES, Response
from iotax.analysis.summary import Summary
from iotax.analysis.withheld import chosen
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


def half_width(data: StudyData) -> float:
    """Half of the widest interval of a ratio to the baseline, as it is printed (`StudyData.confidence`), as a share;
    infinite where one cannot be had. An imposed rate is always precise and says nothing: CPU per I/O stands in for
    it."""
    stop = data.study.design.stop
    words = [stop.response] if stop and stop.response else data.study.responses
    response = chosen(words, data.runs)[:1]
    found = [
        each.ratio
        for asked in response
        for each in compare(Model(asked, Grid(data.study), data, LayoutCache()), data.study.margin)
        if each.condition is not None
    ]
    widths = [
        math.inf if ratio.low is None or ratio.high is None else math.log(ratio.high / ratio.low) / 2 for ratio in found
    ]
    return math.expm1(max(widths, default=math.inf))


def precise_enough(data: StudyData, blocks_done: int) -> bool:
    """The decision of the study's `stop` on its first blocks, all of them complete."""
    stop = data.study.design.stop
    if stop is None or blocks_done < stop.at_least:
        return False
    return half_width(data) <= stop.half_width / 100
