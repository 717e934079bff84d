"""Rows with a report's figures."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from iotax.analysis import CellSummary, Comparison, Estimate, Overall, Response, Summary, interruptions
from iotax.analysis.limits import TITLES as TITLES_OF_LIMITS
from iotax.analysis.limits import Limit, limit_of
from iotax.analysis.responses import (
    BANDWIDTH,
    CPU,
    CPU_HOST_REST,
    CPU_HYPERVISOR,
    CPU_INITIATOR,
    CPU_IO_THREADS,
    CPU_MACHINE,
    CPU_QEMU,
    CPU_TARGET,
    CPU_VHOST,
    DISK_IOPS,
    EVENTS,
    IOPS,
    LATENCY,
    LONGEST_GAP,
    P50,
    P95,
    P99,
    P999,
    READ,
    READ_P50,
    READ_P99,
    SLOW,
    SYNC,
    SYNC_P50,
    SYNC_P99,
    UTILISATION,
    WRITE,
    WRITE_P50,
    WRITE_P99,
)
from iotax.analysis.validity import TITLES, Severity
from iotax.redaction import redact
from iotax.report.charts.cpu import BACKGROUND, parts_us
from iotax.trial import Attempt
from iotax.units import counted
from iotax.wording import figure, indexed, indexed_ends, recovery, title, verdict_word
from iotax.wording.verdicts import judged

SYMBOLS = {
    Severity.GOOD: ("●", "good"),
    Severity.UNKNOWN: ("○", "not known"),
    Severity.NOTE: ("◆", "note"),
    Severity.DOUBTFUL: ("▲", "doubtful"),
    Severity.INVALID: ("■", "invalid"),
}


@dataclass(frozen=True)
class Figure:
    """A table cell: the number, and its interval in smaller type."""

    value: str
    interval: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Row:
    arm: str
    """The name in the palette."""
    name: str
    figures: list[Figure]
    note: str = ""


@dataclass(frozen=True)
class Group:
    """Rows under one condition."""

    condition: str
    rows: list[Row]


@dataclass(frozen=True)
class Column:
    title: str
    unit: str


def main_columns(summary: Summary) -> list[Column]:
    base = title(summary.grid.baseline_arm)
    columns = []
    for response in _main_responses(summary):
        columns += [Column(response.short, response.unit), Column("relative", f"{base} = 100")]
    return columns


def main_groups(summary: Summary) -> list[Group]:
    """Absolute and relative figures, condition by condition."""
    responses = _main_responses(summary)
    return by_condition(summary.cells, lambda cell: [f for r in responses for f in _both(summary, cell, r)])


def _detail(summary: Summary) -> tuple[Response, ...]:
    return (DISK_IOPS, P50, P95, P99, P999) if summary.database else (BANDWIDTH, P50, P99, P999)


def detail_columns(summary: Summary) -> list[Column]:
    return [
        *(Column(r.title, r.unit) for r in _detail(summary)),
        Column("Maximum latency", "µs"),
        Column("Transactions" if summary.database else "I/Os", "counted"),
    ]


def detail_groups(summary: Summary) -> list[Group]:
    """Bandwidth and percentiles: geometric means over the runs; the maximum is that of all runs."""

    def figures(cell: CellSummary) -> list[Figure]:
        own = [absolute(cell.values.get(r.key)) for r in _detail(summary)]
        return [*own, Figure(_slowest(cell)), Figure(f"{sum(run.result.ios for run in cell.runs):,}")]

    return by_condition(summary.cells, figures)


SYNCS = (SYNC, SYNC_P50, SYNC_P99)
DIRECTIONS = (READ, READ_P50, READ_P99, WRITE, WRITE_P50, WRITE_P99)


def sync_columns() -> list[Column]:
    return [Column(response.title, response.unit) for response in SYNCS]


def sync_groups(summary: Summary) -> list[Group]:
    """Latency of flushes under loads that issued some; empty if none did."""
    flushed = [cell for cell in summary.cells if SYNC.key in cell.values]
    return by_condition(flushed, lambda cell: [absolute(cell.values.get(r.key)) for r in SYNCS])


def interruption_columns(summary: Summary) -> list[Column]:
    base = title(summary.grid.baseline_arm)
    gaps = [Column(LONGEST_GAP.title, LONGEST_GAP.unit), Column("relative", f"{base} = 100")]
    slow = [Column(f"I/Os {over}", "per run") for over in SLOW]
    later = Column("Back later", f"s, than {base}")
    back = [Column("Recovery time", "median, s"), later, Column("Events", "recovered")] if had_events(summary) else []
    return [*gaps, Column("Longest of all runs", LONGEST_GAP.unit), *slow, *back]


def had_events(summary: Summary) -> bool:
    return any(run.result.events for cell in summary.cells for run in cell.runs)


def interruption_groups(summary: Summary) -> list[Group]:
    """The longest time without a completed I/O, and the number of slow I/Os; empty if the study asked for neither and
    nothing stalled."""

    delays = {each.cell.cell: recovery.delay(each.seconds) for each in interruptions.delays(summary)}

    def figures(cell: CellSummary) -> list[Figure]:
        found = interruptions.interruptions(cell.runs)
        longest = "–" if found.longest_ms is None else f"{'≤ ' if found.is_bound else ''}{figure(found.longest_ms)}"
        slow = ["–" if count is None else figure(count) for count in found.slow.values()]
        later = delays.get(cell.cell, "–")
        back = [recovery.median(found.recovery), later, recovery.recovered(found.recovery)]
        back = back if had_events(summary) else []
        return [*_both(summary, cell, LONGEST_GAP), Figure(longest), *map(Figure, [*slow, *back])]

    return by_condition(summary.cells, figures) if interruptions.worth_showing(summary) else []


def gaps_of_one_client(summary: Summary) -> bool:
    return any(interruptions.interruptions(cell.runs).one_client for cell in summary.cells)


def direction_columns() -> list[Column]:
    return [Column(response.title, response.unit) for response in DIRECTIONS]


def direction_groups(summary: Summary) -> list[Group]:
    """Latency of reads and of writes under mixed loads; empty if there is none."""
    mixed = [cell for cell in summary.cells if {READ.key, WRITE.key} <= cell.values.keys()]
    return by_condition(mixed, lambda cell: [absolute(cell.values.get(r.key)) for r in DIRECTIONS])


def _slowest(cell: CellSummary) -> str:
    """In µs, over all runs."""
    known = [run.result.latency_max_ns for run in cell.runs]
    return "–" if None in known else figure(max(each or 0 for each in known) / 1e3)


def quantile_columns(summary: Summary) -> list[Column]:
    return [Column(f"p{percent:g}", "µs") for percent in _percents(summary)]


def quantile_groups(summary: Summary) -> list[Group]:
    """Percentiles of the merged counts, up to the last that they can resolve."""
    percents = _percents(summary)

    def figures(cell: CellSummary) -> list[Figure]:
        found = {quantile.percent: quantile.value_us for quantile in cell.quantiles}
        return [absolute(found.get(percent)) for percent in percents]

    return by_condition(summary.cells, figures)


def _percents(summary: Summary) -> list[float]:
    return sorted({quantile.percent for cell in summary.cells for quantile in cell.quantiles})


_OF_HYPERVISOR = (
    ("of it QEMU", CPU_QEMU),
    ("of it I/O threads", CPU_IO_THREADS),
    ("of it vhost", CPU_VHOST),
    ("of it the rest", CPU_HOST_REST),
)
"""CPU time of a KVM host besides its guests, if their processes were read too."""


def cpu_columns(summary: Summary) -> list[Column]:
    each = f"µs per {summary.counts}"
    hypervisor = [Column("Hypervisor", each)] if _has_hypervisor(summary) else []
    hypervisor += [Column(name, each) for name, response in _OF_HYPERVISOR if _has(summary, response)]
    return [
        Column("Initiator", each),
        Column("Target", each),
        Column("Both", each),
        *hypervisor,
        Column("Whole machine", each),
        Column(BACKGROUND, each),
        Column("Busy", "processors"),
        *(Column(response.title.replace(" per I/O", ""), f"{response.unit} per I/O") for response in _counted(summary)),
    ]


def cpu_groups(summary: Summary) -> list[Group]:
    hypervisor = [CPU_HYPERVISOR] if _has_hypervisor(summary) else []
    hypervisor += [response for _, response in _OF_HYPERVISOR if _has(summary, response)]
    shown = [summary.counted(each) for each in (CPU_INITIATOR, CPU_TARGET, CPU, *hypervisor, CPU_MACHINE)]
    known = {each.key for each in shown}

    def figures(cell: CellSummary) -> list[Figure]:
        background = parts_us(summary, cell).get(BACKGROUND)
        own = [absolute(cell.values.get(response.key)) for response in shown]
        machine, iops = cell.values.get(CPU_MACHINE.key), cell.values.get(IOPS.key)
        busy = figure(machine.value * iops.value / 1e6) if machine and iops else "–"
        counted = [absolute(cell.values.get(response.key)) for response in _counted(summary)]
        return [*own, Figure("–" if background is None else figure(background)), Figure(busy), *counted]

    return by_condition([c for c in summary.cells if known & c.values.keys()], figures)


def _utilisation(summary: Summary) -> list[Response]:
    """Roles whose processors are known in some run."""
    return [each for each in UTILISATION if any(each.key in cell.values for cell in summary.cells)]


def utilisation_columns(summary: Summary) -> list[Column]:
    base = title(summary.grid.baseline_arm)
    columns = []
    for response in _utilisation(summary):
        role = response.title.partition(", ")[2]
        columns += [Column(role[:1].upper() + role[1:], "% busy"), Column("relative", f"{base} = 100")]
    return columns


def utilisation_groups(summary: Summary) -> list[Group]:
    """Utilisation by role, of the role's own processors; empty if their number is unknown."""
    responses = _utilisation(summary)
    known = {each.key for each in responses}
    cells = [cell for cell in summary.cells if known & cell.values.keys()]
    return by_condition(cells, lambda cell: [f for each in responses for f in _both(summary, cell, each)])


def _counted(summary: Summary) -> list[Response]:
    """Processor counters that some run has."""
    return [response for response in EVENTS if any(response.key in cell.values for cell in summary.cells)]


def _has_hypervisor(summary: Summary) -> bool:
    return _has(summary, summary.counted(CPU_HYPERVISOR))


def _has(summary: Summary, response: Response) -> bool:
    return any(response.key in cell.values for cell in summary.cells)


def tax_groups(summary: Summary) -> list[Group]:
    groups: dict[str, list[Row]] = {}
    for tax in summary.taxes:
        figures = [
            _added(tax.latency_us, " µs"),
            _added(tax.cpu_us, " µs") if tax.cpu_us else Figure("–"),
            _lost(tax.throughput_percent) if tax.throughput_percent else Figure("–"),
        ]
        groups.setdefault(tax.condition, []).append(Row(tax.arm, title(tax.arm), figures))
    return [Group(_capital(condition), rows) for condition, rows in groups.items()]


@dataclass(frozen=True)
class Card:
    """The verdict on one arm."""

    arm: str
    name: str
    lines: list["CardLine"]


@dataclass(frozen=True)
class CardLine:
    response: str
    ratio: str
    verdict: str
    tone: str
    text: str
    details: tuple[str, ...]


def cards(summary: Summary) -> list[Card]:
    """A badge marks figures that rest on mostly doubtful runs; the verdict above gives the reason once."""
    found = []
    said = [each.finding for each in judged(summary)]
    for arm in dict.fromkeys(o.arm for o in summary.overalls):
        lines = []
        for overall in (o for o in summary.overalls if o.arm == arm):
            sentence = next(f for f in said if f.subject == title(arm) and f.response_key == overall.response.key)
            by_condition = [c for c in summary.comparisons if c.response is overall.response and c.arm == arm]
            verdict, tone = _verdict(overall, by_condition)
            verdict += " (doubtful)" if summary.doubt(arm, overall.response).most else ""
            lines.append(
                CardLine(
                    overall.response.title,
                    _ratio_range(overall, by_condition),
                    verdict,
                    tone,
                    sentence.text,
                    sentence.details,
                )
            )
        found.append(Card(arm, title(arm), lines))
    return found


@dataclass(frozen=True)
class ValidityRow:
    arm: str
    name: str
    condition: str
    marks: list[tuple[str, str, str]]
    """(symbol, its word, the finding) for each check."""


def checked(summary: Summary) -> list[str]:
    """The checks that apply to these runs, by their keys."""
    modelled = any(run.result.media for run in summary.data.runs)
    return [key for key in TITLES if key != "media" or modelled]


def validity_rows(summary: Summary) -> list[ValidityRow]:
    shown = checked(summary)
    return [
        ValidityRow(
            cell.arm,
            title(cell.arm),
            cell.condition,
            [(*SYMBOLS[check.level], check.text) for check in cell.checks if check.key in shown],
        )
        for cell in summary.cells
    ]


@dataclass(frozen=True)
class LimitRow:
    limiter: str
    cells: list[tuple[str, str, str]]
    """(arm, name with condition, evidence)."""


def limits_of(summary: Summary) -> list[Limit]:
    """One row for each cell."""
    return [limit_of(cell.runs) for cell in summary.cells]


def limit_rows(summary: Summary, limits: Sequence[Limit]) -> list[LimitRow]:
    """Treatments with the same limiter stand together."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for cell, limit in zip(summary.cells, limits, strict=True):
        name = ", ".join(filter(None, (title(cell.arm), cell.condition)))
        found.setdefault(TITLES_OF_LIMITS[limit.limiter], []).append((cell.arm, name, limit.evidence))
    return [LimitRow(limiter, cells) for limiter, cells in found.items()]


_TEXTS_MAX = 2
_PLACES_MAX = 4


def validity_findings(summary: Summary) -> list[tuple[str, str]]:
    """Findings, stated once for all cells that share them; many figures of one check by an example."""
    found: dict[str, dict[str, list[str]]] = {}
    for cell in summary.cells:
        for check in cell.checks:
            if check.level != Severity.GOOD:
                where = ", ".join(filter(None, (title(cell.arm), cell.condition)))
                found.setdefault(TITLES[check.key], {}).setdefault(check.text, []).append(where)
    said = []
    for name, texts in found.items():
        if len(texts) <= _TEXTS_MAX:
            said += [(f"{name}: {text}", _places(summary, where)) for text, where in texts.items()]
        else:
            where = [place for places in texts.values() for place in places]
            said.append((f"{name}: e.g. {next(iter(texts))}", _places(summary, where)))
    return said


def _places(summary: Summary, where: list[str]) -> str:
    if len(where) == len(summary.cells):
        return "all treatments"
    more = len(where) - _PLACES_MAX
    return "; ".join(where) if more < 2 else f"{'; '.join(where[:_PLACES_MAX])} and {more} more"


@dataclass(frozen=True)
class OrderRow:
    place: int
    arm: str
    name: str
    condition: str
    block: int
    started: str
    figures: list[str]
    planned: int


def order_rows(summary: Summary) -> list[OrderRow]:
    rows = []
    for place, run in enumerate(summary.data.runs, start=1):
        cell = summary.grid.cell(run.trial)
        values = [summary.counted(r).of(run) for r in (IOPS, LATENCY, CPU, CPU_INITIATOR)]
        rows.append(
            OrderRow(
                place,
                summary.grid.arm(cell),
                title(summary.grid.arm(cell)),
                summary.grid.condition(cell),
                run.trial.block,
                clock(run.result.window.start_unix_ns),
                ["–" if v is None else figure(v) for v in values],
                run.trial.order,
            )
        )
    return rows


@dataclass(frozen=True)
class AttemptRow:
    trial: str
    number: int
    status: str
    reason: str
    started: str
    log: str
    after: str


def attempt_rows(summary: Summary) -> list[AttemptRow]:
    """Every failed or interrupted attempt, and what became of its trial."""
    done = {a.trial.id: a.number for a in summary.data.attempts if a.status == "done"}

    def after(attempt: Attempt) -> str:
        number = done.get(attempt.trial.id)
        return f"measured by attempt {number}" if number else "not measured"

    return [
        AttemptRow(a.trial.id, a.number, a.status, redact(a.why), clock(a.started_unix_ns), redact(a.log), after(a))
        for a in summary.data.not_done
    ]


def clock(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime("%H:%M:%S")


def day(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime("%-d %B %Y, %H:%M UTC")


def _main_responses(summary: Summary) -> list[Response]:
    return [*summary.responses, *([P99] if LATENCY in summary.responses else [])]


def _runs(cell: CellSummary) -> str:
    return counted(len(cell.runs), "run")


def by_condition(
    cells: Iterable[CellSummary],
    figures_of: Callable[[CellSummary], list[Figure]],
    note_of: Callable[[CellSummary], str] = _runs,
) -> list[Group]:
    groups: dict[str, list[Row]] = {}
    for cell in cells:
        groups.setdefault(cell.condition, []).append(Row(cell.arm, title(cell.arm), figures_of(cell), note_of(cell)))
    return [Group(_capital(condition), rows) for condition, rows in groups.items()]


def _both(summary: Summary, cell: CellSummary, response: Response) -> list[Figure]:
    own = absolute(cell.values.get(response.key))
    if cell.arm == summary.grid.baseline_arm:
        return [own, Figure("100", tone="base")]
    return [own, _relative(cell.ratios.get(response.key))]


def absolute(estimate: Estimate | None) -> Figure:
    if estimate is None:
        return Figure("–")
    return Figure(figure(estimate.value), _interval(estimate))


def _relative(comparison: Comparison | None) -> Figure:
    if comparison is None:
        return Figure("–")
    r = comparison.ratio
    if r.low is None or r.high is None:
        return Figure("–")
    reach = "" if r.alike else "–".join(indexed_ends(r, _index))
    return Figure(_index(r.value), reach, comparison.verdict or "")


def _index(ratio: float) -> str:
    """Three significant figures; 100 only for exactly 100."""
    return indexed(ratio, 1 if ratio < 1 else 0)


def _added(estimate: Estimate, unit: str) -> Figure:
    sign = "+" if estimate.value >= 0 else ""
    return Figure(f"{sign}{figure(estimate.value)}{unit}", _interval(estimate))


def _lost(estimate: Estimate) -> Figure:
    """Throughput as a change: a loss is below zero."""

    def text(value: float) -> str:
        return f"{-value:+.1f}".replace("-", "−")

    if estimate.low is None or estimate.high is None or estimate.alike:
        return Figure(f"{text(estimate.value)} %")
    return Figure(f"{text(estimate.value)} %", f"{text(estimate.high)} to {text(estimate.low)}")


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None or estimate.alike:
        return ""
    link = "–" if estimate.low >= 0 else " to "
    return f"{figure(estimate.low)}{link}{figure(estimate.high)}"


def _ratio_range(overall: Overall, by_condition: list[Comparison]) -> str:
    ratios = [c.ratio.value for c in by_condition if c.ratio.low is not None]
    if overall.depends and len(ratios) > 1:
        return span(ratios)
    return "–" if overall.comparison.ratio.low is None else indexed(overall.comparison.ratio.value)


def span(ratios: Sequence[float]) -> str:
    """The lowest and highest index, with 100 as the baseline; one number if both are written alike."""
    ends = dict.fromkeys(f"{100 * ratio:,.0f}" for ratio in (min(ratios), max(ratios)))
    return "–".join(ends)


def _verdict(overall: Overall, by_condition: list[Comparison]) -> tuple[str, str]:
    verdicts = {c.verdict for c in by_condition} if overall.depends else {overall.comparison.verdict}
    if len(verdicts) > 1:
        return "depends", "depends"
    verdict = verdicts.pop()
    return verdict_word(overall.response, verdict), verdict or "none"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
