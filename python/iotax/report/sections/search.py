"""What a search for the best load or the knee found."""

from __future__ import annotations

from iotax.analysis import Summary
from iotax.analysis.knee import Knee, holds
from iotax.analysis.search import against_baseline, winners
from iotax.report import charts
from iotax.report.section import Panels, Part, Section, Source, Table, note
from iotax.report.tables import Column, Figure, Group, Row, absolute
from iotax.units import show_time
from iotax.wording import title
from iotax.wording.search import sentences


def section(source: Source) -> Section | None:
    summary = source.summary
    if not lead(summary):
        return None
    parts: list[Part] = [
        Table(columns(summary), groups(summary), "What the search found"),
        note(objective(summary)),
    ]
    if probes := source.drawn([charts.probes(summary, source.looks)]):
        caption = (
            "Every run of the search and of the knee. Filled: the objective was met and the rate achieved. Open: not. "
            "Dashed: the objective."
        )
        parts.append(Panels(probes, caption, 2, source.legend(), 2))
    return Section("search", "Search", parts, "Search")


def lead(summary: Summary) -> list[str]:
    return sentences(summary.data.study, summary.data.attempts)


def objective(summary: Summary) -> str:
    search = summary.data.study.search
    if search is None:
        return ""
    asked = f"Objective: p{search.percentile:g} within {show_time(search.latency_max)}."
    if search.rate_max:
        return (
            f"{asked} In each of {search.confirm} blocks the highest rate that held was searched again, by bisection "
            f"to {search.precision:g} %, and measured in a fresh run. A knee whose fresh runs missed the "
            "objective is withdrawn. The interval is that of the knees over the blocks."
        )
    return (
        f"{asked} Every combination ran as designed; of those that met the objective in every run, the one with the "
        f"most IOPS wins. The winner is then measured again in {search.confirm} fresh runs, since the best of many is "
        f"partly luck."
    )


def columns(summary: Summary) -> list[Column]:
    knee = _is_knee(summary)
    return [
        Column("Knee" if knee else "Best load, measured afresh", "IOPS"),
        Column("relative", f"{title(summary.grid.baseline_arm)} = 100"),
        Column("Objective held", "fresh runs"),
        Column("Searches", "that found it") if knee else Column("Not significantly fewer", ""),
    ]


def _is_knee(summary: Summary) -> bool:
    search = summary.data.study.search
    return search is not None and search.rate_max is not None


def groups(summary: Summary) -> list[Group]:
    study = summary.data.study
    if study.search is None:
        return []
    width, rows = len(columns(summary)), []
    found = winners(study, summary.data.attempts)
    for winner in found:
        name = title(winner.condition) or study.name
        if winner.treatment is None:
            nothing = [Figure("none"), *(Figure("–") for _ in range(width - 1))]
            rows.append(Row("", name, nothing, "nothing met the objective"))
            continue
        compared = against_baseline(study, winner, found)
        fresh = winner.fresh
        held = sum(holds(study.search, result) for _, result in fresh)
        known = winner.known()
        figures = [
            absolute(known) if known and known.low is not None else Figure("–"),
            absolute(compared[1].percent) if compared else Figure("–"),
            Figure(f"{held} of {len(fresh)}" if fresh else "–"),
            Figure(_found(winner.knee) if winner.knee is not None else ", ".join(winner.ties) or "–"),
        ]
        rows.append(Row("", name, figures[:width], winner.load))
    return [Group("", rows)]


def _found(knee: Knee) -> str:
    """ "3 of 3", or "2 of 3, 1 withdrawn"."""
    within = [block for block in knee.found if block not in knee.beyond]
    lost = f", {len(knee.withdrawn)} withdrawn" if knee.withdrawn else ""
    return f"{len(within)} of {knee.searches}{lost}"
