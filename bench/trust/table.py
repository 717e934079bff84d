"""The tables of docs/results/statistics.md, one for each place where cases run: results, machine and date."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from bench.trust.cases import CASES, KERNEL, LOOPBACK, RESPONSES, SLICE_MS, SSH, Case
from bench.trust.measure import Run
from bench.trust.precision import Precision
from bench.trust.resample import EFFECT, resampled

_PLACES = {LOOPBACK: "real runs", SSH: "runs over SSH", KERNEL: "runs in a virtual machine"}
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
    f"{100 * EFFECT - 100:.0f} % more found, resampled, %",
    "half-width, median",
)


def lines(where: str, runs: dict[str, list[Run]], environment: dict[str, Any], design: str) -> list[str]:
    """Markdown; empty if nothing ran there. `runs`: case → its runs. `design`: sessions and rounds, in words."""
    rows = [
        _row(case, response, runs.get(case.key, [])) for case in CASES if case.where == where for response in RESPONSES
    ]
    if not any(rows):
        return []
    machine = environment.get("machine", {})
    said = [
        f"{datetime.now(tz=UTC):%Y-%m-%d}, {machine.get('cpu_model', 'unknown')}, {machine.get('cpus', '?')} processors"
        f"{', a virtual machine' if machine.get('hypervisor') else ''}, Linux {machine.get('kernel', '?')}. "
        f"Each run: {design}, slices of {SLICE_MS[where]} ms; 1 outstanding I/O of 4 KiB, 75 % read; NFSv3, iSCSI and "
        "NVMe/TCP in turns.",
        "",
        f"| {' | '.join(_HEADINGS)} |",
        f"|{'---|' * len(_HEADINGS)}",
    ]
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
    covered = detected = "–"
    if not case.injected:
        pool = [session[response] for run in runs for session in run.slices if response in session]
        drawn = resampled(pool, sessions=len(runs[0].slices), draws=_DRAWS, seed=1)
        covered, detected = f"{100 * drawn.covers:.1f} %", f"{100 * drawn.detects:.1f}"
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
        covered,
        detected,
        f"±{statistics.median(widths):.1f} %",
    ]


def _share(hits: int, of: int) -> str:
    """In percent, with Clopper and Pearson's interval."""
    interval = binomtest(hits, of).proportion_ci(0.95, method="exact")
    return f"{100 * hits / of:.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def marks(where: str) -> tuple[str, str]:
    """Around its table in the page."""
    return f"<!-- {_PLACES[where]} -->", f"<!-- end of {_PLACES[where]} -->"


def put(page: Path, where: str, table: Sequence[str]) -> None:
    """Replaces the text between the marks. Raises ValueError if the page has none."""
    text = page.read_text()
    begin, end = marks(where)
    before, found, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"{page} has no place for the table: {begin} … {end}")
    page.write_text("".join([before, begin, "\n", "\n".join(table), "\n", end, after]))
