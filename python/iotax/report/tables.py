"""Tables of figures with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from iotax.analysis import CellSummary, Comparison, Estimate, Response, Summary
from iotax.units import counted
from iotax.wording import figure, indexed, indexed_ends, title


@dataclass(frozen=True)
class Figure:
    """A table cell: the number, and its interval in smaller type."""

    value: str
    interval: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Row:
    arm: str
    """The name in the palette."""
    name: str
    figures: list[Figure]
    note: str = ""


@dataclass(frozen=True)
class Group:
    """Rows under one condition."""

    condition: str
    rows: list[Row]


@dataclass(frozen=True)
class Column:
    title: str
    unit: str = ""


def _runs(cell: CellSummary) -> str:
    return counted(len(cell.runs), "run")


def by_condition(
    cells: Iterable[CellSummary],
    figures_of: Callable[[CellSummary], list[Figure]],
    note_of: Callable[[CellSummary], str] = _runs,
) -> list[Group]:
    groups: dict[str, list[Row]] = {}
    for cell in cells:
        groups.setdefault(cell.condition, []).append(Row(cell.arm, title(cell.arm), figures_of(cell), note_of(cell)))
    return [Group(capital(condition), rows) for condition, rows in groups.items()]


def both(summary: Summary, cell: CellSummary, response: Response) -> list[Figure]:
    """The value, and the same relative to the baseline."""
    own = absolute(cell.values.get(response.key))
    if cell.arm == summary.grid.baseline_arm:
        return [own, Figure("100", tone="base")]
    return [own, _relative(cell.ratios.get(response.key))]


def absolute(estimate: Estimate | None) -> Figure:
    if estimate is None:
        return Figure("–")
    return Figure(figure(estimate.value), interval(estimate))


def interval(estimate: Estimate) -> str:
    """Empty if there is none, or if both ends are written alike."""
    if estimate.low is None or estimate.high is None or estimate.alike:
        return ""
    link = "–" if estimate.low >= 0 else " to "
    return f"{figure(estimate.low)}{link}{figure(estimate.high)}"


def _relative(comparison: Comparison | None) -> Figure:
    if comparison is None:
        return Figure("–")
    r = comparison.ratio
    if r.low is None or r.high is None:
        return Figure("–")
    reach = "" if r.alike else "–".join(indexed_ends(r, _index))
    return Figure(_index(r.value), reach, comparison.verdict or "")


def _index(ratio: float) -> str:
    """Three significant figures; 100 only for exactly 100."""
    return indexed(ratio, 1 if ratio < 1 else 0)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
