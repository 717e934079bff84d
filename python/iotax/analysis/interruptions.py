"""Interruptions: how long a run stood still and for how many I/Os, and whether to show that unasked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iotax.analysis.recovery import MedianRecovery, Recovery, median_recovery, recoveries
from iotax.analysis.responses import LONGEST_GAP, SLOW, Run
from iotax.analysis.signed_rank import Shift, shift
from iotax.analysis.summary import CellSummary, Summary
from iotax.design.power import each_of, pairs_needed

GAP_MS_MIN = 1000.0
"""A gap this long is shown even if the study did not ask for it,"""
GAP_IOS_MIN = 20
"""if at the run's mean rate so many I/Os would have completed in it: at a low rate a second without I/O is usual."""


@dataclass(frozen=True)
class Interruptions:
    """The interruptions over all runs of a treatment."""

    longest_ms: float | None
    """The longest gap without I/O in any run; None if none was measured."""
    is_bound: bool
    """The gap is only an upper bound."""
    one_client: bool
    """For some run it is the longest gap of any one client: their clocks cannot show a gap of all of them."""
    recovery: MedianRecovery | None
    """None without events, or if it cannot be known."""
    slow: Mapping[str, float | None]
    """I/Os per run slower than each of `SLOW`; None if latencies are not known."""


def interruptions(runs: Sequence[Run]) -> Interruptions:
    known = [run.result.gaps for run in runs if run.result.gaps is not None]
    longest = max(known, key=lambda gaps: gaps.longest_ns, default=None)
    counts = {name: [run.result.slow_ios(over_ns) for run in runs] for name, over_ns in SLOW.items()}
    return Interruptions(
        None if longest is None else longest.longest_ns / 1e6,
        longest is not None and longest.is_bound,
        any(gaps.of == "client" for gaps in known),
        median_recovery(each for run in runs for each in recoveries(run.result)),
        {name: _mean(each) for name, each in counts.items()},
    )


def _mean(counts: Sequence[int | None]) -> float | None:
    some = [count for count in counts if count is not None]
    return sum(some) / len(some) if some and len(some) == len(counts) else None


@dataclass(frozen=True)
class Delay:
    """How much later than with the baseline throughput is back after the same events; negative: sooner."""

    cell: CellSummary
    seconds: Shift
    events: int
    """Pairs of events at the same moment of the same block."""
    needed: int
    """Fewer events than these give no interval."""


def delays(summary: Summary) -> list[Delay]:
    """For each treatment beside the baseline of its condition, with intervals that hold together (Bonferroni). Events
    of a block happen at the same moments of all its runs, so each is compared with its own counterpart. Empty without
    events, if nothing can be paired, or if replicates were added after results were known."""
    if summary.data.looks:
        return []
    bases = {cell.condition: _by_event(cell) for cell in summary.cells if cell.arm == summary.grid.baseline_arm}
    others = [cell for cell in summary.cells if cell.arm != summary.grid.baseline_arm]
    paired = [(cell, _differences(_by_event(cell), bases.get(cell.condition, {}))) for cell in others]
    compared = [(cell, found) for cell, found in paired if found]
    confidence = each_of(len(compared), summary.data.confidence)
    needed = pairs_needed(confidence)
    return [Delay(cell, shift(found, confidence), len(found), needed) for cell, found in compared]


def _by_event(cell: CellSummary) -> dict[tuple[int, int, int], Recovery]:
    """By block, replicate and the event's place in the run."""
    return {
        (run.trial.block, run.trial.replicate, number): each
        for run in cell.runs
        for number, each in enumerate(recoveries(run.result))
    }


def _differences(
    own: Mapping[tuple[int, int, int], Recovery], base: Mapping[tuple[int, int, int], Recovery]
) -> list[tuple[float, float]]:
    """Bounds of each difference, in seconds: a recovery that was not seen may take any longer time."""
    found = []
    for event in sorted(own.keys() & base.keys()):
        one, other = own[event], base[event]
        known = one.seconds - other.seconds
        found.append((-math.inf if other.is_bound else known, math.inf if one.is_bound else known))
    return found


def asked(summary: Summary) -> bool:
    """Whether the study asks for any of it."""
    return bool({LONGEST_GAP.key, "slow_ios", "recovery_time"} & {*summary.data.study.responses})


def worth_showing(summary: Summary) -> bool:
    """Whether the study asked for them, or some were found."""
    runs = [run for cell in summary.cells for run in cell.runs]
    return asked(summary) or any(run.result.events or _stood_still(run) for run in runs)


def _stood_still(run: Run) -> bool:
    gap_ms = LONGEST_GAP.of(run) or 0.0
    return (gap_ms >= GAP_MS_MIN and gap_ms / 1e3 * run.result.rate_iops >= GAP_IOS_MIN) or bool(
        run.result.slow_ios(max(SLOW.values()))
    )
