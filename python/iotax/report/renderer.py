"""Vega-Lite to SVG and PNG, by vl-convert.

It has no build for musl, so the wheel for such systems comes without it: their reports have words in place of charts.
"""

import struct
import zlib
from pathlib import Path
from typing import Any

from iotax.outputs import PICTURE_MARK

try:
    import vl_convert
except ImportError:
    vl_convert = None

PNG_SCALE = 2.0
_PNG_HEAD_BYTES = 33
MISSING = (
    "charts are drawn by vl-convert, which is not installed here (there is none for musl, as on Alpine): "
    "`iotax report` draws them from the same notebook on a system with glibc"
)


class NoRendererError(Exception):
    """Charts were requested explicitly, but none can be drawn."""

    def __init__(self) -> None:
        super().__init__(MISSING)


def available() -> bool:
    return vl_convert is not None


def register_fonts(folder: Path) -> None:
    if vl_convert is not None:
        vl_convert.register_font_directory(str(folder))


def to_svg(specification: dict[str, Any]) -> str:
    """Raises NoRendererError."""
    if vl_convert is None:
        raise NoRendererError
    return vl_convert.vegalite_to_svg(specification)


def to_png(svg: str) -> bytes:
    """Raises NoRendererError."""
    if vl_convert is None:
        raise NoRendererError
    picture = vl_convert.svg_to_png(svg, scale=PNG_SCALE)
    chunk = b"tEXt" + PICTURE_MARK
    # A PNG chunk: length before, checksum after (PNG §5.3); inserted after the signature and the header.
    marked = struct.pack(">I", len(PICTURE_MARK)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return picture[:_PNG_HEAD_BYTES] + marked + picture[_PNG_HEAD_BYTES:]
