"""Treatments that were measured in rounds: one value of each session from its slices, and where the scatter comes from.

A slice is disturbed by what else the machine does in it. So a session's value of a treatment is not the mean of its
slices: what a round has in common is taken off first (the median of the treatments' distances from their own medians,
one step of Tukey's median polish), and the rest is summed up by its Hodges-Lehmann estimate, the median of all pairwise
means (Hodges and Lehmann 1963), which a few bad slices do not move. Both are fixed before any data. Everything is on
the log scale, so that differences are ratios. Sessions are the sample of every interval; slices never are (Kalibera
and Jones 2013).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from iotax.records import CpuTime
from iotax.trial import LevelValue, Slice, Trial, TrialResult

SliceValue: TypeAlias = Callable[[TrialResult, Slice], float | None]
"""Value of one slice, positive; None if it has none."""


def _done(result: TrialResult, part: Slice) -> float:
    """I/Os of a slice, including parts of those that its edges cut.

    By Little's law: the time that I/Os were outstanding within the slice over their mean latency. A count of whole I/Os
    is off by a part of one, and by the same part in slice after slice, since each starts alike. In an open loop latency
    counts from when an I/O was due, so whole I/Os are counted there.
    """
    if part.mean_outstanding is None or result.open is not None or not part.latency_sum_ns:
        return part.ios
    return part.mean_outstanding * part.duration_ns * part.ios / part.latency_sum_ns


def _rate(result: TrialResult, part: Slice) -> float | None:
    return _done(result, part) * 1e9 / part.duration_ns


def _bytes(result: TrialResult, part: Slice) -> float | None:
    return part.bytes * (_done(result, part) / part.ios) * 1e9 / part.duration_ns / (1 << 20) if part.ios else None


def _latency_us(_: TrialResult, part: Slice) -> float | None:
    return part.latency_sum_ns / 1e3 / part.ios if part.ios else None


def _initiator_us(result: TrialResult, part: Slice) -> float | None:
    return None if result.cpu.part("both") is not None else _load_us(result, part)


def _load_us(result: TrialResult, part: Slice) -> float | None:
    """CPU time of the machine with the load, which may be the target's, too."""
    if not part.ios or not _is_exact(result):
        return None
    spent_ns = part.initiator_cpu_ns
    if result.facts.stack != "user":
        spent_ns = part.machine_busy_ns - _idle_ns(_machine(result), part.duration_ns)
    return spent_ns / 1e3 / _done(result, part)


def _target_us(result: TrialResult, part: Slice) -> float | None:
    if part.target_cpu_ns is None or not part.ios or not _is_exact(result):
        return None
    return part.target_cpu_ns / 1e3 / _done(result, part)


def _both_us(result: TrialResult, part: Slice) -> float | None:
    load = _load_us(result, part)
    if load is None or result.facts.served == "nobody" or result.cpu.part("both") is not None:
        return load
    target = _target_us(result, part)
    return None if target is None else load + target


def _is_exact(result: TrialResult) -> bool:
    """A kernel's path is judged by the machine: ticks of its clock are too coarse for a slice."""
    machine = _machine(result)
    return result.facts.stack == "user" or (machine is not None and machine.resolution_ns == 0)


def _machine(result: TrialResult) -> CpuTime | None:
    """CPU time of the load's process, as read for its slices."""
    return result.cpu.part("both", "guest") or result.cpu.part("initiator", "guest", "machine")


def _idle_ns(machine: CpuTime | None, duration_ns: int) -> float:
    """Its background CPU time in such a period."""
    if machine is None or machine.background_ns is None or not machine.window_ns:
        return 0.0
    return machine.background_ns * duration_ns / machine.window_ns


SLICED: Mapping[str, SliceValue] = {
    "iops": _rate,
    "bandwidth": _bytes,
    "latency": _latency_us,
    "cpu": _both_us,
    "cpu_initiator": _initiator_us,
    "cpu_target": _target_us,
}
"""Response → its value in one slice. For quantiles, a session's histogram is better than its slices'."""


def values_by_session(
    done: Iterable[tuple[Trial, TrialResult]], hard: Sequence[str] = ()
) -> dict[str, dict[str, float]]:
    """Trial id → response → its value, of all that was measured in slices. `hard` are the factors of whole plots."""
    sessions: dict[tuple[LevelValue | None, ...], dict[str, TrialResult]] = {}
    for trial, result in done:
        if result.slices:
            # A search that runs a knee afresh once more has a session for it, in the same block.
            plot = (trial.treatment.get(name) for name in hard)
            sessions.setdefault((trial.block, trial.replicate, *plot), {})[trial.id] = result
    return {name: found for session in sessions.values() for name, found in session_values(session).items()}


def session_values(results: Mapping[str, TrialResult]) -> dict[str, dict[str, float]]:
    """Trial id → response → its value in this session, of the trials of one session that have slices.

    A response that some slice of a trial does not have is left out of that trial.
    """
    found: dict[str, dict[str, float]] = {name: {} for name in results}
    for response, value in SLICED.items():
        logs = {name: of for name, result in results.items() if (of := slice_logs(result, value)) is not None}
        for name, log in polished(logs).items():
            found[name][response] = math.exp(log)
    return found


def slice_logs(result: TrialResult, value: SliceValue) -> dict[int, float] | None:
    """Round → the logarithm of a slice's value; None if a slice has none."""
    values = {part.round: value(result, part) for part in result.slices}
    if not values or any(each is None or each <= 0 for each in values.values()):
        return None
    return {number: math.log(each) for number, each in values.items() if each is not None}


def polished(logs: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """Each treatment's Hodges-Lehmann estimate after removing what its rounds have in common."""
    off: dict[int, list[float]] = {}
    for rounds in logs.values():
        middle = float(np.median(list(rounds.values())))
        for number, log in rounds.items():
            off.setdefault(number, []).append(log - middle)
    # Two treatments cannot tell which of them a round disturbed.
    common = {number: float(np.median(each)) if len(each) > 2 else 0.0 for number, each in off.items()}
    return {name: hodges_lehmann([log - common[at] for at, log in rounds.items()]) for name, rounds in logs.items()}


def hodges_lehmann(values: Sequence[float]) -> float:
    """The median of the means of all pairs, each value with itself included."""
    some = np.asarray(values)
    first, second = np.triu_indices(len(some))
    return float(np.median((some[first] + some[second]) / 2))


@dataclass(frozen=True)
class Scatter:
    """Sources of scatter of a ratio to the baseline, as variances of its logarithm."""

    sessions: float
    """Variance from a fresh start; 0 if the slices explain all."""
    slices: float
    """Variance of a session's value due to its slices."""

    @property
    def share_of_sessions(self) -> float:
        whole = self.sessions + self.slices
        return self.sessions / whole if whole else 0.0


_SIGMA_OF_MAD = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
_VARIANCE_OF_HODGES_LEHMANN = math.pi / 3
"""Variance relative to that of the mean, for many normal values."""


def scatter(ratios: Sequence[Sequence[float]]) -> Scatter | None:
    """The sources of scatter of one ratio: its logarithms by session, a value per round. None for fewer than two
    sessions or rounds.

    The slices' part uses the median absolute deviation within sessions, so that bursts do not count. The sessions' part
    is the scatter of their estimates beyond it (method of moments, at least 0).
    """
    if len(ratios) < 2 or any(len(each) < 2 for each in ratios):
        return None
    within = [np.asarray(each) - np.median(each) for each in ratios]
    rounds = float(np.mean([len(each) for each in ratios]))
    sigma = _SIGMA_OF_MAD * float(np.median(np.abs(np.concatenate(within))))
    of_slices = _VARIANCE_OF_HODGES_LEHMANN * sigma**2 / rounds
    between = float(np.var([hodges_lehmann(each) for each in ratios], ddof=1))
    return Scatter(max(0.0, between - of_slices), min(of_slices, between) if between else of_slices)
