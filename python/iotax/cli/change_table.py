"""Tables of a comparison, as Markdown and as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence


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
