"""Ratios in a study by rounds: round by round, and the sources of their scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iotax.analysis.data import Cell, Grid
from iotax.analysis.responses import Response, Run
from iotax.analysis.rounds import SLICED, Scatter, scatter, slice_logs
from iotax.design.power import block_reach

SESSIONS_MAX = 1000


@dataclass(frozen=True)
class RoundRatio:
    """An arm to the baseline in one round, the geometric mean over the conditions."""

    session: int
    round: int
    log_ratio: float


@dataclass(frozen=True)
class ArmRounds:
    """Every round of an arm, in the order in which they ran."""

    arm: str
    rounds: list[RoundRatio]

    @property
    def by_session(self) -> list[list[float]]:
        sessions = dict.fromkeys(each.session for each in self.rounds)
        return [[each.log_ratio for each in self.rounds if each.session == session] for session in sessions]


@dataclass(frozen=True)
class SessionScatter:
    """Results for one response, over all arms."""

    response: Response
    sessions: int
    share_of_sessions: float
    """The share of a fresh start in the variance of a session's ratio; its slices cause the rest."""


def arm_rounds(runs: Sequence[Run], grid: Grid, response: Response) -> list[ArmRounds]:
    """Each arm except the baseline and local. Empty for a response that slices do not have, or without rounds. A round
    counts only conditions in which both arms were measured completely, so never those of two whole plots."""
    value = SLICED.get(response.key)
    if value is None:
        return []
    logs: dict[tuple[int, Cell], dict[int, float]] = {}
    for run in runs:
        if run.result.slices and (found := slice_logs(run.result, value)) is not None:
            logs[run.trial.block, grid.cell(run.trial)] = found
    apart: dict[str, dict[tuple[int, int], list[float]]] = {}
    for (session, cell), own in logs.items():
        base = logs.get((session, grid.baseline_of(cell)))
        apart_in_time = grid.hard_levels(cell) != grid.hard_levels(grid.baseline_of(cell))
        if base is None or base is own or apart_in_time or grid.is_local(cell):
            continue
        rounds = apart.setdefault(grid.arm(cell), {})
        for number in own.keys() & base.keys():
            rounds.setdefault((session, number), []).append(own[number] - base[number])
    return [
        ArmRounds(arm, [RoundRatio(*at, float(np.mean(apart[arm][at]))) for at in sorted(apart[arm])])
        for arm in grid.arms
        if arm in apart
    ]


def session_scatter(runs: Sequence[Run], grid: Grid, response: Response) -> SessionScatter | None:
    """None without rounds, or with fewer than two sessions."""
    arms = arm_rounds(runs, grid, response)
    parts = [part for arm in arms if (part := scatter(arm.by_session)) is not None]
    if not parts:
        return None
    whole = Scatter(sum(part.sessions for part in parts), sum(part.slices for part in parts))
    sessions = min(len(arm.by_session) for arm in arms)
    return SessionScatter(response, sessions, whole.share_of_sessions)


def for_width(sessions: int, share: float) -> int | None:
    """Sessions, or replicates, whose interval is this share as wide as that of the present number: t(n - 1) / √n
    reaches it. None if it takes more than 1,000."""
    wanted = share * block_reach(sessions) / math.sqrt(sessions)
    more = range(sessions, SESSIONS_MAX + 1)
    return next((count for count in more if block_reach(count) / math.sqrt(count) <= wanted * (1 + 1e-9)), None)
