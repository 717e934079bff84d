"""Where the instructions of an I/O went before and after: tables and bars of layers and functions, and the calls of
both sides as flame graphs whose colours say what changed.

Drawn without the report's chart library, which takes longer to load than the comparison takes.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from iotax.analysis.profile import Frame, ProfileChange
from iotax.report.calls import TEXT_PX, Box, boxes, fitting
from iotax.report.palette import COLOURS
from iotax.wording.profile import CALLS, change_lead, change_note, change_rows, difference_cells, not_zero

_FUNCTIONS_MAX = 30
_COLUMNS = ("Before", "After", "Change [95 % CI]")
_NUMERIC = (1, 2, 3)
_PLOT_PX, _BAR_PX, _NAME_PX, _GAP_PX = 440, 9, 17, 8
_ROW_PX = _NAME_PX + 2 * _BAR_PX + _GAP_PX
_DRAWN = 1 / 100
"""Part of all instructions from which on a layer has bars; the table has all layers."""
_FLAME_PX, _BOX_PX, _BOX_PX_MIN, _ROOM_PX = 1000, 16, 1.0, 6
_WIDER = 1.12
"""Width of a reader's typeface over that of ours, whose widths are known."""
_STEPS = 3
"""Shades of more, and of less."""
_SAME = 1 / 400
"""Part of all instructions by which a function may change and keep the colour of those that are equal."""
_SHADES = {
    "more": ("#f8c9bd", "#ee8f7a", "#d9543b"),
    "less": ("#c6dcf4", "#8ab8e6", "#4d8fd1"),
}
"""Black text is readable on all of them, in light and dark mode."""
_SHADED = " ".join(
    f".flame .{way}{at} {{ fill: {shade} }}" for way, shades in _SHADES.items() for at, shade in enumerate(shades)
)
STYLE = f"""
.flame {{ width: 100%; min-width: 50rem }} .flame text {{ font-size: {TEXT_PX}px; fill: #000; pointer-events: none }}
.flame rect {{ stroke: light-dark(#fff, #111); stroke-width: .5; fill: {COLOURS["part-rest"].light} }}
{_SHADED}
"""


def sections(changes: Sequence[ProfileChange], before: str, after: str) -> list[str]:
    """HTML for the page; empty if no run has a profile."""
    if not changes:
        return []
    found = ["<h2>Where the instructions go</h2>"]
    for each in changes:
        found += [
            f"<h3>{html.escape(change_lead(each))}</h3>",
            _bars(each, before, after),
            html_table(("Layer", *_COLUMNS), change_rows(each), _NUMERIC),
            f"<details><summary>The {_FUNCTIONS_MAX} functions that changed most</summary>",
            html_table(("Function", "Layer", *_COLUMNS), _functions(each), [at + 1 for at in _NUMERIC]),
            "</details>",
            *_flames(each, before, after),
        ]
    return [*found, f"<p>{html.escape(change_note(changes))}</p>"]


def markdown(changes: Sequence[ProfileChange]) -> list[str]:
    """Lines for a pull request; empty if no run has a profile."""
    lines: list[str] = []
    for each in changes:
        lines += ["", f"<details><summary>{html.escape(change_lead(each))}</summary>", ""]
        lines += markdown_table(("Layer", *_COLUMNS), change_rows(each), _NUMERIC)
        functions = [(name, *cells) for name, _, *cells in _functions(each)]
        lines += ["", *markdown_table(("Function", *_COLUMNS), functions, _NUMERIC)]
        lines += ["", "</details>"]
    return lines


def _functions(change: ProfileChange) -> list[tuple[str, ...]]:
    """Function, layer, before, after and difference."""
    told = filter(not_zero, change.functions[:_FUNCTIONS_MAX])
    return [(each.function, each.layer, *difference_cells(each)) for each in told]


def _bars(change: ProfileChange, before: str, after: str) -> str:
    whole = max(change.total.before, change.total.after)
    drawn = [each for each in change.layers if max(each.before, each.after) >= _DRAWN * whole]
    layers = sorted(drawn, key=lambda each: -max(each.before, each.after))
    px = _PLOT_PX / max((max(each.before, each.after) for each in layers), default=1.0)
    parts = []
    for at, each in enumerate(layers):
        old, more = at * _ROW_PX + _NAME_PX, difference_cells(each)[2]
        parts += [
            f'<text x="0" y="{old - 4}">{html.escape(each.layer)}</text>',
            f'<text x="{_PLOT_PX}" y="{old - 4}" text-anchor="end">{html.escape(more)}</text>',
            f'<rect class="old" y="{old}" width="{each.before * px:.1f}" height="{_BAR_PX}"/>',
            f'<rect class="new" y="{old + _BAR_PX}" width="{each.after * px:.1f}" height="{_BAR_PX}"/>',
        ]
    label = html.escape(f"Instructions per I/O by layer. {change_lead(change)}", quote=True)
    box = f"0 0 {_PLOT_PX} {len(layers) * _ROW_PX}"
    return "\n".join(
        [
            f'<p><span class="key old"></span>{html.escape(before)} '
            f'<span class="key new"></span>{html.escape(after)}, instructions per I/O by layer</p>',
            f'<svg viewBox="{box}" width="{_PLOT_PX}" role="img" aria-label="{label}">',
            *parts,
            "</svg>",
        ]
    )


def _flames(change: ProfileChange, before: str, after: str) -> list[str]:
    """Both on one scale. None if the calls were not kept."""
    olds, news = change.calls
    if not olds:
        return []
    whole = max(change.total.before, change.total.after)
    both = [(old.instructions, new.instructions) for old, new in zip(olds, news, strict=True)]
    explained = (
        "Calls, callers above; a box is as wide as the instructions of a function and all that it calls. Red: more "
        f"than before; blue: fewer; the darker, the more. {CALLS}"
    )
    return [
        "<details><summary>Calls as flame graphs</summary>",
        f"<p>{html.escape(explained)}</p>",
        *(_flame(name, frames, both, whole) for name, frames in ((before, olds), (after, news))),
        "</details>",
    ]


def _flame(name: str, frames: tuple[Frame, ...], both: Sequence[tuple[float, float]], whole: float) -> str:
    px = _FLAME_PX / whole
    seen = [box for box in boxes(frames) if (box.end - box.begin) * px >= _BOX_PX_MIN]
    height = _BOX_PX * (1 + max((box.depth for box in seen), default=0))
    largest = max((abs(new - old) for old, new in both), default=0.0)
    shades = [_shade(new - old, whole, largest) for old, new in both]
    return "\n".join(
        [
            f"<p>{html.escape(name)}</p>",
            f'<div class="wide"><svg class="flame" viewBox="0 0 {_FLAME_PX} {height}" role="img" '
            f'aria-label="{html.escape(f"Calls of an I/O, {name}", quote=True)}">',
            *(_box(box, both[box.at], shades[box.at], px) for box in seen),
            "</svg></div>",
        ]
    )


def _box(box: Box, both: tuple[float, float], shade: str, px: float) -> str:
    left_px, width_px = box.begin * px, (box.end - box.begin) * px
    top_px = box.depth * _BOX_PX
    of, (old, new) = box.frame, both
    said = f"{of.function}: {old:,.0f} → {new:,.0f} instructions per I/O; {of.layer}"
    name = fitting(of.function, (width_px - _ROOM_PX) / _WIDER)
    text = f'<text x="{left_px + 3:.1f}" y="{top_px + 11}">{html.escape(name)}</text>' if name else ""
    return (
        f'<g><rect class="{shade}" x="{left_px:.1f}" y="{top_px}" width="{width_px:.1f}" height="{_BOX_PX}">'
        f"<title>{html.escape(said)}</title></rect>{text}</g>"
    )


def _shade(changed: float, whole: float, largest: float) -> str:
    if abs(changed) < _SAME * whole:
        return "same"
    return f"{'more' if changed > 0 else 'less'}{min(_STEPS - 1, int(_STEPS * abs(changed) / largest))}"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int]) -> list[str]:
    rule = ["---:" if at in numeric else "---" for at in range(len(columns))]
    cells = [columns, rule, *([escaped(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


def escaped(text: str) -> str:
    """Names may contain Markdown or HTML."""
    for letter in "\\|`*_[]<>":
        text = text.replace(letter, f"\\{letter}")
    return text


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    lines = [f"<tr>{head}</tr>"]
    for row in rows:
        cells = (
            f'<td class="num">{html.escape(cell)}</td>' if at in numeric else f"<td>{html.escape(cell)}</td>"
            for at, cell in enumerate(row)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return '<div class="wide"><table>\n' + "\n".join(lines) + "\n</table></div>"
