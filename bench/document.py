"""A whole run of the bench as a file, from which its page can be made again."""

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
    """That made it."""
    environment: dict[str, Any]
    governor: str | None
    """Of the processors' frequency; None where the machine does not tell."""
    versions: dict[str, str]
    """Of the peers, by name."""
    accounting_ns: dict[str, float]
    """An I/O, by part; empty where it was not measured."""
    results: list[Result]
    complete: bool = True
    """Whether the run came to its end; the same command goes on with one that did not."""

    def write(self, path: Path) -> None:
        told = {**vars(self), "results": [result.to_json() for result in self.results]}
        # The whole of it or what was there: the run may end at any instant.
        new = path.with_name(path.name + ".new")
        new.write_text(json.dumps(told, indent=1) + "\n")
        new.replace(path)

    def is_begun_by(self, command: str, environment: dict[str, Any]) -> bool:
        """Whether it is what the same command on the same machine, with the same iotax, has left to be gone on with."""
        return not self.complete and (self.command, self.environment) == (command, environment)

    @classmethod
    def read(cls, path: Path) -> Document:
        told = json.loads(path.read_text())
        results = [Result.from_json(result) for result in told.pop("results")]
        return cls(**told, results=results)


def governor() -> str | None:
    """Most virtual machines do not tell."""
    return _GOVERNOR.read_text().strip() if _GOVERNOR.exists() else None
