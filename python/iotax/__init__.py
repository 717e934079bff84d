"""iotax measures what each I/O costs over NFS, iSCSI, NVMe/TCP or Fibre Channel.

    import iotax
    results = iotax.open("out/quick.iotax")
    results.cells()                      # a pandas frame, a row for each treatment

docs/guide/python.md shows the rest. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

from iotax.version import __version__

if TYPE_CHECKING:
    from iotax.api import Results

__all__ = ["__version__", "open", "run"]


def open(notebook: str | PathLike[str], run: int | None = None) -> Results:  # noqa: A001 - as sqlite3, gzip and shelve do
    """The results in a notebook: of this run in it, or of the latest. Raises NotebookError if there is none."""
    from iotax.api import Results  # noqa: PLC0415

    return Results(notebook, run)


def run(
    study: str | PathLike[str],
    notebook: str | PathLike[str] | None = None,
    *,
    label: str = "",
    destroy: Sequence[str] = (),
    again: bool = False,
) -> Results:
    """Runs what is left of a study: a file, or the name of a built-in study. As `iotax run` does it.

    Results are kept in `notebook`, out/NAME.iotax when not given. `destroy` names the endpoints whose data may be
    overwritten; `again` begins another run whatever there is. Raises StudyError, LabUnusable, EngineError and
    NotebookError, each saying what to do.
    """
    from iotax.api import run_study  # noqa: PLC0415

    return run_study(study, notebook, label=label, destroy=destroy, again=again)
