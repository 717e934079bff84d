"""Results as a table, for the terminal and the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.document import Document
from bench.results import Result, Side

HEADINGS = (
    "load",
    "pair",
    "IOPS",
    "p50 µs",
    "p99 µs",
    "CPU µs per I/O (initiator / target)",
    "sleeps per I/O",
    "ratio",
    "goal",
)


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Two rows for a comparison, ours with the ratio; one row if there is only ours."""
    found: list[tuple[str, ...]] = []
    for result in results:
        if result.ours is not None:
            found.append((result.load, *_side(result.ours), _ratio(result), _goal(result)))
        if result.theirs is not None:
            found.append(("", *_side(result.theirs), "", ""))
    return found


def _goal(result: Result) -> str:
    parts = []
    if result.goal is not None:
        parts.append(f"≥ {result.goal:g}{_VERDICTS[result.rate_met]}")
    if result.cpu_goal:
        parts.append(f"CPU ≤ theirs{_VERDICTS[result.cpu_met]}")
    return ", ".join(parts)


_VERDICTS = {None: "", True: ": met", False: ": not met"}


def _side(side: Side) -> tuple[str, ...]:
    return (
        side.name,
        f"{side.rate_iops:,.0f}",
        _number(side.latency_p50_us),
        _number(side.latency_p99_us),
        _both(side.initiator_cpu_us, side.target_cpu_us),
        _both(side.initiator_sleeps_an_io, side.target_sleeps_an_io),
    )


def _both(initiator: float | None, target: float | None) -> str:
    return " / ".join(f"{value:.2f}" for value in (initiator, target) if value is not None)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _ratio(result: Result) -> str:
    ratio = result.ratio
    if ratio is None:
        return "(not compared)"
    text = f"{ratio.mean:.2f} ({ratio.least:.2f} to {ratio.greatest:.2f}, {ratio.pairs} pairs)"
    if not ratio.trusted:
        return f"[{text}, all disturbed]"
    return f"{text}, {ratio.disturbed} left out" if ratio.disturbed else text


def text(document: Document) -> str:
    """Text for the terminal."""
    lines = [HEADINGS, *rows(document.results)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEADINGS))]
    table = "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join([table, *accounting(document), *skipped(document.results), *failed(document.results)])


def skipped(results: Sequence[Result]) -> list[str]:
    """What was not measured, with the reason."""
    return [
        f"{each.load}: {each.ours_name} not compared with {each.theirs_name}: {each.skipped}"
        for each in results
        if each.skipped
    ]


def failed(results: Sequence[Result]) -> list[str]:
    """Failed samples, by reason."""
    return [
        f"{each.load}: {count} of {each.ours_name if side == 'ours' else each.theirs_name} failed: {reason}"
        for each in results
        for (side, reason), count in Counter((one.side, one.reason) for one in each.failures).items()
    ]


def accounting(document: Document) -> list[str]:
    """The cost of accounting for an I/O, as a share of the load's CPU time for a 4K NVMe/TCP read at depth 32."""
    if not document.accounting_ns:
        return []
    recorder_ns, ledger_ns = document.accounting_ns["recorder_ns"], document.accounting_ns["ledger_ns"]
    sides = [each.ours for each in document.results if (each.group, each.load) == _ACCOUNTED and each.ours]
    share = (
        f", {recorder_ns / sides[0].initiator_cpu_us / 10:.1f} % of the load's processor time for it" if sides else ""
    )
    return [
        f"accounting of an I/O: {recorder_ns:.1f} ns (histograms, series, I/Os outstanding; always on){share};"
        f" with verification {ledger_ns:.1f} ns more for each write's entry in the ledger"
    ]


_ACCOUNTED = ("nvme", "NVMe/TCP 4K random read, depth 32")
