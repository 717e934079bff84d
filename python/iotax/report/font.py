"""The typeface of page and charts, shipped with iotax: a report looks the same whatever fonts are installed.

A subset of Inter with tabular figures (fonts/README.md). The same files draw SVG and PNG, stand inside every page and
picture, and say how wide a text is.
"""

import base64
import json
from functools import cache
from pathlib import Path

from iotax.report import renderer

FAMILY = "iotax Sans"
_FOLDER = Path(__file__).with_name("fonts")
_FACES = {"regular": "100 500", "semibold": "600 900"}
"""File by style, and the CSS weights that it provides."""
_UNKNOWN = 1.0
"""Assumed maximum width, in ems, of a letter drawn by another font."""


@cache
def css() -> str:
    """`@font-face` rules that contain the fonts."""
    return "".join(
        f'@font-face{{font-family:"{FAMILY}";font-weight:{weights};'
        f'src:url(data:font/woff2;base64,{_packed(style)}) format("woff2")}}'
        for style, weights in _FACES.items()
    )


@cache
def register() -> None:
    """Lets the chart library measure and draw with the font."""
    renderer.register_fonts(_FOLDER)


def width_px(text: str, size_px: float, bold: bool = False) -> float:
    """Width of a line of text, without kerning, which only brings letters closer."""
    advances = _advances()["semibold" if bold else "regular"]
    return size_px * sum(advances.get(letter, _UNKNOWN) for letter in text)


def _packed(style: str) -> str:
    return base64.b64encode((_FOLDER / f"iotax-sans-{style}.woff2").read_bytes()).decode()


@cache
def _advances() -> dict[str, dict[str, float]]:
    """Widths in ems by style and letter."""
    return json.loads((_FOLDER / "advances.json").read_text(encoding="utf-8"))
