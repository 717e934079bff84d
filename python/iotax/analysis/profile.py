"""Where the instructions of an I/O go, by layer and function: means over the runs of each treatment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from iotax.analysis.summary import CellSummary
from iotax.records import Profile
from iotax.records.cpu import Role


@dataclass(frozen=True)
class CellProfile:
    """The profile of one machine under one treatment."""

    arm: str
    condition: str
    host: str
    role: Role
    runs: int
    functions: Mapping[tuple[str, str], float]
    """(layer, function) → instructions per I/O, the most first."""

    @property
    def instructions(self) -> float:
        """Per I/O."""
        return sum(self.functions.values())

    @property
    def layers(self) -> dict[str, float]:
        """Layer → instructions per I/O, the most first."""
        found: dict[str, float] = {}
        for (layer, _), instructions in self.functions.items():
            found[layer] = found.get(layer, 0.0) + instructions
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def cell_profiles(cells: Iterable[CellSummary]) -> list[CellProfile]:
    """One for each treatment and machine that has one, the initiator's before the target's."""
    found = []
    for cell in cells:
        by_host: dict[tuple[str, Role], list[Profile]] = {}
        for run in cell.runs:
            for each in run.result.profile:
                if each.ios > 0:
                    by_host.setdefault((each.host, each.role), []).append(each)
        found += [
            CellProfile(cell.arm, cell.condition, host, role, len(own), _means(own))
            for (host, role), own in by_host.items()
        ]
    return found


def _means(profiles: list[Profile]) -> dict[tuple[str, str], float]:
    total: dict[tuple[str, str], float] = {}
    for each in profiles:
        for layer, functions in each.layers.items():
            for name, instructions in functions.items():
                key = (layer, name)
                total[key] = total.get(key, 0.0) + instructions / each.ios / len(profiles)
    return dict(sorted(total.items(), key=lambda pair: -pair[1]))
