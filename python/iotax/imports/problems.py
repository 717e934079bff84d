"""What is wrong with a file, told with file, line and field."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


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
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(path, f"cannot be read: {error.strerror or error}") from None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        # What PowerShell's `>` writes.
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def number(path: Path, text: object, *, line: int | None = None, at: str = "") -> float:
    """A figure. Raises Unreadable."""
    try:
        return float(str(text).strip())
    except ValueError:
        raise Unreadable(path, f"found {text!r} where a number is meant", line=line, at=at) from None
