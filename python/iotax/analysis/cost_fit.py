"""What a simulated thread's work costs, fitted to measured CPU per I/O.

    CPU per I/O = io + wakes × wake + KiB received × kib + KiB sent × kib_sent + segments × segment
                  + turns × turn + sends × send

How often each of them happens for an I/O is known from a simulation of the measured treatment. A figure is fitted only
where the measured treatments tell it apart from those before it, in the order of `GROUPS`; what they do not is taken
from another table. The two directions are fitted together where they are not told apart. No cost is below zero.
Treatments count alike by relative error (least squares), and blocks are the sample: what each gives alone, with
Student's t, is the interval.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from iotax.analysis import student

_KIB = ("kib", "kib_sent")
_SEGMENT = ("segment",)
GROUPS: tuple[tuple[str, ...], ...] = (("io",), ("wake",), _KIB, _SEGMENT, ("turn", "send"))
"""Figures that are fitted together keep the other table's ratio: a turn sends about once."""
_APART = 0.1
"""What must be left of a column, as a share of it, when those before it have explained what they can."""
_MATTERS = 0.01
"""Of the CPU time of some treatment, by the other table: less is not fitted. Segments of several sizes are, since that
table may know nothing of them."""


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
    """Name → figure, of one side. `base` is the other table's, each of them. With one MTU what a segment costs is in
    that of a KiB. Raises ValueError where nothing was measured."""
    blocks = sorted(set.intersection(*(set(each.measured_ns) for each in treatments))) if treatments else []
    if not blocks:
        raise ValueError("no block measured every treatment")
    measured = np.array([[each.measured_ns[block] for block in blocks] for each in treatments])
    scale = measured.mean(axis=1)
    columns = {group: _column(treatments, base, group) for group in (*GROUPS, *((name,) for name in _KIB))}
    chosen = _chosen(columns, scale, several_mtus)
    fixed = sum((base[name] * np.array([each.counts[name] for each in treatments]) for name in base
                 if not any(name in group for group in chosen)), np.zeros(len(treatments)))  # fmt: skip
    matrix = np.stack([columns[group] for group in chosen], axis=1) / scale[:, None]

    def solved(values: np.ndarray) -> np.ndarray:
        return _not_below_zero(matrix, (values - fixed) / scale)

    whole = solved(scale)
    reach = np.full(len(chosen), np.nan)
    if len(blocks) > 1:
        by_block = np.array([solved(measured[:, at]) for at in range(len(blocks))])
        reach = by_block.std(axis=0, ddof=1) / len(blocks) ** 0.5 * student.reach(len(blocks) - 1)
    found = {name: Figure(float(ns)) for name, ns in base.items()}
    for group, factor, by in zip(chosen, whole, reach, strict=True):
        for name in group:
            unit = _unit(base, group, name)
            ns, half = float(factor * unit), float(by * unit)
            if np.isnan(half):
                found[name] = Figure(ns, fitted=True)
            else:
                found[name] = Figure(ns, max(0.0, ns - half), ns + half, fitted=True)
    return found


def _not_below_zero(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Least squares with no coefficient below zero: the best of all choices of those that are above it, which for a
    handful of columns are few."""
    best, least = np.zeros(matrix.shape[1]), float(values @ values)
    for count in range(1, matrix.shape[1] + 1):
        for kept in itertools.combinations(range(matrix.shape[1]), count):
            solved = np.linalg.lstsq(matrix[:, kept], values, rcond=None)[0]
            missed = values - matrix[:, kept] @ solved
            if np.all(solved >= 0) and float(missed @ missed) < least:
                best, least = np.zeros(matrix.shape[1]), float(missed @ missed)
                best[list(kept)] = solved
    return best


def _unit(base: Mapping[str, float], group: Sequence[str], name: str) -> float:
    """What one of a group weighs in it: one nanosecond each where the other table has none."""
    return base[name] if any(base[each] > 0 for each in group) else 1.0


def _column(treatments: Sequence[Costed], base: Mapping[str, float], group: Sequence[str]) -> np.ndarray:
    return np.array([sum(_unit(base, group, name) * each.counts[name] for name in group) for each in treatments])


def _chosen(
    columns: Mapping[tuple[str, ...], np.ndarray], scale: np.ndarray, several_mtus: bool
) -> list[tuple[str, ...]]:
    """The groups that these treatments tell apart, the first of all in any case."""
    chosen: list[tuple[str, ...]] = []
    basis = np.zeros((len(scale), 0))

    def told_apart(group: tuple[str, ...]) -> bool:
        nonlocal basis
        relative = columns[group] / scale
        left = relative - basis @ (basis.T @ relative)
        if chosen and np.linalg.norm(left) <= _APART * np.linalg.norm(relative):
            return False
        basis = np.column_stack((basis, left / np.linalg.norm(left)))
        return True

    for group in GROUPS:
        matters = several_mtus if group == _SEGMENT else float((columns[group] / scale).max()) >= _MATTERS
        if (matters or not chosen) and told_apart(group):
            chosen.append(group)
    if _KIB in chosen and told_apart(_KIB[1:]):
        at = chosen.index(_KIB)
        chosen[at : at + 1] = [(name,) for name in _KIB]
    return chosen
