"""What a lab knows of a generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iotax.labs.base import CheckItem, Outcome, Progress
from iotax.labs.load import Permission
from iotax.records import CpuUse
from iotax.study import Settings
from iotax.study.model import Load
from iotax.trial import TrialResult

PATTERN = "iotax's"
"""What a volume holds that iotax filled and wrote."""


@dataclass(frozen=True)
class Job:
    """One trial's load."""

    settings: Settings
    endpoint: str
    """Where it goes, as the trial's record names it."""
    reached: str
    """The same for a program that is told no identity: a file or device by what the lab holds open."""
    permission: Permission
    seed: int
    driver: str
    cpus: list[int]
    """The processors that it is pinned to; none: all."""
    watch_pids: dict[str, int]
    """Role → another process whose CPU belongs to the result."""
    program: Path
    """iotax's engine."""
    count_ns: int | None = None
    """I/Os are counted in intervals of this length, too, by a generator that tells when its window starts."""
    starts: Callable[[int], None] = lambda _: None
    """Hears of that, in ns of the wall clock."""


@dataclass(frozen=True)
class HostJob:
    """A trial's load on a host, until it is ended."""

    settings: Settings
    """With the working set of this host."""
    path: str
    """Of the device or file, there."""
    found: Mapping[str, str]
    """What its script's `load_ready` said of the host."""
    seed: int
    offset_bytes: int
    """Where its part of the volume begins."""
    longest_s: int
    """When it ends by itself."""


class Generator(ABC):
    """A program that makes load."""

    name: str
    foreign: bool
    """Whether it is another program than the engine: it neither needs nor keeps iotax's pattern, and opens the file of
    a memory volume itself."""
    database: bool = False
    """Whether it loads a database, which has a file system on the volume and counts transactions."""

    guest_program: tuple[str, str] | None = None
    """(Debian's package, program) that the vm lab runs in its guests, from `guest_job` to `guest_result`; None of what
    it runs in another way."""

    host_script: str = ""
    """What runs on a host of the hosts lab (`load_ready`, `load_begin`, `load_end`, `down_using`), from `host_job` to
    `host_result`; empty of what is run in another way."""

    @abstractmethod
    def check(self, asked: Sequence[Settings], driver: str) -> list[CheckItem]:
        """Whether this machine's program reaches what these settings name."""

    @abstractmethod
    def threads(self, load: Load) -> int:
        """On how many it makes this load."""

    def needs(self, settings: Settings) -> str:
        """The content that a volume must have before the run, by a name of its own; empty where any will do."""
        del settings
        return ""

    def leaves(self, settings: Settings) -> str:
        """The content after a run; empty where that is as it was."""
        return PATTERN if settings.load.writes else ""

    def lay_out(self, job: Job, progress: Progress) -> None:
        """Writes the content that it needs. Raises TrialFailed."""
        raise NotImplementedError

    def guest_job(self, settings: Settings, path: str, *, direct: bool, seed: int) -> str:
        """What the program in a guest is told, with the volume at `path`."""
        raise NotImplementedError

    def guest_result(
        self, output: str, settings: Settings, *, endpoint: str, cpu_window_ns: int, started_unix_ns: int
    ) -> TrialResult:
        """What it said of its run, without CPU. Raises TrialFailed."""
        raise NotImplementedError

    def host_job(self, job: HostJob) -> str:
        """What `load_begin` is told."""
        raise NotImplementedError

    def host_result(
        self,
        said: Sequence[str],
        settings: Settings,
        *,
        endpoint: str,
        cpu: CpuUse,
        start_unix_ns: int,
        duration_ns: int,
    ) -> TrialResult:
        """What the lines of `load_end` say of the window. Raises TrialFailed."""
        raise NotImplementedError

    @abstractmethod
    def run(self, job: Job, progress: Progress) -> Outcome:
        """Runs the load to its end. Raises TrialFailed."""


def said_of(lines: Iterable[str], word: str) -> list[str]:
    """What stands behind a first word of a script's lines."""
    return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]
