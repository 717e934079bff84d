"""JSON as benchmark programs leave it: after warnings, several times in one file, cut off, with fields of any type."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iotax.imports.problems import FIGURE_MAX, Notes, Unreadable, number, text_of, whole

_DIGITS_MAX = 19
"""Of an integer; more are not a figure, and Python refuses more than 4,300."""


class _TooLarge(ValueError):  # noqa: N818 - a figure, not a bug
    """A number that no program measured."""


def read_documents(path: Path, notes: Notes) -> list[Fields]:
    """Every object of the file. What stands before and between them is told, and skipped; so is the last, where it is
    damaged and others are not. Raises Unreadable."""
    text = text_of(path)
    found: list[Fields] = []
    at = 0
    while (begin := _next_object(text, at)) is not None:
        _skipped(path, text, at, begin, notes)
        try:
            document, at = _document(path, text, begin)
        except Unreadable as problem:
            if not found:
                raise
            notes.add(None, f"{problem}; what stands before it is taken")
            return found
        found.append(document)
    _skipped(path, text, at, len(text), notes)
    if not found:
        raise Unreadable(path, "no JSON here" if text.strip() else "the file is empty", line=1)
    return found


def _document(path: Path, text: str, begin: int) -> tuple[Fields, int]:
    """The object that begins there, and where it ends."""
    try:
        document, end = _DECODER.raw_decode(text, begin)
    except json.JSONDecodeError as error:
        raise _broken(path, text, begin, error) from None
    except _TooLarge as error:
        raise Unreadable(path, str(error), line=line_of(text, begin)) from None
    except RecursionError:
        raise Unreadable(path, "its JSON is nested too deeply", line=line_of(text, begin)) from None
    return Fields(path, document), end


@dataclass(frozen=True)
class Fields:
    """An object of a file, each field asked for by the type that it must have. What is null is missing."""

    path: Path
    values: Mapping[str, Any]
    at: str = ""
    """Where it stands, for messages."""

    def __contains__(self, name: object) -> bool:
        return self.values.get(name) is not None

    def number(self, name: str, default: float | None = None) -> float:
        """Raises Unreadable if it is not a finite number, or missing without a default."""
        value = self._given(name, default)
        return number(self.path, value, at=self.place(name))

    def positive(self, name: str, default: float | None = None) -> float:
        """A number from 0 on."""
        found = self.number(name, default)
        if found < 0:
            raise Unreadable(self.path, f"found {found:g}, which is less than 0", at=self.place(name))
        return found

    def whole(self, name: str, default: int | None = None) -> int:
        """A count, from 0 on."""
        return whole(self.path, self._given(name, default), at=self.place(name))

    def text(self, name: str, default: str = "") -> str:
        """Of a number, as it is written; empty for anything else that is not text."""
        value = self.values.get(name)
        return str(value) if isinstance(value, str | int | float) else default

    def part(self, name: str) -> Fields:
        """An object within; an empty one where it is missing. Raises Unreadable if it is something else."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            raise Unreadable(self.path, "an object is expected here", at=self.place(name))
        return Fields(self.path, value or {}, self.place(name))

    def parts(self, name: str, label: str = "") -> list[Fields]:
        """The objects of a list; none if it is missing. `label` is the field that tells them apart in messages.
        Raises Unreadable if it is something else."""
        value = self.values.get(name)
        if value is not None and not (isinstance(value, list) and all(isinstance(each, dict) for each in value)):
            raise Unreadable(self.path, "a list of objects is expected here", at=self.place(name))
        at = self.place(name)
        return [Fields(self.path, each, f"{at}, {each[label]}" if label in each else at) for each in value or ()]

    def items(self) -> Iterator[tuple[str, Any]]:
        yield from self.values.items()

    def place(self, name: str) -> str:
        return f"{self.at}, {name}" if self.at else name

    def _given(self, name: str, default: float | None) -> object:
        value = self.values.get(name)
        if value is None and default is None:
            raise Unreadable(self.path, "missing", at=self.place(name))
        return default if value is None else value


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS_MAX:
        raise _TooLarge(f"found a number of {len(digits)} digits, which is too large to be a figure")
    return int(digits)


def _fraction(digits: str) -> float:
    found = float(digits)
    if abs(found) > FIGURE_MAX:
        raise _TooLarge(f"found {digits[:40]}, which is too large to be a figure")
    return found


def _none(_word: str) -> None:
    """Of NaN and Infinity: no figure."""


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_fraction, parse_constant=_none)


def has_objects(text: str) -> bool:
    return _next_object(text, 0) is not None


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
        notes.add(path, f"skipped what is not JSON: {words.splitlines()[0][:100]!r}", line=line)


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
