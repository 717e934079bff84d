"""Sentences about the results of a search."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from iotax.analysis.estimate import Estimate
from iotax.analysis.knee import Knee, holds
from iotax.analysis.search import Winner, against_baseline, winners
from iotax.analysis.withheld import unlike_carriers
from iotax.study import Study
from iotax.study.model import Search
from iotax.trial import Attempt
from iotax.units import counted, show_rate, show_time
from iotax.wording.conditions import because
from iotax.wording.figures import title
from iotax.wording.verdicts import caution

_UNITS = re.compile(r" (workers?|outstanding)\b")


@dataclass(frozen=True)
class Row:
    """The result of a search under one condition, for a table."""

    condition: str
    load: str
    rate: str
    interval: str
    ratio: str
    """The ratio to the baseline's result; empty if there is none."""
    objective: str


def rows(study: Study, attempts: Sequence[Attempt]) -> list[Row]:
    """One result for each condition; empty if the study is not a search."""
    if study.search is None:
        return []
    found = winners(study, attempts)
    return [_row(study, study.search, winner, found) for winner in found]


def _row(study: Study, search: Search, winner: Winner, found: Sequence[Winner]) -> Row:
    known = winner.known() if winner.treatment is not None else None
    compared = against_baseline(study, winner, found) if known is not None else None
    withheld = compared is not None and unlike_carriers(winner.carrier, compared[0].carrier) is not None
    return Row(
        title(winner.condition),
        "" if winner.knee is not None else _UNITS.sub("", winner.load),
        "none" if known is None else show_rate(known.value),
        ""
        if known is None or known.low is None or known.high is None
        else f"[{show_rate(known.low)}, {show_rate(known.high)}]",
        "" if compared is None or withheld else f"{compared[1].value:.2f}×",
        objective(search),
    )


def sentences(study: Study, attempts: Sequence[Attempt]) -> list[str]:
    """One line for each condition."""
    search = study.search
    if search is None:
        return []
    found = winners(study, attempts)
    return [_sentence(study, search, winner, found) for winner in found]


def _no_verdict(winner: Winner, other: Winner) -> str:
    """The reason, if different carriers prevent a comparison; empty if the two can be compared."""
    withheld = unlike_carriers(winner.carrier, other.carrier)
    names = title(winner.condition), title(other.condition)
    return f"without a verdict, as {because(withheld, *names)}: " if withheld else ""


def objective(search: Search) -> str:
    return f"p{search.percentile:g} within {show_time(search.latency_max)}"


def _sentence(study: Study, search: Search, winner: Winner, found: Sequence[Winner]) -> str:
    name = title(winner.condition)
    if winner.treatment is None:
        beyond = f", not even {show_rate(search.rate_min)} IOPS," if search.rate_max else ""
        return f"{name}: nothing{beyond} met {objective(search)}.".removeprefix(": ")
    what = _knee(search, winner.knee, winner) if winner.knee is not None else _best(search, winner)
    against = ""
    if compared := against_baseline(study, winner, found):
        other, ratio = compared
        times = f"{ratio.value:.2f} times {title(other.condition)}’s"
        against = f" That is {_no_verdict(winner, other)}{times}{_span(ratio, '.2f')}."
    doubted = caution(winner.doubt)
    what += f"; but {doubted}" if doubted else ""
    ties = f" Not significantly fewer: {', '.join(winner.ties)}." if winner.ties else ""
    return f"{name}: {what}.{against}{ties}".removeprefix(": ")


def _best(search: Search, winner: Winner) -> str:
    known = winner.known()
    if known is None:
        return f"{winner.load} is best; not measured again yet"
    return (
        f"{winner.load} is best; on {counted(len(winner.fresh), 'fresh run')} {show_rate(known.value)} "
        f"IOPS{_span(known)}, {_held(search, winner)}"
    )


def _knee(search: Search, knee: Knee, winner: Winner) -> str:
    """The result with its interval over the searches, and what happened to the searches outside it."""
    assert search.rate_max is not None
    if knee.beyond:
        return (
            f"no knee within the range: in {_share(knee.beyond, knee)} even {show_rate(search.rate_max)} IOPS met "
            f"{objective(search)}; raise `rate_max`"
        )
    if knee.below:
        return (
            f"no knee within the range: in {_share(knee.below, knee)} not even {show_rate(search.rate_min)} IOPS met "
            f"{objective(search)}; lower `rate_min`"
        )
    without = _without(knee)
    known = winner.known()
    if known is None:
        return f"no knee: {without}" if without else "no knee yet"
    without = f"; {without}" if without else ""
    if known.low is None:
        return f"a knee at {show_rate(known.value)} IOPS from one search, so without an interval{without}"
    return (
        f"the knee is at {show_rate(known.value)} IOPS{_span(known)}, from {len(knee.found)} searches; "
        f"fresh runs there: {_held(search, winner)}{without}"
    )


def _without(knee: Knee) -> str:
    """The knees that do not count, and why."""
    parts = []
    if knee.withdrawn:
        parts.append(
            f"{_share(knee.withdrawn, knee)} withdrawn, since fresh runs at the rate found missed the objective"
        )
    if knee.unconfirmed:
        parts.append(f"{_share(knee.unconfirmed, knee)} left out, since no fresh run met the objective")
    return "; ".join(parts)


def _share(some: Collection[int], knee: Knee) -> str:
    return f"{len(some)} of {knee.searches} search{'es'[: 2 * (knee.searches != 1)]}"


def _held(search: Search, winner: Winner) -> str:
    held = sum(holds(search, result) for _, result in winner.fresh)
    return f"{objective(search)} in {held} of {len(winner.fresh)}"


def _span(estimate: Estimate, form: str = "") -> str:
    if estimate.low is None or estimate.high is None:
        return ", without an interval"
    low, high = (format(end, form) if form else show_rate(end) for end in (estimate.low, estimate.high))
    return f" (95 % CI {low} to {high})"
