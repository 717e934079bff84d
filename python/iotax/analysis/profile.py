"""Instructions of an I/O by layer and function: means over the runs of each treatment."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from iotax.analysis.estimate import combined, mean_of
from iotax.analysis.responses import Run
from iotax.analysis.summary import CellSummary
from iotax.records import Profile
from iotax.records.cpu import Role

MemoryCounts = Literal["copied_bytes", "cache_lines"]
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Frame:
    """A function under its callers."""

    caller: int
    """Its caller's place in the same list; −1 where nobody called it."""
    layer: str
    function: str
    instructions: float
    """Instructions per I/O, including those of called functions."""


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
    calls: tuple[Frame, ...] = ()
    """The calls as a tree, callers first; empty if no run has one."""
    copied_bytes: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(layer, function that had them copied) → bytes per I/O, the most first; empty if none were counted."""
    cache_lines: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(layer, function) → lines fetched per I/O, the most first; empty if none were counted."""

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
    """The difference of a layer, a function or all instructions per I/O, after minus before; or of another count."""

    layer: str
    """Empty for all layers."""
    function: str
    """Empty for the whole layer."""
    before: float
    after: float
    low: float | None
    high: float | None
    """Ends of its own 95 % interval; None if a side has a single run."""

    @property
    def more(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class ProfileChange:
    """The change of one treatment's instructions on one machine; the largest differences first."""

    treatment: str
    host: str
    role: Role
    total: Difference
    layers: list[Difference]
    functions: list[Difference]
    memory: Mapping[MemoryCounts, Difference] = field(default_factory=dict)
    """Totals of bytes copied and cache lines fetched per I/O; those that both sides counted."""
    calls: tuple[tuple[Frame, ...], tuple[Frame, ...]] = ((), ())
    """The calls before and after, the same frames in the same places; empty if no run has them."""


def cell_profiles(cells: Iterable[CellSummary]) -> list[CellProfile]:
    """One for each treatment and machine that has one, the initiator's before the target's."""
    return [
        CellProfile(
            cell.arm,
            cell.condition,
            host,
            role,
            len(own),
            _means(own, "layers"),
            _trees(own)[0],
            _means(own, "copied_bytes"),
            _means(own, "cache_lines"),
        )
        for cell in cells
        for (host, role), own in _by_machine(cell.runs).items()
    ]


def profile_changes(treatment: str, before: Sequence[Run], after: Sequence[Run]) -> list[ProfileChange]:
    """One for each machine that both sides have a profile of."""
    olds, news = _by_machine(before), _by_machine(after)
    return [
        _change(treatment, host, role, olds[host, role], news[host, role])
        for host, role in olds
        if (host, role) in news
    ]


def _change(treatment: str, host: str, role: Role, olds: list[Profile], news: list[Profile]) -> ProfileChange:
    before, after = _trees(olds, news)
    return ProfileChange(
        treatment,
        host,
        role,
        _differences(map(_whole, olds), map(_whole, news))[0],
        _differences(map(_by_layer, olds), map(_by_layer, news)),
        _differences(map(_by_function, olds), map(_by_function, news)),
        {
            counts: _differences((_sum(each, counts) for each in olds), (_sum(each, counts) for each in news))[0]
            for counts in get_args(MemoryCounts)
            if all(any(getattr(each, counts) for each in side) for side in (olds, news))
        },
        (before, after),
    )


def _by_machine(runs: Sequence[Run]) -> dict[tuple[str, Role], list[Profile]]:
    found: dict[tuple[str, Role], list[Profile]] = {}
    for run in runs:
        for each in run.result.profile:
            if each.ios > 0:
                found.setdefault((each.host, each.role), []).append(each)
    return found


_Counts = Literal["layers", MemoryCounts]
_PerIo = Mapping[tuple[str, str], float]
"""(layer, function) → instructions per I/O; the function is empty for a whole layer."""


def _whole(profile: Profile) -> _PerIo:
    return {("", ""): profile.instructions / profile.ios}


def _by_layer(profile: Profile) -> _PerIo:
    return {(layer, ""): sum(own.values()) / profile.ios for layer, own in profile.layers.items()}


def _by_function(profile: Profile, counts: _Counts = "layers") -> _PerIo:
    layers: Mapping[str, Mapping[str, int]] = getattr(profile, counts)
    return {(layer, name): n / profile.ios for layer, own in layers.items() for name, n in own.items()}


def _sum(profile: Profile, counts: MemoryCounts) -> _PerIo:
    return {("", ""): sum(_by_function(profile, counts).values())}


def _differences(before: Iterable[_PerIo], after: Iterable[_PerIo]) -> list[Difference]:
    """Independent samples of runs (Welch); a function that a run did not call counts as 0."""
    olds, news = list(before), list(after)
    found = []
    for key in dict.fromkeys(name for each in (*olds, *news) for name in each):
        old, new = (np.array([each.get(key, 0.0) for each in side]) for side in (olds, news))
        interval = combined([(1.0, mean_of(new)), (-1.0, mean_of(old))]).interval(_CONFIDENCE)
        low, high = interval or (None, None)
        found.append(Difference(*key, float(old.mean()), float(new.mean()), low, high))
    return sorted(found, key=lambda each: -abs(each.more))


def _means(profiles: list[Profile], counts: _Counts) -> dict[tuple[str, str], float]:
    total: Counter[tuple[str, str]] = Counter()
    for each in profiles:
        total.update(_by_function(each, counts))
    return {key: spent / len(profiles) for key, spent in total.most_common()}


def _trees(*sides: Sequence[Profile]) -> list[tuple[Frame, ...]]:
    """The trees of each side's runs in one: functions under the same callers are the same. Sides have the same frames
    in the same places, with 0 instructions where a side never called one."""
    places: dict[tuple[int, str, str], int] = {}
    spent: list[defaultdict[int, float]] = [defaultdict(float) for _ in sides]
    for side, sums in zip(sides, spent, strict=True):
        for profile in side:
            own: list[int] = []
            for call in profile.calls:
                caller = own[call.caller] if call.caller >= 0 else -1
                own.append(places.setdefault((caller, call.layer, call.function), len(places)))
                sums[own[-1]] += call.instructions / profile.ios / len(side)
    callers = [caller for caller, _, _ in places]
    for sums in spent:
        for at in range(len(callers) - 1, -1, -1):
            if callers[at] >= 0:
                sums[callers[at]] += sums[at]
    return [tuple(Frame(*key, sums[at]) for key, at in places.items()) for sums in spent]
