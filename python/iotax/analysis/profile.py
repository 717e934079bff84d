"""Where the instructions of an I/O go, by layer and function: means over the runs of each treatment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from iotax.analysis.estimate import combined, mean_of
from iotax.analysis.responses import Run
from iotax.analysis.summary import CellSummary
from iotax.records import Profile
from iotax.records.cpu import Role

_CONFIDENCE = 0.95


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
        found: Counter[str] = Counter()
        for (layer, _), instructions in self.functions.items():
            found.update({layer: instructions})
        return dict(found.most_common())


@dataclass(frozen=True)
class Difference:
    """Of a layer, a function or all of them, in instructions per I/O, after less before."""

    layer: str
    """Empty for all layers."""
    function: str
    """Empty for the whole layer."""
    before: float
    after: float
    low: float | None
    high: float | None
    """Ends of its own 95 % interval; None where a side has a single run."""

    @property
    def more(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class ProfileChange:
    """What one treatment's instructions changed by, on one machine; the largest differences first."""

    treatment: str
    host: str
    role: Role
    total: Difference
    layers: list[Difference]
    functions: list[Difference]


def cell_profiles(cells: Iterable[CellSummary]) -> list[CellProfile]:
    """One for each treatment and machine that has one, the initiator's before the target's."""
    return [
        CellProfile(cell.arm, cell.condition, host, role, len(own), _means(own))
        for cell in cells
        for (host, role), own in _by_machine(cell.runs).items()
    ]


def profile_changes(treatment: str, before: Sequence[Run], after: Sequence[Run]) -> list[ProfileChange]:
    """One for each machine that both sides have a profile of."""
    olds, news = _by_machine(before), _by_machine(after)
    return [
        ProfileChange(
            treatment,
            host,
            role,
            _differences(map(_whole, olds[host, role]), map(_whole, news[host, role]))[0],
            _differences(map(_by_layer, olds[host, role]), map(_by_layer, news[host, role])),
            _differences(map(_by_function, olds[host, role]), map(_by_function, news[host, role])),
        )
        for host, role in olds
        if (host, role) in news
    ]


def _by_machine(runs: Sequence[Run]) -> dict[tuple[str, Role], list[Profile]]:
    found: dict[tuple[str, Role], list[Profile]] = {}
    for run in runs:
        for each in run.result.profile:
            if each.ios > 0:
                found.setdefault((each.host, each.role), []).append(each)
    return found


_PerIo = Mapping[tuple[str, str], float]
"""(layer, function) → instructions per I/O; the function is empty where layers are meant."""


def _whole(profile: Profile) -> _PerIo:
    return {("", ""): profile.instructions / profile.ios}


def _by_layer(profile: Profile) -> _PerIo:
    return {(layer, ""): sum(own.values()) / profile.ios for layer, own in profile.layers.items()}


def _by_function(profile: Profile) -> _PerIo:
    return {(layer, name): n / profile.ios for layer, own in profile.layers.items() for name, n in own.items()}


def _differences(before: Iterable[_PerIo], after: Iterable[_PerIo]) -> list[Difference]:
    """Of independent samples of runs (Welch); a function that a run did not call spent nothing in it."""
    olds, news = list(before), list(after)
    found = []
    for key in dict.fromkeys(name for each in (*olds, *news) for name in each):
        old, new = (np.array([each.get(key, 0.0) for each in side]) for side in (olds, news))
        interval = combined([(1.0, mean_of(new)), (-1.0, mean_of(old))]).interval(_CONFIDENCE)
        low, high = interval or (None, None)
        found.append(Difference(*key, float(old.mean()), float(new.mean()), low, high))
    return sorted(found, key=lambda each: -abs(each.more))


def _means(profiles: list[Profile]) -> dict[tuple[str, str], float]:
    total: Counter[tuple[str, str]] = Counter()
    for each in profiles:
        total.update(_by_function(each))
    return {key: instructions / len(profiles) for key, instructions in total.most_common()}
