"""What a search found, in sentences."""

from collections.abc import Sequence

from iotax.analysis.carriers import between
from iotax.analysis.search import Winner, against_baseline, holds, winners
from iotax.study import Study
from iotax.study.model import Search
from iotax.trial import Attempt
from iotax.units import show_rate, show_time
from iotax.wording.names import title
from iotax.wording.withheld import because


def sentences(study: Study, attempts: Sequence[Attempt]) -> list[str]:
    """A line for each condition."""
    search = study.search
    if search is None:
        return []
    found = winners(study, attempts)
    return [_sentence(study, search, winner, found) for winner in found]


def _no_verdict(winner: Winner, other: Winner) -> str:
    """The reason, where what carries the two differs and is emulated; empty where they can be compared."""
    sides = [next(iter(each.confirmed.values())).facts.carrier for each in (winner, other)]
    withheld = between(*sides)
    names = title(winner.condition), title(other.condition)
    return f"without a verdict, as {because(withheld, *names)}: " if withheld else ""


def objective(search: Search) -> str:
    return f"p{search.percentile:g} within {show_time(search.latency_max)}"


def _sentence(study: Study, search: Search, winner: Winner, found: Sequence[Winner]) -> str:
    name = title(winner.condition)
    if winner.treatment is None:
        beyond = f", not even {show_rate(search.rate_min)} IOPS," if search.rate_max else ""
        return f"{name}: nothing{beyond} holds {objective(search)}.".removeprefix(": ")
    what = f"{winner.load} is best" if winner.load else f"the knee is at {show_rate(winner.rate_iops)} IOPS"
    held = sum(holds(search, result) for result in winner.confirmed.values())
    afresh = "; not measured again yet"
    if winner.confirmed:
        fresh = winner.fresh()
        afresh = f"; on {len(winner.confirmed)} fresh runs {show_rate(fresh.value)} IOPS"
        if fresh.low is not None and fresh.high is not None:
            afresh += f" [{show_rate(fresh.low)}, {show_rate(fresh.high)}]"
        afresh += f", {objective(search)} in {held} of {len(winner.confirmed)}"
    ties = f" Not significantly fewer: {', '.join(winner.ties)}." if winner.ties else ""
    against = ""
    if compared := against_baseline(study, winner, found):
        other, ratio = compared
        reach = f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
        against = f" That is {_no_verdict(winner, other)}{reach} of {title(other.condition)}."
    return f"{name}: {what}{afresh}.{against}{ties}".removeprefix(": ")
