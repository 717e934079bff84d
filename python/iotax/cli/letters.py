"""Letters for terminals that have only some: no output ends in an encoding error."""

from __future__ import annotations

import codecs
import io
import sys
import unicodedata

_PLAIN = {
    "µ": "u",
    "μ": "u",
    "×": "x",
    "−": "-",
    "–": "-",
    "—": "-",
    "·": "|",
    "→": "->",
    "±": "+-",
    "≤": "<=",
    "≥": ">=",
    "…": "...",
    "‹": "<",
    "›": ">",
    "’": "'",
    "“": '"',
    "”": '"',
    "Σ": "sum",
}


_ASCII = "iotax_ascii"
"""ASCII by another name: what is printed through click becomes UTF-8 where a stream says `ascii`."""


def spell_out() -> None:
    """From now on, what standard output and error cannot encode is written in letters that they can."""
    codecs.register_error("iotax", _spelt)
    codecs.register(_find)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=_ASCII if is_ascii else None, errors="iotax")


def _find(name: str) -> codecs.CodecInfo | None:
    if name != _ASCII:
        return None
    ascii_ = codecs.lookup("ascii")
    return codecs.CodecInfo(
        ascii_.encode,
        ascii_.decode,
        ascii_.streamreader,
        ascii_.streamwriter,
        ascii_.incrementalencoder,
        ascii_.incrementaldecoder,
        name=_ASCII,
    )


def _spelt(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(plain, error.object[error.start : error.end])), error.end


def plain(letter: str) -> str:
    """ASCII that means the same, or `?`; a letter with an accent loses it."""
    if letter in _PLAIN:
        return _PLAIN[letter]
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() or "?"
