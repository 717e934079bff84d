"""The tax: what each protocol adds to an I/O."""

from __future__ import annotations

from iotax.analysis import Estimate, Summary
from iotax.redaction import redact
from iotax.report.section import Section, Source, Table, Text, note
from iotax.report.tables import Column, Figure, Group, Row, capital, interval
from iotax.wording import figure, title


def section(source: Source) -> Section | None:
    summary = source.summary
    if not summary.taxes:
        return None
    columns = [
        Column("Latency", "added to the mean"),
        Column("CPU", f"added per I/O, {summary.taxes[0].cpu_of.title.split(', ')[-1]}"),
        Column("Throughput", "against local"),
    ]
    lead = (
        "What each protocol adds to an I/O compared with the same volume reached locally under the same load, and the "
        "share of the local throughput that is lost."
    )
    table = Table(columns, _groups(summary), "Tax of each protocol")
    return Section("tax", "The tax", [Text(lead), table, note(_how_local(summary), "How local was reached.")], "Tax")


def _groups(summary: Summary) -> list[Group]:
    groups: dict[str, list[Row]] = {}
    for tax in summary.taxes:
        figures = [
            _added(tax.latency_us),
            _added(tax.cpu_us) if tax.cpu_us else Figure("–"),
            _lost(tax.throughput_percent) if tax.throughput_percent else Figure("–"),
        ]
        groups.setdefault(tax.condition, []).append(Row(tax.arm, title(tax.arm), figures))
    return [Group(capital(condition), rows) for condition, rows in groups.items()]


def _added(estimate: Estimate) -> Figure:
    sign = "+" if estimate.value >= 0 else ""
    return Figure(f"{sign}{figure(estimate.value)} µs", interval(estimate))


def _lost(estimate: Estimate) -> Figure:
    """Throughput as a change: a loss is below zero."""

    def text(value: float) -> str:
        return f"{-value:+.1f}".replace("-", "−")

    if estimate.low is None or estimate.high is None or estimate.alike:
        return Figure(f"{text(estimate.value)} %")
    return Figure(f"{text(estimate.value)} %", f"{text(estimate.high)} to {text(estimate.low)}")


def _how_local(summary: Summary) -> str:
    run = next((r for r in summary.data.runs if r.local), None)
    if run is None:
        return ""
    if run.result.facts.stack == "user":
        return (
            "The load process maps the memory of the server's own volume and copies blocks: the same bytes, without "
            "protocol, socket or system call. It is the lower bound for every protocol here, not a disk."
        )
    return (
        f"The load process opens {redact(run.result.endpoint.partition(':')[2])} itself and reads and writes it "
        "without a protocol."
    )
