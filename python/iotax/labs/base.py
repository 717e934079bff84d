"""The interface of a lab to the runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from iotax.records import CpuRole
from iotax.trial import Background, Connected, Kept, Trial, TrialResult


@dataclass(frozen=True)
class HostSample:
    """One host's activity in an interval, if there are several."""

    host: str
    rate_iops: float
    latency_p50_ns: int | None
    latency_p99_ns: int | None


@dataclass(frozen=True)
class Sample:
    """A trial's activity in its latest interval."""

    phase: str
    """`warmup` or `run`."""
    at_ns: int
    rate_iops: float
    latency_p50_ns: int | None
    latency_p99_ns: int | None
    trial: str = ""
    """In a session: the trial whose slice it is, and its round, from 1."""
    round: int = 0
    hosts: tuple[HostSample, ...] = ()
    """Each machine's part if the load comes from others. Percentiles of several machines cannot be combined."""
    cores: Mapping[CpuRole, float] = field(default_factory=dict)
    """Processors that each role recently kept busy, including background; empty if not monitored."""


@dataclass(frozen=True)
class Step:
    """Work beside the load, such as writing the pattern."""

    text: str
    fraction: float | None = None


@dataclass(frozen=True)
class SlicesEnded:
    """Slices of a session that ended, told before the session has."""

    trial: str
    kept: Kept


Progress: TypeAlias = Callable[[Sample | Step | SlicesEnded], None]


@dataclass(frozen=True)
class CheckItem:
    """One finding of a preflight. `error` and `refused` keep the study from running."""

    kind: Literal["ok", "warning", "error", "refused"]
    subject: str
    message: str


@dataclass(frozen=True)
class Outcome:
    """A trial that ran."""

    result: TrialResult
    connected: Connected | None
    log: str


@dataclass(frozen=True)
class Worked:
    """A step of preconditioning that ended."""

    bytes: int
    """Written."""
    rate_iops: float | None = None
    """Share of random writes done."""


NOT_UNDONE = "not_undone"
"""Kind of the failure of an event whose undo failed: what it did is still so."""
_PERMANENT = frozenset(
    {
        "usage",
        "wrong_kind",
        "denied",
        "unauthenticated",
        "read_only",
        "too_small",
        "foreign_data",
        "in_use",
        "swapped",
        "disk_full",
        "missing",
    }
)
"""Kinds of failure that a second attempt meets again."""
_AWAY = frozenset({"refused", "unreachable", "not_found", "lost"})
"""Kinds of failure of a target that is gone, for a while or for good."""


class TrialFailed(Exception):  # noqa: N818 - an outcome, not a bug
    """This attempt failed. `kind` is the engine's, if known."""

    def __init__(
        self, reason: str, log: str = "", connected: Connected | None = None, kind: str = "", host: str = ""
    ) -> None:
        """`host` is the one of several by which it failed, where there is one."""
        self.reason, self.log, self.connected, self.kind, self.host = reason, log, connected, kind, host
        super().__init__(reason)

    @property
    def permanent(self) -> bool:
        """Whether another attempt can only fail alike."""
        return self.kind in _PERMANENT

    @property
    def away(self) -> bool:
        """Whether the target may just be gone: worth waiting for."""
        return self.kind in _AWAY


@dataclass(frozen=True)
class Closing:
    """The state in which a lab was left."""

    said: str = ""
    """Output of the user's own commands, line by line."""
    faults: tuple[str, ...] = ()
    """What could not be stopped or taken down, with what to do."""

    @property
    def log(self) -> str:
        return "\n".join([*([self.said] if self.said else []), *self.faults])


class LabUnusable(Exception):  # noqa: N818 - an outcome, not a bug
    """The study cannot run in this lab; has all findings."""

    def __init__(self, findings: list[CheckItem]) -> None:
        self.findings = [each for each in findings if each.kind in ("error", "refused")]
        super().__init__("\n".join(f"{each.subject}: {each.message}" for each in self.findings))

    @property
    def refused(self) -> bool:
        """Whether data that are not ours are in the way."""
        return any(each.kind == "refused" for each in self.findings)


class Lab(ABC):
    """Runs trials of one study, one after another."""

    tell: Callable[[str], None] = staticmethod(lambda _: None)
    """Receives the reason for waiting, even if no progress is requested."""
    may_disturb: bool = False
    """Whether commands of the study's events may run."""
    without_lost_hosts: bool = False
    """Whether the user allows trials without hosts that stay lost."""
    absent: Mapping[str, str] = {}
    """Such hosts, and why each is left out."""

    @abstractmethod
    def check(self) -> list[CheckItem]:
        """Looks whether every treatment can run. Writes nothing anywhere."""

    def check_initiator(self, progress: Progress) -> list[CheckItem]:
        """Measures what this machine's initiator reaches on a target of iotax's own under the study's loads."""
        del progress
        return [CheckItem("warning", "initiator", "not measured: only `lab: loopback` measures its initiator")]

    @abstractmethod
    def prepare(self, progress: Progress) -> None:
        """Makes the lab ready for its first trial. Raises LabUnusable."""

    def volumes(self) -> list[str]:
        """The endpoints whose volumes are preconditioned, each volume under one of them."""
        return []

    def fill(self, endpoint: str, progress: Progress) -> Worked:
        """Fills the volume of an endpoint in sequence. Raises TrialFailed."""
        raise TrialFailed(f"this lab does not precondition {endpoint}")

    def overwrite(self, endpoint: str, number: int, progress: Progress) -> Worked:
        """Overwrites it at random, in one round. Raises TrialFailed."""
        raise TrialFailed(f"this lab does not precondition {endpoint}")

    def environment(self) -> dict[str, Any]:
        """The facts of this lab that results depend on, as plain data; known once it is prepared."""
        return {}

    @abstractmethod
    def background(self, block: int) -> Background | None:
        """Measures the lab without load; None if its sessions do so. Raises TrialFailed."""

    def expect(self, trials: Sequence[Trial]) -> None:
        """The trials to run next, in order, as far as known. If trials cannot disturb each other, some may start before
        they are requested."""
        del trials

    @abstractmethod
    def run(self, trial: Trial, progress: Progress) -> Outcome:
        """Runs one trial. Raises TrialFailed."""

    def run_rounds(self, trials: Sequence[Trial], progress: Progress) -> list[Outcome]:
        """Runs the trials of one session in turns, in slices: an outcome for each. Raises TrialFailed, for all."""
        raise TrialFailed("this lab runs each trial on its own")

    def answers(self, trial: Trial) -> bool:
        """Whether the trial's endpoint can be reached now. Writes nothing."""
        del trial
        return True

    def leave_out(self, failed: TrialFailed) -> bool:
        """Goes on without the host by which trials failed again and again; False where that may not or cannot be."""
        del failed
        return False

    def closing(self) -> Closing:
        """Known once it is closed."""
        return Closing()

    @abstractmethod
    def close(self) -> None:
        """Leaves nothing behind. May be called at any time, and twice."""
