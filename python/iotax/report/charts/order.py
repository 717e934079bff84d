"""Runs and rounds in the order of measurement: shows drift, bursts, outliers, and the effect of a fresh start."""

import itertools
import math

from iotax.analysis import Response, Summary
from iotax.analysis.rounds import hodges_lehmann
from iotax.analysis.sessions import ArmRounds, arm_rounds
from iotax.report.charts.base import (
    PANEL_PX,
    WIDE_PX,
    Drawing,
    arm_titles,
    boundaries,
    colour,
    dots,
    file_name,
    parted,
    percents,
    shape,
)
from iotax.report.charts.vega import Spec, layer, number, picture
from iotax.report.palette import Look, ref
from iotax.wording import signed, title

HEIGHT_PX = 240


def run_order(summary: Summary, looks: dict[str, Look], response: Response) -> Drawing | None:
    model = summary.models[response.key]
    if len(model.observed) < 2:
        return None
    heading = f"{response.title} of each run against the mean of its treatment"
    return Drawing(
        file_name("run order", response.key),
        heading,
        "Percent above or below the mean of the same treatment, in run order. Vertical lines separate the blocks. "
        "A slope is drift, a step a change of the machine; comparisons within blocks exclude both.",
        lambda width: _draw_runs(summary, looks, response, width, heading if width > PANEL_PX else response.title),
        WIDE_PX,
    )


def _draw_runs(summary: Summary, looks: dict[str, Look], response: Response, width_px: int, heading: str) -> Spec:
    model, names = summary.models[response.key], arm_titles(summary)
    rows: list[Spec] = []
    for place, ((run, value), cell) in enumerate(zip(model.observed, model.cells, strict=True), start=1):
        mean = model.absolute(cell)
        assert mean is not None
        off = value / mean.value - 1
        arm = summary.grid.arm(cell)
        text = f"run {place}: {names[arm]}, {summary.grid.condition(cell)}, block {run.trial.block}: {signed(off)}"
        rows.append({"x": place, "y": 100 * off, "arm": arm, "block": run.trial.block, "say": text})
    arms = [arm for arm in summary.grid.arms if any(r["arm"] == arm for r in rows)]
    reach, y = percents(r["y"] for r in rows)
    firsts: dict[str, int] = {}
    for row in rows:
        firsts.setdefault(f"block {row['block']}", row["x"])
    edges, labels = boundaries(firsts, reach)
    places_axis = {"title": "Runs in run order", "tickMinStep": 1, "format": "d", "tickCount": 8}
    x = number("x", {"domain": [0.3, len(rows) + 0.7], "nice": False}, places_axis)
    layers = [
        layer("rule", [{"y": 0}], {"y": y}, color=ref("axis")),
        dots(rows, {"x": x, "y": y, "color": colour(looks, arms), "shape": shape(looks, arms)}, size=44),
    ]
    return picture([*layers, *parted(edges, labels, x, y, width_px)], width_px, HEIGHT_PX, heading)


def rounds(summary: Summary, looks: dict[str, Look], response: Response) -> Drawing | None:
    """None for a study that was not measured in rounds."""
    arms = arm_rounds(summary.data.runs, summary.grid, response)
    if not arms:
        return None
    base = title(summary.grid.baseline_arm)
    heading = f"{response.title}: ratio to {base}, round by round"
    return Drawing(
        file_name("rounds", response.key),
        heading,
        f"Percent above or below {base} in the same round, the mean over all loads; lines are each session's value. "
        "Vertical lines separate the sessions. An outlier is a disturbed slice; a step between sessions is the effect "
        "of a fresh start. Intervals are computed over sessions.",
        lambda width: _draw_rounds(summary, looks, arms, width, heading if width > PANEL_PX else response.title),
        WIDE_PX,
    )


def _draw_rounds(summary: Summary, looks: dict[str, Look], found: list[ArmRounds], width_px: int, heading: str) -> Spec:
    names = arm_titles(summary)
    at = {place: x for x, place in enumerate(sorted({(r.session, r.round) for a in found for r in a.rounds}), start=1)}
    points: list[Spec] = []
    levels: list[Spec] = []
    for arm in found:
        for session, group in itertools.groupby(arm.rounds, lambda each: each.session):
            rounds_of = list(group)
            for each in rounds_of:
                off = math.expm1(each.log_ratio)
                say = f"{names[arm.arm]}, session {session}, round {each.round}: {signed(off)}"
                points.append({"x": at[session, each.round], "y": 100 * off, "arm": arm.arm, "say": say})
            level = math.expm1(hodges_lehmann([each.log_ratio for each in rounds_of]))
            say = f"{names[arm.arm]}, session {session}: {signed(level)}"
            ends = (rounds_of[0].round, rounds_of[-1].round)
            levels.append(
                {
                    "x": at[session, ends[0]] - 0.4,
                    "x2": at[session, ends[1]] + 0.4,
                    "y": 100 * level,
                    "arm": arm.arm,
                    "say": say,
                }
            )
    reach, y = percents(point["y"] for point in points)
    firsts: dict[str, int] = {}
    for (session, _), place in at.items():
        firsts.setdefault(f"session {session}", place)
    edges, labels = boundaries(firsts, reach)
    x = number(
        "x", {"domain": [0.3, len(at) + 0.7], "nice": False}, {"title": "Round", "labels": False, "ticks": False}
    )
    arms = [arm.arm for arm in found]
    layers = [
        layer("rule", [{"y": 0}], {"y": y}, color=ref("axis")),
        layer("rule", levels, {"x": x, "x2": {"field": "x2"}, "y": y, "color": colour(looks, arms)}, strokeWidth=2),
        dots(points, {"x": x, "y": y, "color": colour(looks, arms), "shape": shape(looks, arms)}, size=36),
    ]
    return picture([*layers, *parted(edges, labels, x, y, width_px)], width_px, HEIGHT_PX, heading)
