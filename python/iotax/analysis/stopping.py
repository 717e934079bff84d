"""Is a study precise enough to end? Asked after each complete block, by the rule chosen before any data."""

import math

from iotax.analysis.compare import LayoutCache, Model, compare
from iotax.analysis.data import Grid, StudyData
from iotax.analysis.withheld import chosen


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
