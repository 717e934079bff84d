"""The table at the end of a run: each treatment, absolute and relative to the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from iotax.cli.console import console
from iotax.notebook import Notebook
from iotax.study import Study
from iotax.study.model import format_level
from iotax.trial import LevelValue, TrialResult
from iotax.units import show_rate


def print_summary(notebook: Notebook, run: int) -> None:
    """Geometric means over the runs of each treatment; relative values take the baseline as 100."""
    study = notebook.study(run)
    cells: dict[tuple[LevelValue, ...], list[TrialResult]] = {}
    for trial in notebook.trials(run):
        cells.setdefault(tuple(trial.treatment.values()), [])
    for attempt in notebook.attempts(run):
        if attempt.result is not None:
            cells[tuple(attempt.trial.treatment.values())].append(attempt.result)
    factors = list(study.levels())
    # Rows in the study's own order, not in the order of the runs.
    places = [{level.value: place for place, level in enumerate(levels)} for levels in study.levels().values()]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for factor in factors:
        table.add_column(factor)
    for title in ("IOPS", "relative", "mean µs", "p50 µs", "p99 µs", "CPU µs/IO", "target µs/IO", "runs"):
        table.add_column(title, justify="right", no_wrap=True)
    for cell in sorted(cells, key=lambda each: [places[index][value] for index, value in enumerate(each)]):
        results = cells[cell]
        base = cells.get(_baseline_cell(study, factors, cell), [])
        levels = [format_level(factor, value) for factor, value in zip(factors, cell, strict=True)]
        table.add_row(*map(escape, levels), *_figures(results, base))
    console().print(table)


def _figures(results: list[TrialResult], base: list[TrialResult]) -> list[str]:
    rate = _mean([each.rate_iops for each in results])
    against = _mean([each.rate_iops for each in base])
    return [
        show_rate(rate) if rate else "–",
        f"{100 * rate / against:.0f}" if rate and against else "–",
        _us([each.latency_mean_ns for each in results]),
        _us([each.latency_ns(50) for each in results]),
        _us([each.latency_ns(99) for each in results]),
        _us([each.cpu_per_io_ns("initiator") for each in results]),
        _us([each.cpu_per_io_ns("target") for each in results]),
        str(len(results)),
    ]


def _baseline_cell(study: Study, factors: list[str], cell: tuple[LevelValue, ...]) -> tuple[LevelValue, ...]:
    """The treatment that `cell` is compared with: its own levels but for the factors that the baseline names."""
    levels = [(study.baseline_level(factor), value) for factor, value in zip(factors, cell, strict=True)]
    return tuple(level.value if level else value for level, value in levels)


def _us(values: Sequence[float | None]) -> str:
    mean = _mean(values)
    return "–" if mean is None else f"{mean / 1000:.3g}" if mean < 1e6 else f"{mean / 1000:,.0f}"


def _mean(values: Sequence[float | None]) -> float | None:
    """Geometric; None where a value is missing or zero."""
    known = [value for value in values if value is not None and value > 0]
    if not known or len(known) < len(values):
        return None
    return math.exp(math.fsum(map(math.log, known)) / len(known))
