"""What a simulated thread's work costs, fitted to measured CPU per I/O.

    CPU per I/O = io + deep wakes × wake + short wakes × wake_short + KiB received × kib + KiB sent × kib_sent
                  + segments × segment + turns × turn + sends × send

How often each of them happens for an I/O is known from a simulation of the measured treatment. A figure is fitted only
where the measured treatments tell it apart from those before it, in the order of `GROUPS`; what they do not is taken
from another table. KiB of both directions get one cost where treatments do not separate them. No cost is
below zero. Wakes cost no more from some sleep on; half that sleep counts as half as deep.
Treatments count alike by relative error (least squares), and blocks are the sample: what each gives alone, with
Student's t, is the interval.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from iotax.analysis import student

Direction: TypeAlias = Mapping[str, float]
"""Figures that are fitted together, each by its weight."""
_KIB = ("kib", "kib_sent")
_WAKE = ("wake", "wake_short")
_SEGMENT = ("segment",)
GROUPS: tuple[tuple[str, ...], ...] = (("io",), _WAKE, _KIB, _SEGMENT, ("turn", "send"))
"""Figures that are fitted together keep the other table's ratio: a turn sends about once, and how much less it takes to
wake from a short sleep is for a measurement of its own."""
_APART = 0.1
"""Share of a column that must remain unexplained by those before it."""
_MATTERS = 0.01
"""Share of some treatment's CPU time, by the other table: smaller costs are not fitted. Segments of several sizes are,
since that table may not know them."""


@dataclass(frozen=True)
class Costed:
    """One treatment: CPU time per I/O of one side in each block, and how often each figure counts for an I/O."""

    measured_ns: Mapping[int, float]
    counts: Mapping[str, float]


@dataclass(frozen=True)
class Figure:
    """Nanoseconds, with a 95 % interval where blocks give one. Not `fitted`: as the other table has it."""

    ns: float
    low_ns: float | None = None
    high_ns: float | None = None
    fitted: bool = False


def fit_costs(
    treatments: Sequence[Costed], base: Mapping[str, float], *, several_mtus: bool = False
) -> dict[str, Figure]:
    """Name → figure of one side. `base` holds all figures of the other table. With one MTU, the cost of a segment is
    part of that of a KiB. Raises ValueError if nothing was measured."""
    blocks = sorted(set.intersection(*(set(each.measured_ns) for each in treatments))) if treatments else []
    if not blocks:
        raise ValueError("no block measured every treatment")
    measured = np.array([[each.measured_ns[block] for block in blocks] for each in treatments])
    scale = measured.mean(axis=1)
    chosen = _chosen(treatments, scale, base, several_mtus)
    fitted = {name for direction in chosen for name in direction}
    fixed = _column(treatments, {name: ns for name, ns in base.items() if name not in fitted})
    matrix = np.stack([_column(treatments, direction) for direction in chosen], axis=1) / scale[:, None]

    def solved(values: np.ndarray) -> np.ndarray:
        return _not_below_zero(matrix, (values - fixed) / scale)

    names = sorted(fitted)
    weights = np.array([[direction.get(name, 0.0) for direction in chosen] for name in names])
    whole = weights @ solved(scale)
    by_block = np.array([weights @ solved(measured[:, at]) for at in range(len(blocks))])
    found = {name: Figure(float(ns)) for name, ns in base.items()}
    return found | {name: figure_of(float(whole[at]), by_block[:, at]) for at, name in enumerate(names)}


def figure_of(ns: float, by_block: Sequence[float] | np.ndarray) -> Figure:
    """Fitted figures, with 95 % intervals from separate fits of several blocks."""
    count = len(by_block)
    if count < 2:
        return Figure(ns, fitted=True)
    half = float(np.std(by_block, ddof=1)) / count**0.5 * student.reach(count - 1)
    return Figure(ns, max(0.0, ns - half), ns + half, fitted=True)


def _not_below_zero(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Non-negative least squares: the best of all choices of positive coefficients; with a handful of columns there are
    few choices."""
    best, least = np.zeros(matrix.shape[1]), float(values @ values)
    for count in range(1, matrix.shape[1] + 1):
        for kept in itertools.combinations(range(matrix.shape[1]), count):
            solved = np.linalg.lstsq(matrix[:, kept], values, rcond=None)[0]
            missed = values - matrix[:, kept] @ solved
            if np.all(solved >= 0) and float(missed @ missed) < least:
                best, least = np.zeros(matrix.shape[1]), float(missed @ missed)
                best[list(kept)] = solved
    return best


def _direction(base: Mapping[str, float], group: Sequence[str]) -> Direction:
    """Splits them in the other table's ratio, or equally if it has none of them."""
    return {name: base[name] if any(base[each] > 0 for each in group) else 1.0 for name in group}


def _column(treatments: Sequence[Costed], direction: Direction) -> np.ndarray:
    return np.array([sum(weight * each.counts[name] for name, weight in direction.items()) for each in treatments])


def _chosen(
    treatments: Sequence[Costed], scale: np.ndarray, base: Mapping[str, float], several_mtus: bool
) -> list[Direction]:
    """The figures that these treatments can separate; always at least the first."""
    basis = np.zeros((len(scale), 0))

    def told_apart(direction: Direction) -> bool:
        nonlocal basis
        relative = _column(treatments, direction) / scale
        left = relative - basis @ (basis.T @ relative)
        if basis.shape[1] and np.linalg.norm(left) <= _APART * np.linalg.norm(relative):
            return False
        basis = np.column_stack((basis, left / np.linalg.norm(left)))
        return True

    def matters(group: tuple[str, ...], direction: Direction) -> bool:
        return several_mtus if group == _SEGMENT else float((_column(treatments, direction) / scale).max()) >= _MATTERS

    chosen: dict[tuple[str, ...], Direction] = {}
    for group in GROUPS:
        direction = _direction(base, group)
        if (matters(group, direction) or not chosen) and told_apart(direction):
            chosen[group] = direction
    if _KIB in chosen and told_apart({_KIB[1]: 1.0}):
        del chosen[_KIB]
        chosen |= {(name,): {name: 1.0} for name in _KIB}
    return list(chosen.values())
