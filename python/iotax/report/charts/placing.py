"""Places labels beside points of a chart so that they cover as few labels, points and lines as possible. Positions are
in pixels of the plot, x to the right, y upwards."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Point = tuple[float, float]

_POINT_PX = 4.0
_STEPS = 24
"""Step along a line when testing whether it crosses a label."""
_LABEL, _DOT, _LINE, _OUTSIDE = 100.0, 10.0, 6.0, 1000.0
"""Cost of covering each kind of object; the first of several equally cheap places is taken."""


@dataclass(frozen=True)
class Box:
    left: float
    right: float
    low: float
    high: float

    def shares(self, other: "Box") -> bool:
        return min(self.right, other.right) > max(self.left, other.left) and min(self.high, other.high) > max(
            self.low, other.low
        )

    def holds(self, at: Point, reach_px: float = 0.0) -> bool:
        return (
            self.left - reach_px < at[0] < self.right + reach_px and self.low - reach_px < at[1] < self.high + reach_px
        )


@dataclass
class Plot:
    """Objects drawn in a plot so far."""

    width_px: float
    height_px: float
    dots: Sequence[Point]
    lines: Sequence[Sequence[Point]]
    _labels: list[Box] = field(default_factory=list)

    def place(self, at: Point, text_px: float, high_px: float, gap_px: float = 7.0) -> Point:
        """The middle of a label for the point `at`; the label counts as drawn afterwards."""
        boxes = [_around(at, text_px, high_px, gap_px, side) for side in _SIDES]
        best = min(boxes, key=self._covered)
        self._labels.append(best)
        return (best.left + best.right) / 2, (best.low + best.high) / 2

    def _covered(self, box: Box) -> float:
        outside = box.left < 0 or box.right > self.width_px or box.low < 0 or box.high > self.height_px
        crossed = sum(any(box.holds(at, 1.0) for at in _along(line)) for line in self.lines)
        return (
            _OUTSIDE * outside
            + _LABEL * sum(box.shares(other) for other in self._labels)
            + _DOT * sum(box.holds(dot, _POINT_PX) for dot in self.dots)
            + _LINE * crossed
        )


_SIDES = [
    (x, y, further_px)
    for further_px in (0.0, 9.0)
    for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1), (-1, 1), (1, 1), (-1, -1), (1, -1))
]
"""Possible positions of a label: beside, above, below, diagonal; then the same further away."""


def _around(at: Point, wide: float, high: float, gap: float, side: tuple[int, int, float]) -> Box:
    x, y, further = side
    aslant = 0.6 if x and y else 1.0
    middle = at[0] + x * (wide / 2 + (gap + further) * aslant), at[1] + y * (high / 2 + (gap + further) * aslant)
    return Box(middle[0] - wide / 2, middle[0] + wide / 2, middle[1] - high / 2, middle[1] + high / 2)


def _along(line: Sequence[Point]) -> list[Point]:
    return [
        (a[0] + (b[0] - a[0]) * i / _STEPS, a[1] + (b[1] - a[1]) * i / _STEPS)
        for a, b in pairwise(line)
        for i in range(_STEPS + 1)
    ]
