"""The interface of a generator to labs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iotax.labs.base import CheckItem, Outcome, Progress, TrialFailed
from iotax.labs.load import Permission
from iotax.records import CpuUse
from iotax.study import Settings
from iotax.study.model import Load
from iotax.trial import TrialResult, Window

PATTERN = "iotax's"
"""The contents of a volume that iotax filled and wrote."""


@dataclass(frozen=True)
class Job:
    """One trial's load."""

    settings: Settings
    endpoint: str
    """The endpoint as in the trial's record."""
    reached: str
    """The endpoint for a program that is given no identity: a file or device through the lab's open descriptor."""
    permission: Permission
    seed: int
    driver: str
    cpus: list[int]
    """The processors that it is pinned to; none: all."""
    watch_pids: dict[str, int]
    """Role → another process whose CPU belongs to the result."""
    program: Path
    """iotax's engine."""
    events: bool = False
    """Something happens in the run; only for a generator that tells when its window starts."""
    starts: Callable[[int], None] = lambda _: None
    """Hears of that, in ns of the wall clock."""


@dataclass(frozen=True)
class HostJob:
    """A trial's load on a host, until it is ended."""

    settings: Settings
    """With the working set of this host."""
    path: str
    """The device or file on the host."""
    found: Mapping[str, str]
    """The script's `load_ready` line about the host."""
    seed: int
    offset_bytes: int
    """Start of its part of the volume."""
    longest_s: int
    """When it ends by itself."""
    client: int
    """The host's number, from 1."""


class Generator(ABC):
    """A program that makes load."""

    name: str
    foreign: bool
    """Whether it is another program than the engine: such a program neither needs nor keeps iotax's pattern, and opens
    the file of a memory volume itself."""
    database: bool = False
    """Whether it loads a database, which has a file system on the volume and counts transactions."""

    guest_program: tuple[str, str] | None = None
    """(Debian's package, program) that the vm lab runs in its guests, from `guest_job` to `guest_result`; None for
    generators that it runs in another way."""

    released: bool = False
    """Whether on a host it waits at a FIFO, `start` in the folder that `load_ready` says as RUN, until the window's
    settling time begins."""
    host_script: str = ""
    """The script on a host of the hosts lab (`load_ready`, `load_begin`, `load_end`, `down_using`), from `host_job` to
    `host_result`; empty for generators that run in another way."""

    @abstractmethod
    def check(self, asked: Sequence[Settings], driver: str) -> list[CheckItem]:
        """Whether this machine's program can reach the endpoint of these settings."""

    @abstractmethod
    def threads(self, load: Load) -> int:
        """The number of processors on which it makes this load."""

    def needs(self, settings: Settings) -> str:
        """The content that a volume must have before the run, by a name of its own; empty if any will do."""
        del settings
        return ""

    def leaves(self, settings: Settings) -> str:
        """The content after a run; empty if that is as it was."""
        return PATTERN if settings.load.writes else ""

    def lay_out(self, job: Job, progress: Progress) -> None:
        """Writes the content that it needs. Raises TrialFailed."""
        raise NotImplementedError

    def guest_job(self, settings: Settings, path: str, *, direct: bool, seed: int) -> str:
        """Input of the program in a guest, with the volume at `path`."""
        raise NotImplementedError

    def guest_result(
        self, output: str, settings: Settings, *, endpoint: str, cpu_window_ns: int, started_unix_ns: int
    ) -> TrialResult:
        """The result from the program's output, without CPU. Raises TrialFailed."""
        raise NotImplementedError

    def host_job(self, job: HostJob) -> tuple[str, ...]:
        """Arguments of `load_begin`, behind the device."""
        raise NotImplementedError

    def host_result(
        self,
        said: Sequence[str],
        settings: Settings,
        *,
        endpoint: str,
        cpu: CpuUse,
        window: Window,
    ) -> TrialResult:
        """The window's result from the lines of `load_end`. Raises TrialFailed."""
        raise NotImplementedError

    @abstractmethod
    def run(self, job: Job, progress: Progress) -> Outcome:
        """Runs the load to its end. Raises TrialFailed."""


class Elsewhere(Generator):
    """A generator of other labs than this machine's."""

    elsewhere: str
    """Why it does not run here, and what to say instead."""

    def check(self, asked: Sequence[Settings], driver: str) -> list[CheckItem]:
        del asked, driver
        return [CheckItem("error", self.name, self.elsewhere)]

    def threads(self, load: Load) -> int:
        return load.threads

    def run(self, job: Job, progress: Progress) -> Outcome:
        del job, progress
        raise TrialFailed(self.elsewhere)


def said_of(lines: Iterable[str], word: str) -> list[str]:
    """The rest of the script's line with this first word."""
    return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]
