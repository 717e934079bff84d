"""One measurement of one pair of target and initiator."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Figures:
    """Figures that an initiator reports for its window."""

    rate_iops: float
    latency_p50_us: float | None = None
    latency_p99_us: float | None = None


@dataclass(frozen=True)
class Usage:
    """What both sides and the machine used in a window."""

    window_s: float
    initiator_cpu_s: float
    target_cpu_s: float | None
    """None if there is no target."""
    run_queue_wait: float
    """For the thread that waited longest for a processor, without waits for its siblings: seconds per second."""
    foreign_load: float
    """Cores that other processes kept busy."""
    initiator_sleeps: int | None = None
    """Voluntary context switches of its threads; None if both sides share a process."""
    target_sleeps: int | None = None


@dataclass(frozen=True)
class Sample:
    figures: Figures
    usage: Usage

    @property
    def initiator_cpu_us(self) -> float:
        """CPU time per I/O."""
        return self._an_io(self.usage.initiator_cpu_s * 1e6)

    @property
    def target_cpu_us(self) -> float | None:
        """CPU time per I/O."""
        return None if self.usage.target_cpu_s is None else self._an_io(self.usage.target_cpu_s * 1e6)

    @property
    def initiator_sleeps_an_io(self) -> float | None:
        return None if self.usage.initiator_sleeps is None else self._an_io(self.usage.initiator_sleeps)

    @property
    def target_sleeps_an_io(self) -> float | None:
        return None if self.usage.target_sleeps is None else self._an_io(self.usage.target_sleeps)

    def _an_io(self, whole: float) -> float:
        ios = self.figures.rate_iops * self.usage.window_s
        return whole / ios if ios else float("nan")

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self.figures),
            **asdict(self.usage),
            "initiator_cpu_us": self.initiator_cpu_us,
            "target_cpu_us": self.target_cpu_us,
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Sample:
        """Reads the output of `to_json`."""
        figures, usage = ({field.name: told[field.name] for field in fields(part)} for part in (Figures, Usage))
        return cls(Figures(**figures), Usage(**usage))
