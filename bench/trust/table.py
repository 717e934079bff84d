"""The table of docs/results/statistics.md: the results of the runs, with the machine and the date."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from bench.trust.cases import CASES, RESPONSES, Case
from bench.trust.measure import Run
from bench.trust.precision import Precision
from bench.trust.resample import coverage

BEGIN, END = "<!-- real runs -->", "<!-- end of real runs -->"
_NAMES = {"iops": "IOPS", "latency": "mean latency", "cpu": "CPU per I/O"}
_DRAWS = 2000
_HEADINGS = (
    "case",
    "response",
    "runs",
    "trials disturbed",
    "significant difference, % (95 % CI)",
    "interval contains the truth, % (95 % CI)",
    "coverage, resampled",
    "half-width, median",
)


def lines(runs: dict[str, list[Run]], environment: dict[str, Any], design: str) -> list[str]:
    """Markdown. `runs`: case → its runs."""
    machine = environment.get("machine", {})
    said = [
        f"{datetime.now(tz=UTC):%Y-%m-%d}, {machine.get('cpu_model', 'unknown')}, {machine.get('cpus', '?')} processors"
        f"{', a virtual machine' if machine.get('hypervisor') else ''}, Linux {machine.get('kernel', '?')}. {design}",
        "",
        f"| {' | '.join(_HEADINGS)} |",
        f"|{'---|' * len(_HEADINGS)}",
    ]
    rows = [_row(case, response, runs.get(case.key, [])) for case in CASES for response in RESPONSES]
    said += [f"| {' | '.join(row)} |" for row in rows if row]
    return said


def precision_lines(found: Sequence[Precision]) -> list[str]:
    """Markdown with a line for each run of `quick`; empty without one."""
    if not found:
        return []
    titles = ("over all loads", "one load, median (worst)")
    heads = [f"{_NAMES[response]}, {title}" for response in ("iops", "cpu") for title in titles]
    table = [
        "",
        "One run of `quick`, half of the 95 % intervals of its ratios to the baseline:",
        "",
        f"| {' | '.join(['runs flagged', *heads, 'time spent measuring'])} |",
        f"|{'---|' * 6}",
    ]
    for each in found:
        cells = [f"{each.flagged} of {each.runs}"]
        for response in ("iops", "cpu"):
            overall, median, worst = each.half_widths.get(response, [None] * 3)
            cells += [_width(overall), f"{_width(median)} ({_width(worst)})"]
        share = "–" if each.measured_percent is None else f"{each.measured_percent:.0f} %"
        table.append(f"| {' | '.join([*cells, share])} |")
    return table


def _width(percent: float | None) -> str:
    return "–" if percent is None else f"±{percent:.1f} %"


def _row(case: Case, response: str, runs: Sequence[Run]) -> list[str] | None:
    found = [each for run in runs for each in run.found if each.response == response]
    if not found:
        return None
    rises = response != "iops"
    hits = [each.differs and (not case.injected or (each.ratio > 1) == rises) for each in found]
    widths = [100 * (each.high / each.low) ** 0.5 - 100 for each in found]
    resampled = "–"
    if not case.injected:
        pool = [session[response] for run in runs for session in run.slices if response in session]
        sessions = len(runs[0].slices)
        resampled = f"{100 * coverage(pool, sessions=sessions, draws=_DRAWS, seed=1):.1f} %"
    put_in = ""
    if case.injected:
        put_in = f", {100 * statistics.median(each.truth for each in found) - 100:+.1f} %".replace("-", "−")
    return [
        case.title,
        f"{_NAMES[response]}{put_in}",
        str(len(found)),
        f"{100 * statistics.mean(run.disturbed for run in runs):.0f} %",
        _share(sum(hits), len(found)),
        _share(sum(each.covers for each in found), len(found)),
        resampled,
        f"±{statistics.median(widths):.1f} %",
    ]


def _share(hits: int, of: int) -> str:
    """In percent, with Clopper and Pearson's interval."""
    interval = binomtest(hits, of).proportion_ci(0.95, method="exact")
    return f"{100 * hits / of:.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def put(page: Path, table: Sequence[str]) -> None:
    """Replaces the text between the marks. Raises ValueError if the page has none."""
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table: {BEGIN} … {END}")
    page.write_text("".join([before, begin, "\n", "\n".join(table), "\n", end, after]))
