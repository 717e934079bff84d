"""Results as a table for the terminal and as a page of the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.results import Result, Side

_HEADINGS = ("load", "pair", "IOPS", "p50 µs", "p99 µs", "CPU µs an I/O (initiator / target)", "ratio", "goal")


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Two rows for a comparison, ours with the ratio; one where ours stands alone."""
    found: list[tuple[str, ...]] = []
    for result in results:
        if result.ours is not None:
            found.append((result.load, *_side(result.ours), _ratio(result), _goal(result)))
        if result.theirs is not None:
            found.append(("", *_side(result.theirs), "", ""))
    return found


def _goal(result: Result) -> str:
    if result.goal is None:
        return ""
    wanted = f"≥ {result.goal:g}"
    # What only disturbed samples say proves nothing either way.
    if result.ratio is None or not result.ratio.trusted:
        return wanted
    return f"{wanted}: {'met' if result.ratio.mean >= result.goal else 'not met'}"


def _side(side: Side) -> tuple[str, ...]:
    target = "" if side.target_cpu_us is None else f" / {side.target_cpu_us:.2f}"
    return (
        side.name,
        f"{side.rate_iops:,.0f}",
        _number(side.latency_p50_us),
        _number(side.latency_p99_us),
        f"{side.initiator_cpu_us:.2f}{target}",
    )


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


def text(results: Sequence[Result]) -> str:
    """For the terminal."""
    lines = [_HEADINGS, *rows(results)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(_HEADINGS))]
    table = "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join([table, *_skipped(results)])


def _skipped(results: Sequence[Result]) -> list[str]:
    return sorted({f"not compared with {each.theirs_name}: {each.skipped}" for each in results if each.skipped})


def page(results: Sequence[Result], environment: dict[str, Any], command: str, versions: dict[str, str]) -> str:
    """`docs/performance.md`."""
    machine = environment.get("machine", {})
    parts = [
        "# Performance",
        "",
        f"Made by `{command}`; bench/README.md says how it measures. Ratios are ours to theirs, in turns in one run:"
        " the geometric mean of the undisturbed pairs, the least and the greatest; figures are medians of the samples"
        " that count. Compare within this page only.",
        "",
        f"- machine: {machine.get('cpu_model', 'unknown')}, {machine.get('cpus', '?')} processors"
        f"{', a virtual machine' if machine.get('hypervisor') else ''};"
        f" {machine.get('system', '')}, Linux {machine.get('kernel', '')}",
        f"- iotax {environment.get('iotax', '')}, commit {environment.get('commit', 'unknown')}",
        *(f"- {name}: {version}" for name, version in versions.items()),
        "",
        f"| {' | '.join(_HEADINGS)} |",
        f"|{'---|' * len(_HEADINGS)}",
        *(f"| {' | '.join(row)} |" for row in rows(results)),
        "",
        *(f"- {line}" for line in _skipped(results)),
    ]
    return "\n".join(parts).rstrip() + "\n"
