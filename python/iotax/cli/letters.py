"""Printed text: only characters that the terminal has, without control codes from files. The command line prints only
through `echo` here and the consoles of `console`."""

from __future__ import annotations

import codecs
import io
import os
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
    # Bars in eighths of a character; less than half a character is left out.
    **dict.fromkeys("█▉▊▋▌", "#"),
    **dict.fromkeys("▍▎▏", " "),
    **dict.fromkeys("━╸╺", "-"),
}


_ASCII = "iotax_ascii"
"""Another name for ASCII: click prints UTF-8 to streams that say `ascii`."""


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Prints to standard output, or to standard error."""
    typer.echo(visible(text), nl=nl, err=err)


def spell_out() -> None:
    """From now on, characters that standard output and error cannot encode are replaced by similar ones."""
    codecs.register_error("iotax", _spelt)
    codecs.register(_find)
    # Python writes UTF-8 even under LC_ALL=C; a terminal with that setting shows ASCII.
    has_named_encoding = not {"PYTHONIOENCODING", "PYTHONUTF8"}.isdisjoint(os.environ)
    has_ascii_terminal = os.environ.get("LC_ALL") in ("C", "POSIX") and not has_named_encoding
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii" or (has_ascii_terminal and stream.isatty())
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
    """Equivalent ASCII, or `?`; an accented letter loses its accent."""
    if letter in _PLAIN:
        return _PLAIN[letter]
    return unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() or "?"
