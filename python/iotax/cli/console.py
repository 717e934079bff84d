"""Where tables go."""

from __future__ import annotations

import sys

from rich.console import Console

PIPE_COLUMNS = 160
"""Width where there is no terminal to ask: wide enough that no table breaks."""


def console() -> Console:
    """Standard output, as wide as its terminal."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)
