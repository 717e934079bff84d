"""A against B as bars: for each response, every treatment before (= 100) and after, with its interval.

Drawn without the report's chart library, which takes longer to load than the comparison takes.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from iotax.analysis.change import Change
from iotax.report.palette import COLOURS
from iotax.wording import changes as wording
from iotax.wording import figure

_PLOT_PX, _BAR_PX, _GAP_PX, _NAME_PX = 440, 11, 12, 17
_ROW_PX = _NAME_PX + 2 * _BAR_PX + _GAP_PX
_BEYOND = 1.5
"""How far an interval may reach beyond the longest bar. A longer one is cut off and drawn without an end."""
STYLE = f"""
svg {{ display: block; max-width: 100%; height: auto; margin: .5rem 0 1.5rem }} svg text {{ font-size: 13px; fill: currentColor }}
.old {{ fill: light-dark({COLOURS["axis"].light}, {COLOURS["axis"].dark}) }} .new {{ fill: light-dark({COLOURS["blue"].light}, {COLOURS["blue"].dark}) }}
.whisker {{ stroke: currentColor; stroke-width: 1.5; fill: none }}
.key {{ display: inline-block; width: 1.3em; height: .7em; margin: 0 .4em 0 0 }} .key.new {{ margin-left: 1em }}
.key.old {{ background: light-dark({COLOURS["axis"].light}, {COLOURS["axis"].dark}) }} .key.new {{ background: light-dark({COLOURS["blue"].light}, {COLOURS["blue"].dark}) }}
"""  # noqa: E501


def charts(found: Sequence[Change], before: str, after: str) -> list[str]:
    """HTML for the page, one chart for each response. Chart names are those on the command line."""
    responses = dict.fromkeys(change.response for change in found)
    return [_chart([each for each in found if each.response is response], before, after) for response in responses]


def _chart(found: Sequence[Change], before: str, after: str) -> str:
    response = found[0].response
    heading = f"{response.title}, {before} = 100"
    longest = max(100.0, *(100 * each.ratio.value for each in found))
    highest = min(max(longest, *(100 * _interval(each)[2] for each in found)), _BEYOND * longest)
    px = _PLOT_PX / highest
    height = len(found) * _ROW_PX + 2
    said = "; ".join(f"{wording.treatment(each)} {_said(each)}" for each in found)
    bars = [part for at, each in enumerate(found) for part in _row(each, at * _ROW_PX, px)]
    return "\n".join(
        [
            f"<h2>{html.escape(heading)}</h2>",
            f'<p><span class="key old"></span>{html.escape(before)} '
            f'<span class="key new"></span>{html.escape(after)}</p>',
            f'<svg viewBox="0 0 {_PLOT_PX} {height}" width="{_PLOT_PX}" role="img" '
            f'aria-label="{html.escape(f"{heading}. {after}: {said}", quote=True)}">',
            *bars,
            "</svg>",
        ]
    )


def _row(change: Change, top: int, px: float) -> list[str]:
    value, low, high = (100 * each for each in _interval(change))
    old, new = top + _NAME_PX, top + _NAME_PX + _BAR_PX
    middle = new + _BAR_PX / 2
    parts = [
        f'<text x="0" y="{old - 4}">{html.escape(wording.treatment(change))}</text>',
        f'<rect class="old" y="{old}" width="{100 * px:.1f}" height="{_BAR_PX}"/>',
        f'<rect class="new" y="{new}" width="{value * px:.1f}" height="{_BAR_PX}"/>',
    ]
    if high > low:
        ends = "".join(f"M{x * px:.1f} {middle - 4}v8" for x in (low, high) if x * px <= _PLOT_PX)
        parts.append(f'<path class="whisker" d="M{low * px:.1f} {middle}H{min(high * px, _PLOT_PX):.1f}{ends}"/>')
    return [*parts, f'<text x="{_PLOT_PX}" y="{old - 4}" text-anchor="end">{_said(change)}</text>']


def _interval(change: Change) -> tuple[float, float, float]:
    """The value and its interval; the value alone if it has no interval or an unbounded one."""
    ratio = change.ratio
    if ratio.low is None or ratio.high is None or not math.isfinite(ratio.high):
        return ratio.value, ratio.value, ratio.value
    return ratio.value, ratio.low, ratio.high


def _said(change: Change) -> str:
    value, low, high = (figure(100 * each) for each in _interval(change))
    return value if low == high else f"{value} [{low}, {high}]"
