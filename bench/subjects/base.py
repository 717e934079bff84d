"""The seam: a pair of target and initiator that can be put under a load again and again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
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

    def measure(self, load: Load, timing: Timing) -> Sample:
        """Raises FailedError where it fails this time, UnavailableError where it always would."""
        ...


class Subject(Protocol):
    """A pair that can be brought up."""

    @property
    def name(self) -> str: ...

    def up(self, place: Place) -> AbstractContextManager[Measurable]:
        """Raises UnavailableError where the programs are not there."""
        ...


@dataclass(frozen=True)
class Reached:
    """A target that is up."""

    endpoint: str
    """As iotax writes it; each initiator puts it in its own words."""
    pid: int | None
    """`None` where no process answers: a local file."""
    awake: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    """Lets a target that polls run; it is stopped otherwise."""


class Target(Protocol):
    @property
    def name(self) -> str: ...

    def up(self, place: Place) -> AbstractContextManager[Reached]:
        """Raises UnavailableError where the programs are not there."""
        ...


class Initiator(Protocol):
    @property
    def name(self) -> str: ...

    def find(self) -> Path:
        """Its program. Raises UnavailableError where it is not there."""
        ...

    def measure(self, program: Path, reached: Reached, place: Place, load: Load, timing: Timing) -> Sample:
        """Raises FailedError where it fails this time."""
        ...


@dataclass(frozen=True)
class Sides:
    """A subject put together: any initiator on any target that speaks its protocol."""

    target: Target
    initiator: Initiator
    called: str = ""
    """Its name, where that is not the names of both sides."""

    @property
    def name(self) -> str:
        return self.called or f"{self.target.name} ↔ {self.initiator.name}"

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Measurable]:
        program = self.initiator.find()
        with self.target.up(place) as reached:
            yield _Standing(self.target, self.initiator, program, reached, place)


@contextlib.contextmanager
def up_beside(ours: Measurable, theirs: Subject, place: Place) -> Generator[Measurable]:
    """Theirs, where ours is up already. The same target is brought up once: many take a place or a processor alone."""
    if isinstance(ours, _Standing) and isinstance(theirs, Sides) and ours.target == theirs.target:
        yield replace(ours, initiator=theirs.initiator, program=theirs.initiator.find())
        return
    with theirs.up(place) as standing:
        yield standing


@dataclass(frozen=True)
class LocalFile:
    """A file of the page cache, which no process serves."""

    path: Path
    name: str = "file"

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Reached]:
        del place
        yield Reached(f"local:{self.path}", None)


@dataclass(frozen=True)
class _Standing:
    """An initiator at a target that is up."""

    target: Target
    initiator: Initiator
    program: Path
    reached: Reached
    place: Place

    def measure(self, load: Load, timing: Timing) -> Sample:
        with self.reached.awake():
            return self.initiator.measure(self.program, self.reached, self.place, load, timing)
