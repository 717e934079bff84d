"""Where notebooks are kept, and how a command opens one."""

from __future__ import annotations

from pathlib import Path

from iotax.cli.exits import Exit, leave
from iotax.notebook import Notebook, NotebookError

OUT = Path("out")
"""Where notebooks and reports go by default."""


def open_notebook(path: Path | None, instead: str = "") -> Notebook:
    """The notebook named, or the newest in out/. Exits with the reason if there is none, and names alternatives."""
    if path is None:
        found = sorted(OUT.glob("*.iotax"), key=lambda each: each.stat().st_mtime)
        if not found:
            leave(Exit.NOTEBOOK, f"no notebook in {OUT}/; `iotax run` creates one, or name one{instead}")
        path = found[-1]
    try:
        return Notebook(path)
    except NotebookError as error:
        leave(Exit.NOTEBOOK, str(error))
