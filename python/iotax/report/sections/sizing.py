"""How many cores carry a rate, by the CPU cost of an I/O."""

from __future__ import annotations

from dataclasses import dataclass

from iotax.analysis import Summary
from iotax.analysis.capacity import (
    REPORT_CORES,
    REPORT_RATE_IOPS,
    STORAGE_US,
    UTILISATIONS,
    Demand,
    capacity,
    per_core_iops,
    rate_at,
    response_us,
)
from iotax.queueing import MMc, SizingTarget, size
from iotax.report import charts
from iotax.report.section import Folded, Heading, Panels, Part, Section, Source, Table, Text, note
from iotax.report.sections.cost import estimated
from iotax.report.tables import Column, Figure, Group, Row
from iotax.wording import comparable, cost_cautions, figure, not_sized, title
from iotax.wording.costs import hidden

TARGETS = (
    ("≤ 80 % busy", SizingTarget(0.8)),
    ("response ≤ 1.25 × service", SizingTarget(1.0, response_max_ratio=1.25)),
    ("response ≤ 1.1 × service", SizingTarget(1.0, response_max_ratio=1.1)),
)


def section(source: Source) -> Section | None:
    summary = source.summary
    sizing = summary.report_sizing
    reasons = not_sized(sizing) if summary.data.runs else []
    if not reasons and not sizing.costs:
        return None
    parts: list[Part] = [note(f"Not sized for {REPORT_RATE_IOPS:,} IOPS: {text}.") for text in reasons]
    if reasons:
        parts.append(note(f"Another rate: `iotax size {source.notebook} --iops N`"))
    if sizing.costs:
        parts += _sized(source)
    for each in sized_by_sources(summary):
        parts += [
            Heading("As the source sized"),
            Table(each.columns, each.groups, "Cores by the published costs"),
            note(f"{each.source}. {each.note}"),
        ]
    return Section("sizing", "Sizing", parts, "Sizing" if sizing.costs else "")


def _sized(source: Source) -> list[Part]:
    summary = source.summary
    costs = summary.report_sizing.costs
    sources = "".join(f"{each}. " for each in dict.fromkeys(f"{title(c.arm)}: {c.source}" for c in costs))
    how = (
        "Cores that carry the rate in an M/M/c queue (Poisson arrivals, exponential service, one queue for all cores), "
        "under a cap on utilisation or a target for the mean response on the cores. Small: the cores at both ends of "
        "the cost’s interval where they differ; how busy the cores are; the mean response. "
        f"{sources}Other rates and targets: `iotax size {source.notebook} --iops N --response 120us`."
    )
    caption = (
        f"Mean response over the utilisation of {REPORT_CORES} cores. Bands span the interval of the CPU cost. "
        f"{_size_note(summary)}"
    ).rstrip()
    curves = source.drawn(charts.response_curves(costs, source.looks, REPORT_CORES))
    columns = [Column(f"{100 * u:.0f} % busy", "µs") for u in UTILISATIONS]
    table = Table(columns, _response_groups(summary), "Response over utilisation")
    return [
        *(Text(text, "warning") for text in cost_cautions(costs)),
        Table(_size_columns(), _size_groups(summary), "Cores for a rate"),
        note(how),
        Panels(curves, caption, legend=source.legend(each.arm for each in costs), first=3),
        Folded("The same as a table", [table], printed=True),
    ]


def _size_columns() -> list[Column]:
    named = [Column(name, "cores") for name, _ in TARGETS]
    return [Column("CPU", "µs per I/O"), Column("Per core", "IOPS"), *named]


def _size_groups(summary: Summary) -> list[Group]:
    rows = []
    for cost in summary.report_sizing.costs:
        figures = [estimated(cost.cost_us), Figure(figure(per_core_iops(cost)))]
        for _, target in TARGETS:
            found = capacity(cost, Demand(REPORT_RATE_IOPS, target))
            if found.size is None:
                figures.append(Figure("–", found.reason))
                continue
            text = f"{100 * found.size.queue.utilisation:.0f} % busy, {figure(found.size.response_s * 1e6)} µs"
            ends = "" if found.cores == str(found.size.servers) else found.cores.partition(" ")[2].strip("()")
            figures.append(Figure(str(found.size.servers), f"{ends}; {text}" if ends else text))
        rows.append(Row(cost.arm, title(cost.arm), figures))
    return [Group(f"{REPORT_RATE_IOPS:,} IOPS", rows)]


@dataclass(frozen=True)
class Sized:
    """How a source computed its sizing."""

    source: str
    columns: list[Column]
    groups: list[Group]
    note: str


def sized_by_sources(summary: Summary) -> list[Sized]:
    """For each source that gives cores for a rate: how busy they would be at its own costs, how long an I/O would wait,
    and how many cores a limit of 80 % takes."""
    name, target = TARGETS[0]
    found = []
    for source in summary.data.study.published:
        rows, busiest = [], []
        for each in source.figures:
            if each.cores is None or each.absolute is None or source.rate_iops is None:
                continue
            us = sum(each.absolute) / 2
            load = source.rate_iops * us * 1e-6
            enough = size(source.rate_iops, us * 1e-6, target)
            theirs = Figure("no bound", "more than they can do")
            if load < each.cores:
                response = MMc(source.rate_iops, us * 1e-6, each.cores).response_s * 1e6
                theirs = Figure(figure(response), f"{response / us:.1f} times the service")
                busiest.append(load / each.cores)
            figures = [Figure(figure(us)), Figure(str(each.cores)), Figure(f"{100 * load / each.cores:.0f} %"), theirs]
            figures.append(Figure(str(enough.servers), f"{figure(enough.response_s * 1e6)} µs"))
            label = title(" · ".join(str(level) for level in each.of.values()))
            rows.append(Row("", label, figures, f"published as {each.called}" if each.called else ""))
        if not rows:
            continue
        columns = [
            Column("Published cost", "µs per I/O"),
            Column("Published cores", f"{source.rate_iops:,} IOPS"),
            Column("Busy", "of these"),
            Column("Mean response", "µs on them, M/M/c"),
            Column(name, "cores, and mean response"),
        ]
        note = "The source divides the rate by what one core can do, which keeps its cores almost fully busy."
        if busiest:
            more = figure(100 * (1 / max(busiest) - 1))
            note += (
                f" Do not size so: at {more} % more load, or where an I/O costs as much more, the queue grows without "
                "bound; and on the way there an I/O waits longer than it is served."
            )
        found.append(Sized(source.source, columns, [Group("", rows)], note))
    return found


def _response_groups(summary: Summary) -> list[Group]:
    groups = []
    for storage_us in STORAGE_US:
        rows = []
        for cost in summary.report_sizing.costs:
            us = cost.cost_us.value
            figures = []
            for busy in UTILISATIONS:
                rate = f"{figure(rate_at(us, REPORT_CORES, busy))} IOPS" if busy and not storage_us else ""
                figures.append(Figure(figure(response_us(us, REPORT_CORES, busy, storage_us)), rate))
            rows.append(Row(cost.arm, title(cost.arm), figures))
        groups.append(Group(f"With {storage_us:g} µs in the storage" if storage_us else "Cores alone", rows))
    return groups


def _size_note(summary: Summary) -> str:
    """How much the storage's own time reduces the difference."""
    costs = summary.report_sizing.costs
    if not comparable(costs):
        return ""
    return (
        f"{hidden(costs, REPORT_CORES)}: the slower the storage, the less the difference shows in a response time, "
        "though it still takes the cores."
    )
