"""The parts of which a report's sections consist. templates/parts.html has a macro for each kind of part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from iotax.analysis import Summary
from iotax.analysis.data import PROTOCOL
from iotax.report import palette
from iotax.report.charts.base import Drawing
from iotax.report.palette import Look
from iotax.report.tables import Column, Group
from iotax.wording import title

FIRST_PANELS = 6
"""A figure's further panels are folded."""
MOST_PANELS = 12
"""Panels beyond this are written as files only: few readers would look through them, and each takes time."""


@dataclass(frozen=True)
class Source:
    """What sections are made from."""

    summary: Summary
    notebook: str
    """The file's name."""
    looks: dict[str, Look]

    @property
    def base(self) -> str:
        return title(self.summary.grid.baseline_arm)

    @property
    def conditions(self) -> list[str]:
        return list(dict.fromkeys(cell.condition for cell in self.summary.cells))

    def judged(self) -> Legend:
        """Of the arms that are compared with the baseline."""
        return self.legend(dict.fromkeys(overall.arm for overall in self.summary.overalls))

    def legend(self, arms: Iterable[str] | None = None) -> Legend:
        """Of all arms, or of some."""
        shown = self.summary.grid.arms if arms is None else arms
        return Legend([(title(arm), self.looks[arm]) for arm in shown])

    def drawn(self, found: Iterable[Drawing | None]) -> list[Drawing]:
        """The charts that have something to show. Simulated ones say so in a corner, and before their description."""
        drawings = [drawing for drawing in found if drawing is not None]
        if not self.summary.data.simulated:
            return drawings
        return [replace(each, mark="simulated", description=f"Simulated. {each.description}") for each in drawings]


def source_of(summary: Summary, notebook: str) -> Source:
    endpoints = summary.data.study.endpoints() if PROTOCOL in summary.grid.compared else {}
    looks = palette.looks(summary.grid.arms, {label: each.protocol for label, each in endpoints.items()})
    return Source(summary, notebook, looks)


class Part(Protocol):
    kind: ClassVar[str]
    """The macro that shows it."""


@dataclass(frozen=True)
class Section:
    name: str
    """The anchor."""
    title: str
    parts: Sequence[Part]
    short: str = ""
    """The title in the row of links at the top; empty if it is not there."""

    def drawings(self) -> list[Drawing]:
        return [drawing for part in _all(self.parts) if isinstance(part, Panels) for drawing in part.drawings]


@dataclass(frozen=True)
class Text:
    """A paragraph. Backticks mark code."""

    kind: ClassVar[str] = "text"
    text: str
    look: str = ""
    """A class of the style sheet: `lead`, `note`, `warning`, `cite`, or that of a finding."""
    strong: str = ""
    """Bold words before the text."""


def note(text: str, strong: str = "") -> Text:
    return Text(text, "note", strong)


@dataclass(frozen=True)
class Heading:
    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Table:
    """Figures with their intervals."""

    kind: ClassVar[str] = "table"
    columns: Sequence[Column]
    groups: Sequence[Group]
    label: str
    """For readers who cannot see the table."""


@dataclass(frozen=True)
class Legend:
    """Names, each with the look of an arm or the name of a colour."""

    kind: ClassVar[str] = "legend"
    entries: Sequence[tuple[str, Look | str]] = ()


@dataclass(frozen=True)
class Panels:
    """Charts of one kind, a panel for each."""

    kind: ClassVar[str] = "panels"
    drawings: Sequence[Drawing]
    caption: str
    across: int = 3
    """Panels side by side on a wide screen; 0 for one that is as wide as the page."""
    legend: Legend = field(default_factory=Legend)
    first: int = FIRST_PANELS

    @property
    def shown(self) -> Sequence[Drawing]:
        return self.drawings[:MOST_PANELS]

    @property
    def left_out(self) -> int:
        return max(0, len(self.drawings) - MOST_PANELS)


@dataclass(frozen=True)
class Folded:
    kind: ClassVar[str] = "folded"
    title: str
    parts: Sequence[Part]
    printed: bool = False
    """Whether it stands open on paper."""


@dataclass(frozen=True)
class Answers:
    """Titles, each with what is said to it."""

    kind: ClassVar[str] = "answers"
    answers: Sequence[tuple[str, Sequence[Part]]]


@dataclass(frozen=True)
class Box:
    """Remarks set apart; as a strip, on a ground of their own."""

    kind: ClassVar[str] = "box"
    parts: Sequence[Text]
    strip: bool = False


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    kind: ClassVar[str] = "facts"
    rows: Sequence[tuple[str, Sequence[Part]]]
    one_column: bool = False


def facts(rows: Iterable[tuple[str, str]], *, one_column: bool = False) -> Facts:
    return Facts([(name, [Phrase(text)]) for name, text in rows], one_column)


@dataclass(frozen=True)
class Phrase:
    """Text within a line, behind the mark of an arm if it has one."""

    kind: ClassVar[str] = "phrase"
    text: str
    arm: str = ""
    small: str = ""
    """Smaller words behind it."""
    log: str = ""
    """Folded below."""


@dataclass(frozen=True)
class Bullets:
    kind: ClassVar[str] = "bullets"
    items: Sequence[Phrase]
    plain: bool = False
    """Without marks, in smaller type."""


@dataclass(frozen=True)
class Listing:
    """A table of words and numbers without intervals."""

    kind: ClassVar[str] = "listing"
    label: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Phrase]]
    heads: int = 0
    """The column that names its row."""
    numbers: Sequence[int] = ()
    """Columns of numbers, which stand at the right."""
    look: str = "list"
    """A class of the style sheet: `list` or `shares`."""


@dataclass(frozen=True)
class Preformatted:
    kind: ClassVar[str] = "preformatted"
    text: str


def _all(parts: Iterable[Part]) -> Iterable[Part]:
    """With the parts of folded ones."""
    for part in parts:
        yield part
        if isinstance(part, Folded):
            yield from _all(part.parts)
