"""The verdict as a table: one row for each comparison, its interval drawn beside it on one scale for all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iotax.analysis import Summary
from iotax.wording import brief, verdicts
from iotax.wording.trust import disturbed_trials

WIDTH, HEIGHT = 320, 22
"""Size of a row's drawing in its own coordinates."""
_EDGE = 8
_REACH_MIN, _REACH_MAX = 1.12, 12.0
"""Ratios at the ends of the scale. Values beyond are drawn at the edge, with an arrow."""
_TICKS = (1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0)
"""Ratios to the right of no difference; their inverses stand to the left."""
ROWS_MAX = 9
"""Rows shown at first; the others are folded."""


@dataclass(frozen=True)
class Row:
    """A comparison, and the position of its interval in the drawing."""

    arm: str
    """The verdict as in the data, for the row's colour."""
    line: brief.Line
    sentence: str
    low: float | None
    high: float | None
    points: tuple[float, ...]
    beyond: str
    """"left" or "right" if it ends outside the scale."""

    @property
    def said(self) -> str:
        """Text for readers who cannot see the drawing."""
        return " ".join(filter(None, (self.line.effect, self.line.interval, self.line.word)))


@dataclass(frozen=True)
class Forest:
    rows: list[Row]
    folded: list[Row]
    centre: float
    """Position of no difference."""
    band: tuple[float, float]
    """The margin within which differences are equivalent."""
    ticks: list[tuple[float, str]]
    lead: str
    """One sentence above."""


def forest(summary: Summary) -> Forest | None:
    """None if nothing is compared."""
    lines = brief.lines(summary)
    if not lines:
        return None
    sentences = {(each.subject, each.response_key): each.sentence for each in verdicts(summary)}
    ends = [end for line in lines for each in line.ratios for end in (each.value, each.low, each.high) if end]
    reach = math.log(min(_REACH_MAX, max(_REACH_MIN, *(max(end, 1 / end) for end in ends))))

    def at(ratio: float) -> float:
        share = math.log(ratio) / reach if ratio > 0 else -1.0
        return round(WIDTH / 2 + max(-1.0, min(1.0, share)) * (WIDTH / 2 - _EDGE), 1)

    found = []
    for line in lines:
        lows = [each.low for each in line.ratios if each.low is not None]
        highs = [each.high for each in line.ratios if each.high is not None]
        outside = max((end for end in (*lows, *highs) if end > 0), key=lambda end: abs(math.log(end)), default=1.0)
        over = abs(math.log(outside)) > reach
        found.append(
            Row(
                line.arm,
                line,
                sentences.get((line.subject, line.response.key), ""),
                at(min(lows)) if lows else None,
                at(max(highs)) if highs else None,
                tuple(at(each.value) for each in line.ratios),
                ("right" if outside > 1 else "left") if over else "",
            )
        )
    margin = 1 + summary.data.study.margin / 100
    return Forest(
        found[:ROWS_MAX],
        found[ROWS_MAX:],
        at(1.0),
        (at(1 / margin), at(margin)),
        [(at(ratio), said) for ratio, said in _ticks(math.exp(reach))],
        lead(summary, found),
    )


def lead(summary: Summary, rows: Sequence[Row]) -> str:
    """Says that most trials were disturbed, or names the largest difference, or that there is none."""
    if disturbed := disturbed_trials(summary):
        return disturbed
    differing = [row for row in rows if row.line.rank == 0 and row.sentence]
    if not summary.responses or not differing:
        return ""
    primary = [row for row in differing if row.line.response is summary.responses[0]]
    return (primary or differing)[0].sentence


def _ticks(reach: float) -> list[tuple[float, str]]:
    """No difference, and the furthest round ratio that fits on both sides; in percent, from 2 on as ratios."""
    furthest = max(ratio for ratio in _TICKS if ratio <= reach)
    if furthest >= 2:
        return [(1 / furthest, f"1/{furthest:g}×"), (1.0, "1×"), (furthest, f"{furthest:g}×")]
    more, less = (round(100 * (ratio - 1)) for ratio in (furthest, 1 / furthest))
    return [(1 / furthest, f"−{-less} %"), (1.0, "0"), (furthest, f"+{more} %")]
