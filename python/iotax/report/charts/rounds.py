"""The ratio to the baseline round by round: shows bursts, drift within sessions, and the effect of a fresh start."""

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
        lambda width: _draw(summary, looks, arms, width, heading if width > PANEL_PX else response.title),
        WIDE_PX,
    )


def _draw(summary: Summary, looks: dict[str, Look], found: list[ArmRounds], width_px: int, heading: str) -> Spec:
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
