"""What is printed: in letters that a terminal has, and without commands to it that stood in a file.

The command line prints only through `echo` here and the consoles of `console`."""

from __future__ import annotations

import codecs
import io
import sys
import unicodedata

import typer

from iotax.outputs import visible

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
    # Bars, in eighths of a letter: less than half of one is left out.
    **dict.fromkeys("█▉▊▋▌", "#"),
    **dict.fromkeys("▍▎▏", " "),
    **dict.fromkeys("━╸╺", "-"),
}


_ASCII = "iotax_ascii"
"""ASCII by another name: what is printed through click becomes UTF-8 where a stream says `ascii`."""


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """To standard output, or to standard error."""
    typer.echo(visible(text), nl=nl, err=err)


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
