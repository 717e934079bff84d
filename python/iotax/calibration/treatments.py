"""Measured treatments and their simulations."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from iotax.analysis.data import StudyData
from iotax.analysis.responses import Run
from iotax.design.treatments import name_of, treatments
from iotax.labs.sim.lab import simulate, world
from iotax.study.connection import Connection
from iotax.study.endpoint import SIM, Endpoint
from iotax.study.model import Settings
from iotax.study.sim import CostTable
from iotax.study.topology import FIBRE_CHANNEL_FRAMES
from iotax.trial import TrialResult

SIDES = ("initiator", "target")

_WARMUP_NS, _WINDOW_NS = 5_000_000, 20_000_000
_TIMES_VARIED = 5
"""Factor on warm-up and window if turns vary, so that their mean is known well enough."""
_IOS_MIN = 500
"""I/Os of a window, at the rate of an open loop or as fast as one processor did the measured work."""
_SLOW_IOS_MIN = 50
"""I/Os of a window if each waits for every cost of both sides."""
_WARMUP_SHARE = 5
"""In a longer window, the warm-up is this fraction."""
_VOLUME_BYTES = 64 << 20
_LINK = {"rate_bits_per_s": 400_000_000_000, "delay_ns": 0}
"""One that limits nothing."""
_LOOPBACK_MTU_BYTES = 9000


class NothingMeasured(Exception):  # noqa: N818 - an answer, not a bug
    """A notebook holds nothing whose costs a simulation can tell; says why."""


@dataclass(frozen=True)
class Treatment:
    """A treatment that was measured in every block, and its simulation."""

    name: str
    levels: Mapping[str, str]
    """Factor → the label of its level."""
    protocol: str
    document: dict[str, Any]
    """Without costs."""
    measured_ns: Mapping[str, Mapping[int, float]]
    """Side → block → CPU time per I/O."""
    gaps_ns: Mapping[int, float] | None
    """Block → time from one I/O's end to the next one's, over loopback where nothing but threads takes time."""
    alone: bool
    """One I/O at a time."""
    halves: bool
    """Both ends stood in one kernel, whose CPU time is taken in equal parts for theirs."""


def measured_treatments(data: StudyData, source: str, base: CostTable, left_out: list[str]) -> list[Treatment]:
    """The treatments whose costs a simulation can split, in the order of the study, and why the others are left out.
    `source` names the notebook and its run. Raises NothingMeasured."""
    if data.simulated:
        raise NothingMeasured(f"{source} is simulated: costs come from measurements")
    groups: dict[str, list[Run]] = {}
    reasons: dict[str, int] = {}
    for run in data.runs:
        reason = _unfit(run, base)
        if reason:
            reasons[reason] = reasons.get(reason, 0) + 1
        else:
            groups.setdefault(run.trial.levels, []).append(run)
    left_out += [f"{count} runs: {reason}" for reason, count in reasons.items()]
    if not groups:
        why = "; ".join(left_out) or "it holds no runs"
        raise NothingMeasured(f"{source} holds nothing whose costs can be told: {why}")
    factors = data.study.levels()
    named = {
        name_of(each): {name: level.label for name, level in zip(factors, each, strict=True)}
        for each in treatments(data.study)
    }
    return [_treatment(data, name, levels, groups[name]) for name, levels in named.items() if name in groups]


def split(
    treatments: Sequence[Treatment], only: Mapping[str, Sequence[str]]
) -> tuple[list[Treatment], list[Treatment]]:
    """The treatments with one of the given levels of every named factor, and the others. Raises NothingMeasured."""
    for factor, labels in only.items():
        known = list(dict.fromkeys(each.levels.get(factor, "") for each in treatments))
        if known == [""]:
            raise NothingMeasured(f"{factor} is not a factor here; there is {', '.join(treatments[0].levels)}")
        for label in labels:
            if label not in known:
                raise NothingMeasured(f"{factor} has no level {label} here; there is {', '.join(known)}")
    chosen = [each for each in treatments if all(each.levels[name] in labels for name, labels in only.items())]
    return chosen, [each for each in treatments if each not in chosen]


def simulated(
    treatments: Sequence[Treatment],
    costs_of: Callable[[Treatment], Mapping[str, Mapping[str, int]]],
    program: Path,
) -> list[TrialResult]:
    """Each with these costs of its two sides, as the engine's documents say them; side by side, on all processors that
    this may use. Raises TrialFailed, EngineError."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(lambda each: _simulated(each, costs_of(each), program), treatments))


def _simulated(treatment: Treatment, costs: Mapping[str, Mapping[str, int]], program: Path) -> TrialResult:
    document = dict(treatment.document)
    times = _TIMES_VARIED if any(costs[side]["turn_cv_percent"] for side in SIDES) else 1
    # A disturbed measurement can make an I/O take longer than the window that the other treatments need.
    slow_ns = sum(cost for side in SIDES for name, cost in costs[side].items() if name.endswith("_ns"))
    times = max(times, -(-_SLOW_IOS_MIN * slow_ns // document["load"]["runtime_ns"]))
    longer = {name: document["load"][name] * times for name in ("warmup_ns", "runtime_ns")}
    document["load"] = document["load"] | longer
    for key, side in (("initiators", "initiator"), ("target", "target")):
        document[key] = document[key] | {"costs": costs[side]}
    return simulate(program, document, lambda _: None).result


def _unfit(run: Run, base: CostTable) -> str:
    facts, result = run.result.facts, run.result
    if facts.protocol not in SIM:
        return f"{facts.protocol} is not simulated"
    if facts.protocol not in base.protocols:
        return f"the table has no costs of {facts.protocol}"
    if result.generator != "iotax":
        return f"{result.generator}'s own CPU time is in them"
    if facts.polling in ("auto", "always"):
        return "their threads polled, and were busy without work"
    if not result.ios or any(not _per_io_ns(result, side) for side in SIDES):
        return "CPU per I/O is not known of both sides"
    return ""


def _halves(result: TrialResult) -> bool:
    """Whether both ends stood in one kernel of the vm lab."""
    return any(part.role == "both" for part in result.cpu)


def _per_io_ns(result: TrialResult, side: Literal["initiator", "target"]) -> float | None:
    if not _halves(result):
        return result.cpu_per_io_ns(side)
    together_ns = result.cpu_per_io_ns("machine")
    return None if together_ns is None else together_ns / 2


def _treatment(data: StudyData, name: str, levels: Mapping[str, str], runs: list[Run]) -> Treatment:
    settings = data.study.settings(runs[0].trial.treatment)
    facts = runs[0].result.facts
    burn_ns = settings.volume.burn
    window_ns = _WINDOW_NS
    if settings.load.rate_iops:
        window_ns = max(window_ns, _IOS_MIN * 1_000_000_000 // round(settings.load.rate_iops))
    size = min(settings.volume.size, _VOLUME_BYTES)
    measured: dict[str, dict[int, list[float]]] = {side: {} for side in SIDES}
    for run in runs:
        for side in SIDES:
            spent_ns = _per_io_ns(run.result, side)
            assert spent_ns is not None, "such runs were left out"
            measured[side].setdefault(run.trial.block, []).append(spent_ns)
    means = {side: {at: sum(each) / len(each) for at, each in blocks.items()} for side, blocks in measured.items()}
    means["target"] = {at: max(0.0, each - burn_ns) for at, each in means["target"].items()}
    window_ns = max(window_ns, round(_IOS_MIN * max(max(blocks.values()) for blocks in means.values())))
    warmup_ns = max(_WARMUP_NS, window_ns // _WARMUP_SHARE if window_ns > _WINDOW_NS else 0)
    takes_time = settings.volume.media != "memory" or settings.volume.delay or burn_ns or settings.load.rate_iops
    gaps = None if takes_time or facts.lab != "loopback" else _gaps(runs)
    asked = runs[0].result.outstanding
    volume = {"size": size, "media": "memory", "path": None, "fill": "zeros", "burn": 0, "delay": 0}
    load = {"warmup": warmup_ns, "runtime": window_ns, "verify": False, "clients": None, "working_set": None}
    settings = replace(
        settings,
        endpoint=Endpoint(facts.protocol),
        connection=Connection(),
        load=settings.load.model_copy(update=load),
        volume=settings.volume.model_copy(update=volume),
    )
    mtu_bytes = _LOOPBACK_MTU_BYTES if facts.lab == "loopback" else settings.topology.mtu
    document = _document(settings, mtu_bytes, facts.threads or 1, facts.target_threads or 1)
    alone = (asked.workers, asked.per_worker) == (1, 1)
    return Treatment(name, levels, facts.protocol, document, means, gaps, alone, _halves(runs[0].result))


def _gaps(runs: list[Run]) -> dict[int, float]:
    gaps: dict[int, list[float]] = {}
    for run in runs:
        gaps.setdefault(run.trial.block, []).append(run.result.window.duration_ns / run.result.ios)
    return {block: sum(each) / len(each) for block, each in gaps.items()}


def _document(settings: Settings, mtu_bytes: int, threads: int, target_threads: int) -> dict[str, Any]:
    free: dict[str, Any] = {side: {} for side in SIDES}
    link = _LINK if settings.endpoint.protocol in FIBRE_CHANNEL_FRAMES else _LINK | {"mtu_bytes": mtu_bytes}
    return world(settings, 1, link, free, cores=(threads, target_threads), threads=target_threads)
