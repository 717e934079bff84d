"""The origin of a result measured by another program, and what its files say besides the figures."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from iotax.records.base import Record


class Origin(Record):
    """The origin of one imported result."""

    program: str
    """The program's usual name: fio, DiskSpd."""
    version: str = ""
    """Empty if the files do not say."""
    files: tuple[str, ...] = ()
    part: str = ""
    """The part of a file that holds several results."""
    start: Literal["said", "told", "guessed"] = "said"
    """The source of its time: the files, the user who imported them, or the files' own times."""
    loop: Literal["open", "closed", "unknown"] = "unknown"
    unit: str = "I/O"
    """What counts as one I/O: a database benchmark counts transactions."""
    settings: dict[str, str] = Field(default={})
    """Settings from the files, such as block_size."""
    notes: tuple[str, ...] = ()
    """Remarks on these figures, a sentence each."""
