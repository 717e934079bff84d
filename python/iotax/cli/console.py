"""Where tables and progress go."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console

PIPE_COLUMNS = 160
"""Width where there is no terminal to ask: wide enough that no table breaks."""


class _Lasting:
    """A stream that goes on in silence where nobody reads any more: a run must not end with its reader, be it a pipe
    that was closed or a terminal that hung up."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._leave()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._leave()

    def _leave(self) -> None:
        # What is left in the stream's buffer would fail again when Python ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def console_on(stream: TextIO) -> Console:
    """As wide as its terminal, and as wide as tables need where there is none."""
    return Console(
        file=_Lasting(stream),  # ty: ignore[invalid-argument-type]  # it has all that a TextIO has
        highlight=False,
        width=None if stream.isatty() else PIPE_COLUMNS,
    )


def console() -> Console:
    """Standard output."""
    return console_on(sys.stdout)
