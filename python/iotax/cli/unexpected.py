"""Unexpected errors: one line for the user, and a file for the maintainers. Nothing else in the command line describes
them: such errors pass through elsewhere."""

from __future__ import annotations

import contextlib
import platform
import shlex
import sys
import tempfile
import time
import traceback
from pathlib import Path

from iotax.cli.exits import Exit
from iotax.cli.letters import echo
from iotax.outputs import OUT
from iotax.study.source import without_logins
from iotax.version import __version__

_FRAMES_MAX = 60
"""The innermost frames of an endless recursion."""


def report(error: Exception) -> Exit:
    """Prints the line on standard error and writes the file. Returns the exit code."""
    kind = "out of memory" if isinstance(error, MemoryError) else f"{type(error).__name__}: {error}"
    where = _written(_text(error))
    echo(f"iotax: unexpected error, which is a defect of iotax: {_short(without_logins(kind))}", err=True)
    if where is not None:
        echo(f"Please report it with the file {where}; it holds the command line and where the error arose.", err=True)
    return Exit.UNEXPECTED


def _text(error: Exception) -> str:
    lines = [
        f"iotax {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {without_logins(shlex.join(sys.argv))}",
        "",
        *traceback.format_exception(type(error), error, error.__traceback__, limit=-_FRAMES_MAX, chain=True),
    ]
    return "\n".join(line.rstrip("\n") for line in lines) + "\n"


def _written(text: str) -> Path | None:
    """Writes to out/, where a user looks, else to the temporary files; None if neither is possible."""
    name = f"iotax-error-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 1000:03}.txt"
    for folder in (OUT, Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
            path = folder / name
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
            return path
    return None


def _short(text: str) -> str:
    first = text.splitlines()[0] if text else ""
    return first if len(first) <= 200 else f"{first[:200]}…"
