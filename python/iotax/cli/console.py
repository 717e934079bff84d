"""The consoles to which tables and progress are written. A table that is wider than its terminal is broken or
divided; no figure is cut."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from iotax.outputs import visible

PIPE_COLUMNS = 160
"""Width if there is no terminal: wide enough that no table breaks."""


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
unwritten: list[OSError] = []
"""Errors of standard output and error that had no room left. The command reports them at its end."""


class _Lasting:
    """A stream that ignores writes once its reader is gone: a run must not end with its reader, be it a pipe
    that was closed or a terminal that hung up. A full disk does not end it either."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._leave(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        if error.errno in NO_ROOM:
            unwritten.append(error)
        # Otherwise Python would write the stream's buffer at its end and fail again.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


_BETWEEN = re.compile(r"(?<!min) (?!%|[µmn]s\b|min\b|s\b|IOPS\b)")
"""Places where a line may break: not between a number and its unit."""


class _Screen(Console):
    """Breaks prose (`soft_wrap`) between words on a terminal; leaves it on one line for other readers."""

    def print(self, *objects: Any, soft_wrap: bool | None = None, **how: Any) -> None:
        if soft_wrap and self.is_terminal:
            objects = tuple(self._broken(each) for each in objects)
        super().print(*objects, soft_wrap=soft_wrap, **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Renders as rich does, but without terminal control codes in the text itself."""
        for segment in super().render(renderable, options):
            if segment.control is None and (text := visible(segment.text)) != segment.text:
                yield Segment(text, segment.style)
            else:
                yield segment

    def _broken(self, prose: str | Text) -> Text:
        text = prose if isinstance(prose, Text) else self.render_str(prose)
        return Text(broken(text.plain, self.width), style=text.style, spans=text.spans)


def broken(prose: str, width: int) -> str:
    """The same text with line breaks in place of some spaces, so that no line is wider than the console if words allow
    it."""
    return "\n".join(_broken_line(line, width) for line in prose.split("\n"))


def _broken_line(prose: str, width: int) -> str:
    begins, at = 0, -1
    letters = list(prose)
    for space in [found.start() for found in _BETWEEN.finditer(prose)] + [len(prose)]:
        if space - begins > width and at >= begins:
            letters[at] = "\n"
            begins = at + 1
        at = space
    return "".join(letters)


def console_on(stream: TextIO) -> Console:
    """A console as wide as its terminal, or as tables need without one."""
    return _Screen(
        file=_Lasting(stream),  # ty: ignore[invalid-argument-type]  # it has all that a TextIO has
        highlight=False,
        width=None if stream.isatty() else PIPE_COLUMNS,
    )


def console() -> Console:
    """Standard output."""
    return console_on(sys.stdout)


def height(prose: str) -> int:
    """Lines that it takes on standard output."""
    out = console()
    return 1 + (broken(prose, out.width).count("\n") if out.is_terminal else 0)


@contextmanager
def steps(count: int) -> Generator[Callable[[str], None]]:
    """Call the result with each step's name when it starts. A terminal shows one line on standard error that vanishes
    at the end; other streams get a line for each step."""
    out = console_on(sys.stderr)
    number = 0
    with Live(console=out, auto_refresh=False, transient=True) if out.is_terminal else nullcontext() as live:

        def step(name: str) -> None:
            nonlocal number
            number += 1
            line = Text(f"{number}/{count} {name}", no_wrap=True, overflow="ellipsis")
            if live is None:
                out.print(line, soft_wrap=True)
            else:
                live.update(line, refresh=True)

        yield step


def say(prose: str, *, err: bool = False) -> None:
    """Prints prose to standard output, or to standard error if the output belongs to a program."""
    console_on(sys.stderr if err else sys.stdout).print(Text(prose), soft_wrap=True)


_UNBOUND = 10_000


def fitting(console: Console, choices: Iterable[Sequence[Table]]) -> Sequence[Table]:
    """The first choice whose tables all fit the console, else the last."""
    tables: Sequence[Table] = ()
    for tables in choices:
        if all(_width(console, each) <= console.width for each in tables):
            break
    return tables


def _width(console: Console, table: Table) -> int:
    """Width of the table if nothing cuts it."""
    return Measurement.get(console, console.options.update(width=_UNBOUND), table).maximum
