"""Where tables go."""

from __future__ import annotations

import contextlib
import sys

from rich.console import Console

PIPE_COLUMNS = 160
"""Width where there is no terminal to ask: wide enough that no table breaks."""


class Lasting(Console):
    """Goes on in silence where nobody reads any more: a run must not end with its reader."""

    def on_broken_pipe(self) -> None:
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()


def console() -> Console:
    """Standard output, as wide as its terminal."""
    return Lasting(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)
