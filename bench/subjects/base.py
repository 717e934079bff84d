"""The seam: a pair of target and initiator that can be put under a load again and again."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.load import Load, Timing
from bench.sample import Sample


@dataclass(frozen=True)
class Place:
    """Where a pair runs."""

    target_cpu: int
    initiator_cpu: int
    folder: Path
    """For logs and files; on a real file system, since io_uring does not read tmpfs at once."""
    spare_cpus: tuple[int, ...] = ()
    """Others that may be used, for more threads a side."""


class Measurable(Protocol):
    """A target that is up."""

    def measure(self, load: Load, timing: Timing) -> Sample: ...


class Subject(Protocol):
    """A pair that can be brought up."""

    @property
    def name(self) -> str: ...

    def up(self, place: Place) -> AbstractContextManager[Measurable]:
        """Raises UnavailableError where the programs are not there."""
        ...
