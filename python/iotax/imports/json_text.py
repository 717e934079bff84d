"""JSON as benchmark programs leave it: after warnings, several times in one file, cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from iotax.imports.problems import Notes, Unreadable, text_of


def read_documents(path: Path, notes: Notes) -> list[dict[str, Any]]:
    """Every object of the file. What stands before and between them is told, and skipped. Raises Unreadable."""
    text = text_of(path)
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    at = 0
    while (begin := _next_object(text, at)) is not None:
        _skipped(path, text, at, begin, notes)
        try:
            document, at = decoder.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            raise _broken(path, text, begin, error) from None
        found.append(document)
    _skipped(path, text, at, len(text), notes)
    if not found:
        raise Unreadable(path, "no JSON here" if text.strip() else "the file is empty", line=1)
    return found


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _next_object(text: str, at: int) -> int | None:
    """Where the next line begins an object: braces within a warning begin none."""
    while at < len(text):
        stripped = _after_space(text, at)
        if text.startswith("{", stripped):
            return stripped
        end = text.find("\n", stripped)
        if end < 0:
            return None
        at = end + 1
    return None


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _skipped(path: Path, text: str, begin: int, end: int, notes: Notes) -> None:
    words = text[begin:end].strip()
    if words:
        line = line_of(text, _after_space(text, begin))
        notes.add(path, f"skipped what is no JSON: {words.splitlines()[0][:100]!r}", line=line)


def _broken(path: Path, text: str, begin: int, error: json.JSONDecodeError) -> Unreadable:
    rest = text[error.pos :].strip()
    if not rest or error.msg.startswith("Unterminated"):
        return Unreadable(
            path,
            "the JSON ends in the middle: the program was killed, or the disk was full; measure again or leave this "
            "file out",
            line=line_of(text, len(text.rstrip())),
            at=_last_name(text[begin:]),
        )
    return Unreadable(path, f"no JSON: {error.msg}", line=error.lineno, at=_last_name(text[begin : error.pos]))


def _last_name(text: str) -> str:
    """The last name before the place, roughly."""
    head, colon, _ = text.rpartition('":')
    return head.rpartition('"')[2] if colon else ""
