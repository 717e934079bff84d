"""A complete run of the bench as a file, from which its page can be generated again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.results import Result

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


@dataclass(frozen=True)
class Document:
    command: str
    """The command that made the document."""
    environment: dict[str, Any]
    governor: str | None
    """The governor of the CPU frequency; None if the machine does not report one."""
    versions: dict[str, str]
    """Versions of the peers, by name."""
    accounting_ns: dict[str, float]
    """Nanoseconds per I/O for each part; empty if not measured."""
    results: list[Result]
    complete: bool = True
    """Whether the run ended; the same command continues an incomplete run."""

    def write(self, path: Path) -> None:
        told = {**vars(self), "results": [result.to_json() for result in self.results]}
        # Writes a new file and renames it, because the run may be killed at any time.
        new = path.with_name(path.name + ".new")
        new.write_text(json.dumps(told, indent=1) + "\n")
        new.replace(path)

    def is_begun_by(self, command: str, environment: dict[str, Any]) -> bool:
        """Whether the same command, on the same machine with the same iotax, left this document incomplete."""
        return not self.complete and (self.command, self.environment) == (command, environment)

    @classmethod
    def read(cls, path: Path) -> Document:
        told = json.loads(path.read_text())
        results = [Result.from_json(result) for result in told.pop("results")]
        return cls(**told, results=results)


def governor() -> str | None:
    """The CPU frequency governor. Most virtual machines do not report one."""
    return _GOVERNOR.read_text().strip() if _GOVERNOR.exists() else None
