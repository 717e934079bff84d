"""Protocols for which a lab has both bounds: all of the transport in software, and none of it. A real adapter lies
between, so a statement about the protocol must hold at both bounds.

At the bound without transport, initiator and target share a machine. The sum of their CPU time compares with that of
two machines. The speed of one processor doing the work of two does not, so the bound is missing then.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from iotax.analysis.data import PROTOCOL, Cell, Grid
from iotax.analysis.estimate import Estimate
from iotax.analysis.responses import BOTH_ENDS, Response, Run
from iotax.analysis.verdict import Cause, Verdict, Withheld
from iotax.analysis.withheld import Carriers
from iotax.protocols import known

_KINDS = ("software", "loop")
"""Kinds of carriers: all of the transport in software, none of it."""


@dataclass(frozen=True)
class End:
    """A comparison at one end of the bracket, or at one of each where both sides have two."""

    carriers: tuple[str, ...]
    """The names of the carriers at the two bounds."""
    ratio: Estimate
    verdict: Verdict | None


@dataclass(frozen=True)
class Pair:
    """Two cells to compare, at an end."""

    carriers: tuple[str, ...]
    cell: Cell
    base: Cell


class Brackets:
    """The cells of a study that are the two bounds of one protocol."""

    def __init__(
        self, response: Response, grid: Grid, cells: Iterable[Cell], runs: Iterable[Run], carriers: Carriers
    ) -> None:
        self._carriers = carriers
        self._sums = response in BOTH_ENDS
        self._at = list(grid.factors).index(PROTOCOL) if PROTOCOL in grid.factors else None
        self._title: dict[Cell, str] = {}
        self._one_machine: dict[Cell, bool] = {}
        for cell, run in zip(cells, runs, strict=True):
            row = known(run.result.facts.protocol)
            if row is not None and row.bracket:
                self._title[cell] = row.bracket
                self._one_machine[cell] = run.result.cpu.part("both") is not None

    def has(self, cell: Cell) -> bool:
        """Whether the cell is one of two bounds."""
        return len(self._ends(cell)) > 1

    def arms(self, grid: Grid, arm: str) -> list[tuple[str, str]]:
        """(name of the carrier, arm) of both ends of an arm; empty of an arm without another end."""
        cell = next((each for each in self._title if grid.arm(each) == arm), None)
        if cell is None or not self.has(cell):
            return []
        return [(self._carriers[end].name, grid.arm(end)) for end in self._ends(cell)]

    def pairs(self, cell: Cell, base: Cell) -> list[Pair]:
        """The comparison at each bound; empty if neither side has two. Cells of the same protocol are not compared
        here, neither the two bounds nor two ways of the same transport. The software bound of an arm stands for both.
        """
        ends, bases = self._ends(cell), self._ends(base)
        same = self._title.get(cell) is not None and self._title.get(cell) == self._title.get(base)
        if len(ends) == len(bases) == 1 or same or (len(ends) > 1 and cell != ends[0]):
            return []
        return [
            Pair(tuple(self._carriers[each].name for each, of in ((a, ends), (b, bases)) if len(of) > 1), a, b)
            for a, b in product(ends, bases)
        ]

    def _ends(self, cell: Cell) -> Sequence[Cell]:
        """The cell alone, or both bounds in the order of `_KINDS`. If several cells have the same kind, e.g. one path
        and two, a cell uses itself and the first of the other kind."""
        title = self._title.get(cell)
        if title is None or self._at is None:
            return (cell,)
        at = self._at
        found: dict[str, Cell] = {self._carriers[cell].kind: cell}
        for other, its in self._title.items():
            alike = its == title and other[:at] + other[at + 1 :] == cell[:at] + cell[at + 1 :]
            if alike and (self._sums or self._one_machine[other] == self._one_machine[cell]):
                found.setdefault(self._carriers[other].kind, other)
        return tuple(found[kind] for kind in _KINDS) if set(found) == set(_KINDS) else (cell,)


def agreed(ends: Sequence[End]) -> tuple[Verdict | None, Withheld | None]:
    """The verdict that all ends give; where they differ, none."""
    verdicts = {end.verdict for end in ends}
    if None in verdicts:
        return None, Withheld(Cause.RUNS)
    if len(verdicts) == 1:
        return verdicts.pop(), None
    return None, Withheld(Cause.ENDS)
