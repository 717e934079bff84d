"""The interface: a pair of target and initiator that can be measured repeatedly under different loads."""

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
    """For logs and files. It is on a real file system, because io_uring does not complete reads of tmpfs at once."""
    spare_cpus: tuple[int, ...] = ()
    """Other processors that may be used for more threads per side."""


class Measurable(Protocol):
    """A pair whose target is up."""

    def measure(self, load: Load, timing: Timing) -> Sample:
        """Raises FailedError for a failure that may not repeat, and UnavailableError for a permanent one."""
        ...


class Subject(Protocol):
    """A pair that can be started."""

    @property
    def name(self) -> str: ...

    def up(self, place: Place) -> AbstractContextManager[Measurable]:
        """Raises UnavailableError if its programs are not installed."""
        ...


@dataclass(frozen=True)
class Reached:
    """A target that is up."""

    endpoint: str
    """In iotax's format; each initiator translates it."""
    pid: int | None
    """None for a local file, which no process serves."""
    awake: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    """Lets a polling target run; otherwise it is stopped."""


class Target(Protocol):
    @property
    def name(self) -> str: ...

    def up(self, place: Place) -> AbstractContextManager[Reached]:
        """Raises UnavailableError if its programs are not installed."""
        ...


class Initiator(Protocol):
    @property
    def name(self) -> str: ...

    def find(self) -> Path:
        """The path of its program. Raises UnavailableError if it is not installed."""
        ...

    def measure(self, program: Path, reached: Reached, place: Place, load: Load, timing: Timing) -> Sample:
        """Raises FailedError if it fails this time."""
        ...


@dataclass(frozen=True)
class Sides:
    """A subject composed of any initiator and any target with the same protocol."""

    target: Target
    initiator: Initiator
    called: str = ""
    """Its name, if different from the names of both sides."""

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
    """Starts their side while ours is up. A target that both use is started once, because many need a port or a
    processor for themselves."""
    if isinstance(ours, _Standing) and isinstance(theirs, Sides) and ours.target == theirs.target:
        yield replace(ours, initiator=theirs.initiator, program=theirs.initiator.find())
        return
    with theirs.up(place) as standing:
        yield standing


@dataclass(frozen=True)
class LocalFile:
    """A file in the page cache, which no process serves."""

    path: Path
    name: str = "file"

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Reached]:
        del place
        yield Reached(f"local:{self.path}", None)


@dataclass(frozen=True)
class _Standing:
    """An initiator and a target that is up."""

    target: Target
    initiator: Initiator
    program: Path
    reached: Reached
    place: Place

    def measure(self, load: Load, timing: Timing) -> Sample:
        with self.reached.awake():
            return self.initiator.measure(self.program, self.reached, self.place, load, timing)
