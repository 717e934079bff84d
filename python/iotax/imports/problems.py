"""What is wrong with a file, told with file, line and field; and the only ways to read its text and its figures."""

from __future__ import annotations

import codecs
import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from iotax.trial import LevelValue

FIGURE_MAX = 1e18
"""Larger figures are not a result of any program, and do not fit a notebook's integers."""
_HEAD_BYTES = 512
"""Read to find out how text is encoded."""
_TEXT_MAX_BYTES = 1 << 30
"""A file read as a whole; logs and monitors, which may be larger, are read line by line."""
_LINE_MAX = 16 << 20
"""Letters. esxtop writes 50,000 columns in a line."""


class Unreadable(Exception):  # noqa: N818 - an answer, not a bug
    """A file, or a part of one, that gives no result; says where, what, and what to do."""

    def __init__(self, path: Path, message: str, *, line: int | None = None, at: str = "") -> None:
        self.path = path
        super().__init__(_placed(path, message, line, at))


@dataclass
class Notes:
    """What is to be known about what was read, in the order in which it was found; each once."""

    said: list[str] = field(default_factory=list)

    def add(self, path: Path | None, message: str, *, line: int | None = None, at: str = "") -> None:
        """`at` is the field, as the file writes it."""
        text = message if path is None else _placed(path, message, line, at)
        if text not in self.said:
            self.said.append(text)


def _placed(path: Path, message: str, line: int | None, at: str) -> str:
    place = f"{path}:{line}" if line is not None else str(path)
    return f"{place}: {at}: {message}" if at else f"{place}: {message}"


def text_of(path: Path) -> str:
    """The file's text, whatever its encoding makes of letters that no figure needs. Raises Unreadable."""
    try:
        if path.stat().st_size > _TEXT_MAX_BYTES:
            raise Unreadable(path, f"it is larger than {_TEXT_MAX_BYTES >> 30} GiB: split it, one run per file")
        data = path.read_bytes()
    except OSError as error:
        raise _refused(path, error) from None
    return data.decode(_encoding(data[:_HEAD_BYTES]), errors="replace").removeprefix("\ufeff")


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """(number, text with its line end) of each line, one after another. Raises Unreadable."""
    try:
        with path.open("rb") as raw:
            encoding = _encoding(raw.read(_HEAD_BYTES))
        with path.open(encoding=encoding, errors="replace") as file:
            line = 0
            while text := file.readline(_LINE_MAX):
                line += 1
                if len(text) == _LINE_MAX:
                    raise Unreadable(path, f"the line is longer than {_LINE_MAX >> 20} Mi letters", line=line)
                yield line, text.removeprefix("\ufeff") if line == 1 else text
    except OSError as error:
        raise _refused(path, error) from None


def rows_of(path: Path, lines: Iterable[str], separator: str = ",") -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of separated values. Raises Unreadable."""
    reader = csv.reader(lines, delimiter=separator)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise Unreadable(path, f"no separated values: {error}", line=reader.line_num) from None


def runs_of(text: str, begin: re.Pattern[str], result: re.Pattern[str]) -> list[str]:
    """What each run printed of several that were appended to one text: a line that begins one after a line of a result
    begins the next. Lines keep their numbers, by empty ones above them."""
    found: list[list[str]] = [[]]
    ended = False
    for line, content in enumerate(text.splitlines()):
        if ended and begin.search(content):
            found.append([""] * line)
            ended = False
        ended = ended or bool(result.search(content))
        found[-1].append(content)
    return ["\n".join(lines) for lines in found]


def head_of(path: Path, size: int = 4096) -> str:
    """The first letters of the file. Raises Unreadable."""
    try:
        with path.open("rb") as file:
            data = file.read(2 * size)
    except OSError as error:
        raise _refused(path, error) from None
    return data.decode(_encoding(data), errors="replace").removeprefix("\ufeff")[:size]


def _encoding(head: bytes) -> str:
    """By its byte order mark, which PowerShell and Excel write, or by where its zeros stand."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    pairs = len(head) // 2
    for zeros, encoding in ((head[1::2], "utf-16-le"), (head[::2], "utf-16-be")):
        if pairs >= 2 and zeros.count(0) > 0.8 * pairs and head.count(0) < 1.2 * pairs:
            return encoding
    return "utf-8"


def _refused(path: Path, error: OSError) -> Unreadable:
    return Unreadable(path, f"cannot be read: {error.strerror or error}")


def number(path: Path, text: object, *, line: int | None = None, at: str = "") -> float:
    """A finite figure, from a file's text or JSON. Raises Unreadable."""
    found = math.nan
    if isinstance(text, str | int | float) and not isinstance(text, bool):
        try:
            found = float(text)
        except (ValueError, OverflowError):
            found = math.nan
    if math.isnan(found):
        raise Unreadable(path, f"found {_short(text)} where a number is expected", line=line, at=at)
    if abs(found) > FIGURE_MAX:
        raise Unreadable(path, f"found {_short(text)}, which is too large to be a figure", line=line, at=at)
    return found


def whole(path: Path, text: object, *, line: int | None = None, at: str = "") -> int:
    """A count, from 0 on. Raises Unreadable."""
    found = number(path, text, line=line, at=at)
    if found < 0 or found != int(found):
        raise Unreadable(path, f"found {_short(text)} where a count is expected", line=line, at=at)
    return int(text) if isinstance(text, int) else int(found)


def small(text: str | None) -> int | None:
    """A setting that is a whole number; None if it is none, or none that anything is set to."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) <= 18 else None


def level_of(text: str) -> LevelValue:
    """A setting: a whole number if it is one, else the text."""
    count = small(text)
    return text if count is None else count


def start_of(text: str) -> int | None:
    """Since 1970, in ns; None if it is not a date."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1e9)


def _short(text: object) -> str:
    said = repr(text) if isinstance(text, str | int | float | None) else f"a {type(text).__name__}"
    return said if len(said) <= 80 else f"{said[:80]}…"
