"""The precision of one run of `quick`, and the share of its time spent measuring."""

from __future__ import annotations

from dataclasses import dataclass

from bench.trust.measure import collected
from iotax.analysis.precision import precisions
from iotax.analysis.validity import Severity, overall
from iotax.study.read import builtin_study

RESPONSES = ("iops", "cpu")


@dataclass(frozen=True)
class Precision:
    """Half-widths of the 95 % intervals of ratios to the baseline, in percent."""

    half_widths: dict[str, list[float | None]]
    """Response → over all loads; median of single loads; worst single load."""
    measured_percent: float | None
    flagged: int
    """Runs that are doubtful because of how they ran, of `runs`."""
    runs: int


def measure_quick() -> Precision | None:
    """None if a trial failed."""
    summary = collected("quick", builtin_study("quick"))
    if summary is None:
        return None
    widths = {
        each.response.key: [each.overall_percent, each.cell_median_percent, each.cell_worst_percent]
        for each in precisions(summary)
        if each.response.key in RESPONSES
    }
    share = summary.data.measuring_share
    checks = summary.run_checks.values()
    flagged = sum(overall(each) >= Severity.DOUBTFUL for each in checks)
    return Precision(widths, None if share is None else 100 * share, flagged, len(checks))
