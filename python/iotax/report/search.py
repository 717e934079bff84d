"""What a search for the best load or the knee found, as rows of text."""

from iotax.analysis import Summary
from iotax.analysis.search import against_baseline, holds, winners
from iotax.report.tables import Column, Figure, Group, Row, absolute
from iotax.units import show_time
from iotax.wording import figure, title
from iotax.wording.search import sentences


def lead(summary: Summary) -> list[str]:
    return sentences(summary.data.study, summary.data.attempts)


def objective(summary: Summary) -> str:
    search = summary.data.study.search
    if search is None:
        return ""
    what = "The rate was bisected (by ratio) between" if search.rate_max else "Every combination ran as designed; of"
    rest = (
        f" the highest that held and the lowest that did not, to {search.precision:g} %"
        if search.rate_max
        else " those that met the objective in every run, the one with the most IOPS wins"
    )
    return (
        f"Objective: p{search.percentile:g} within {show_time(search.latency_max)}. {what}{rest}. The winner is then "
        f"measured again in {search.confirm} fresh runs, since the best of many is partly best by chance."
    )


def columns(summary: Summary) -> list[Column]:
    knee = _is_knee(summary)
    return [
        Column("Knee" if knee else "Best load", "IOPS"),
        Column("Measured afresh", "IOPS"),
        Column("relative", f"{title(summary.grid.baseline_arm)} = 100"),
        Column("Objective held", "fresh runs"),
        *([] if knee else [Column("Not significantly fewer", "")]),
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
        held = sum(holds(study.search, result) for result in winner.confirmed.values())
        figures = [
            Figure(figure(winner.rate_iops)),
            absolute(winner.fresh()) if winner.confirmed else Figure("–"),
            absolute(compared[1].percent) if compared else Figure("–"),
            Figure(f"{held} of {len(winner.confirmed)}" if winner.confirmed else "–"),
            Figure(", ".join(winner.ties) or "–"),
        ]
        rows.append(Row("", name, figures[:width], winner.load))
    return [Group("", rows)]
