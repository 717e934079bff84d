"""Where a result was measured by another program, and what its files say of it beside the figures."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from iotax.records.base import Record


class Origin(Record):
    """Of one result that was imported."""

    program: str
    """As people name it: fio, DiskSpd."""
    version: str = ""
    """Empty where the files do not say."""
    files: tuple[str, ...] = ()
    part: str = ""
    """Which part of a file that holds several results."""
    start: Literal["said", "told", "guessed"] = "said"
    """How it is known when it ran: by the files, by who imported them, or not, and the files' own times stand in."""
    loop: Literal["open", "closed", "unknown"] = "unknown"
    unit: str = "I/O"
    """What is counted as one I/O: a database benchmark counts transactions."""
    settings: dict[str, str] = Field(default={})
    """As the files say them, such as block_size."""
    notes: tuple[str, ...] = ()
    """What is to be known about these figures, a sentence each."""
