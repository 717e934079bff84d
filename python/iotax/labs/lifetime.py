"""Programs that must not outlive us."""

from collections.abc import Sequence
from pathlib import Path

SETPRIV = "setpriv"
"""A program of util-linux."""


def ending_with_us(command: Sequence[str | Path]) -> list[str | Path]:
    """The command, wrapped so that the kernel kills it when the thread that started it ends."""
    return [SETPRIV, "--pdeathsig", "KILL", "--", *command]
