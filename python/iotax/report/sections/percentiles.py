"""Latency beyond its mean: every percentile, flushes, interruptions, and reads and writes apart."""

from __future__ import annotations

from iotax.analysis import CellSummary, Summary, interruptions
from iotax.analysis.responses import (
    LONGEST_GAP,
    READ,
    READ_P50,
    READ_P99,
    SLOW,
    SYNC,
    SYNC_P50,
    SYNC_P99,
    WRITE,
    WRITE_P50,
    WRITE_P99,
)
from iotax.report import charts
from iotax.report.section import Folded, Heading, Panels, Part, Section, Source, Table, Text, note
from iotax.report.tables import Column, Figure, Group, absolute, both, by_condition
from iotax.wording import figure, recovery, title

_SYNCS = (SYNC, SYNC_P50, SYNC_P99)
_DIRECTIONS = (READ, READ_P50, READ_P99, WRITE, WRITE_P50, WRITE_P99)


def section(source: Source) -> Section:
    summary = source.summary
    parts = _curves(source) + _shifts(source)
    if flushes := sync_groups(summary):
        parts += [
            Heading("Flushes"),
            Table([Column(each.title, each.unit) for each in _SYNCS], flushes, "Latency of flushes"),
            note(
                "Each fsync, fdatasync or flush that the load waited for, counted separately from reads and writes, "
                "which may have ended in a cache before. Geometric means over runs."
            ),
        ]
    parts += _interruptions(source) + _directions(source)
    quantiles = Table(_quantile_columns(summary), _quantile_groups(summary), "Latency quantiles")
    how = "From the counts of all runs; the intervals come from the scatter of runs, so they need at least two runs."
    parts.append(Folded("Quantiles with intervals", [quantiles, note(how)]))
    return Section("percentiles", "Latency, every percentile", parts, "Percentiles")


def _curves(source: Source) -> list[Part]:
    summary, looks = source.summary, source.looks
    curves = source.drawn(charts.percentile_curves(summary, looks, each) for each in source.conditions)
    if not curves:
        return [
            Text(
                "No histograms were recorded, so no percentile curve can be drawn; the tables have what the files give."
            )
        ]
    begins = "From submission"
    if any(run.result.open for run in summary.data.runs):
        begins = f"From when {'a transaction' if summary.database else 'an I/O'} was due"
    error = max((cell.latency.bin_error for cell in summary.cells), default=0.001)
    caption = (
        f"{begins} to completion, to the slowest {summary.counts} of all. The counts of all runs of a treatment are "
        f"added; no percentile is averaged. A value is within {100 * error:g} % of the true one."
    )
    return [Panels(curves, caption, legend=source.legend())]


def _shifts(source: Source) -> list[Part]:
    summary = source.summary
    shifts = source.drawn(charts.shift_functions(summary, source.looks))
    if not shifts:
        return []
    caption = (
        f"Each quantile of the latency against the same quantile of {source.base} (= 100), with 95 % intervals from "
        f"the scatter of runs. A level line: all {summary.counts}s are slower or faster by the same factor. A line "
        f"that rises at the right: only the slowest {summary.counts}s differ, which a mean hides."
    )
    return [Heading("Where in the distribution the difference lies"), Panels(shifts, caption, legend=source.judged())]


def sync_groups(summary: Summary) -> list[Group]:
    """Latency of flushes under loads that issued some; empty if none did."""
    flushed = [cell for cell in summary.cells if SYNC.key in cell.values]
    return by_condition(flushed, lambda cell: [absolute(cell.values.get(r.key)) for r in _SYNCS])


def _interruptions(source: Source) -> list[Part]:
    summary, looks = source.summary, source.looks
    groups = _interruption_groups(summary)
    if not groups:
        return []
    several = any(interruptions.interruptions(cell.runs).one_client for cell in summary.cells)
    of = "of any one client, since their clocks run apart" if several else "of all workers together"
    text = (
        f"The longest time in the window without a completed {summary.counts}, its two ends included"
        f"{': ' if several else ', '}{of}. Slow {summary.counts}s are means over runs, without a comparison."
    )
    if _had_events(summary):
        text += (
            " Recovery: from an event until throughput is back at 95 % of its median before, for 1 s; medians by "
            "Kaplan and Meier, with times that the window cut off as censored. How much later it is back than with "
            f"{source.base} at the same events: Wilcoxon's signed-rank interval, all together 95 %."
        )
    table = Table(_interruption_columns(summary), groups, "Gaps without I/O and slow I/Os")
    parts: list[Part] = [Heading("Interruptions"), table, note(text)]
    throughput = source.drawn(charts.around_events(summary, looks))
    latency = source.drawn(charts.latency_around_events(summary, looks)) if throughput else []
    if throughput:
        caption = (
            "Throughput around each event. Dashed lines: the event's begin, and when it was undone. A thin line for "
            "each event, their median in bold. Peaks above three times the usual rate are cut."
        )
        parts.append(Panels(throughput, caption))
    if latency:
        caption = (
            "99th percentile of the latency of the I/Os that completed in each interval of a run. Intervals without "
            "any have no point."
        )
        parts.append(Panels(latency, caption))
    return parts


def _had_events(summary: Summary) -> bool:
    return any(run.result.events for cell in summary.cells for run in cell.runs)


def _interruption_columns(summary: Summary) -> list[Column]:
    base = title(summary.grid.baseline_arm)
    gaps = [Column(LONGEST_GAP.title, LONGEST_GAP.unit), Column("relative", f"{base} = 100")]
    slow = [Column(f"I/Os {over}", "per run") for over in SLOW]
    later = Column("Back later", f"s, than {base}")
    back = [Column("Recovery time", "median, s"), later, Column("Events", "recovered")] if _had_events(summary) else []
    return [*gaps, Column("Longest of all runs", LONGEST_GAP.unit), *slow, *back]


def _interruption_groups(summary: Summary) -> list[Group]:
    """The longest time without a completed I/O, and the number of slow I/Os; empty if the study asked for neither and
    nothing stalled."""

    delays = {each.cell.cell: recovery.delay(each.seconds) for each in interruptions.delays(summary)}

    def figures(cell: CellSummary) -> list[Figure]:
        found = interruptions.interruptions(cell.runs)
        longest = "–" if found.longest_ms is None else f"{'≤ ' if found.is_bound else ''}{figure(found.longest_ms)}"
        slow = ["–" if count is None else figure(count) for count in found.slow.values()]
        later = delays.get(cell.cell, "–")
        back = [recovery.median(found.recovery), later, recovery.recovered(found.recovery)]
        back = back if _had_events(summary) else []
        return [*both(summary, cell, LONGEST_GAP), Figure(longest), *map(Figure, [*slow, *back])]

    return by_condition(summary.cells, figures) if interruptions.worth_showing(summary) else []


def _directions(source: Source) -> list[Part]:
    summary, looks = source.summary, source.looks
    groups = direction_groups(summary)
    if not groups:
        return []
    parts: list[Part] = []
    curves = source.drawn(
        charts.percentile_curves(summary, looks, condition, part)
        for condition in source.conditions
        for part in charts.PARTS
    )
    if curves:
        caption = "Every percentile of the reads and of the writes, from the counts of all runs of a treatment."
        parts.append(Panels(curves, caption, 2, source.legend()))
    columns = [Column(each.title, each.unit) for each in _DIRECTIONS]
    parts.append(Table(columns, groups, "Latency of reads and of writes"))
    parts.append(
        note(
            "For loads with both. Geometric means over runs; a percentile is shown only if a run has enough reads or "
            "writes for it."
        )
    )
    return [Folded("Reads and writes separately", parts)]


def direction_groups(summary: Summary) -> list[Group]:
    """Latency of reads and of writes under mixed loads; empty if there is none."""
    mixed = [cell for cell in summary.cells if {READ.key, WRITE.key} <= cell.values.keys()]
    return by_condition(mixed, lambda cell: [absolute(cell.values.get(r.key)) for r in _DIRECTIONS])


def _quantile_columns(summary: Summary) -> list[Column]:
    return [Column(f"p{percent:g}", "µs") for percent in _percents(summary)]


def _quantile_groups(summary: Summary) -> list[Group]:
    """Percentiles of the merged counts, up to the last that they can resolve."""
    percents = _percents(summary)

    def figures(cell: CellSummary) -> list[Figure]:
        found = {quantile.percent: quantile.value_us for quantile in cell.quantiles}
        return [absolute(found.get(percent)) for percent in percents]

    return by_condition(summary.cells, figures)


def _percents(summary: Summary) -> list[float]:
    return sorted({quantile.percent for cell in summary.cells for quantile in cell.quantiles})
