"""Validity: the checks of every treatment, their findings, and what limits each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from iotax.analysis import Summary
from iotax.analysis.limits import TITLES as TITLES_OF_LIMITS
from iotax.analysis.limits import Limit, limit_of
from iotax.analysis.validity import TITLES, Severity
from iotax.report.section import Bullets, Facts, Folded, Heading, Part, Phrase, Section, Source
from iotax.report.tables import capital
from iotax.wording import title

SYMBOLS = {
    Severity.GOOD: ("●", "good"),
    Severity.UNKNOWN: ("○", "not known"),
    Severity.NOTE: ("◆", "note"),
    Severity.DOUBTFUL: ("▲", "doubtful"),
    Severity.INVALID: ("■", "invalid"),
}


def section(source: Source) -> Section:
    summary = source.summary
    checks = [TITLES[key] for key in checked(summary)]
    parts: list[Part] = [Matrix(list(SYMBOLS.values()), checks, validity_rows(summary))]
    if findings := _findings(summary):
        parts += [Heading("Findings"), Bullets([Phrase(text, small=where) for text, where in findings])]
    parts += [Heading("What limits each treatment"), Facts(_limits(summary), one_column=True)]
    return Section("validity", "Validity", parts, "Validity")


@dataclass(frozen=True)
class Matrix:
    """A row for each treatment, a column for each check."""

    kind: ClassVar[str] = "matrix"
    symbols: Sequence[tuple[str, str]]
    checks: Sequence[str]
    rows: Sequence[ValidityRow]


@dataclass(frozen=True)
class ValidityRow:
    arm: str
    name: str
    condition: str
    marks: list[tuple[str, str, str]]
    """(symbol, its word, the finding) for each check."""


def checked(summary: Summary) -> list[str]:
    """The checks that apply to these runs, by their keys."""
    modelled = any(run.result.media for run in summary.data.runs)
    return [key for key in TITLES if key != "media" or modelled]


def validity_rows(summary: Summary) -> list[ValidityRow]:
    shown = checked(summary)
    return [
        ValidityRow(
            cell.arm,
            title(cell.arm),
            cell.condition,
            [(*SYMBOLS[check.level], check.text) for check in cell.checks if check.key in shown],
        )
        for cell in summary.cells
    ]


def limits_of(summary: Summary) -> list[Limit]:
    """One for each cell."""
    return [limit_of(cell.runs) for cell in summary.cells]


def _limits(summary: Summary) -> list[tuple[str, Sequence[Part]]]:
    """Treatments with the same limiter stand together."""
    found: dict[str, list[Phrase]] = {}
    for cell, limit in zip(summary.cells, limits_of(summary), strict=True):
        name = ", ".join(filter(None, (title(cell.arm), cell.condition)))
        limited = found.setdefault(TITLES_OF_LIMITS[limit.limiter], [])
        limited.append(Phrase(f"{name}: {limit.evidence}", cell.arm))
    return [(capital(limiter), _limited(limited, len(summary.cells))) for limiter, limited in found.items()]


def _limited(limited: Sequence[Phrase], of: int) -> Sequence[Part]:
    count = f"{len(limited)} of {of} treatments"
    if len(limited) == 1:
        return [Phrase(f"{count}, {limited[0].text}")]
    return [Phrase(count), Folded("evidence", [Bullets(limited, plain=True)], printed=True)]


_TEXTS_MAX = 2
_PLACES_MAX = 4


def _findings(summary: Summary) -> list[tuple[str, str]]:
    """Findings, stated once for all cells that share them; many figures of one check by an example."""
    found: dict[str, dict[str, list[str]]] = {}
    for cell in summary.cells:
        for check in cell.checks:
            if check.level != Severity.GOOD:
                where = ", ".join(filter(None, (title(cell.arm), cell.condition)))
                found.setdefault(TITLES[check.key], {}).setdefault(check.text, []).append(where)
    said = []
    for name, texts in found.items():
        if len(texts) <= _TEXTS_MAX:
            said += [(f"{name}: {text}", _places(summary, where)) for text, where in texts.items()]
        else:
            where = [place for places in texts.values() for place in places]
            said.append((f"{name}: e.g. {next(iter(texts))}", _places(summary, where)))
    return said


def _places(summary: Summary, where: list[str]) -> str:
    if len(where) == len(summary.cells):
        return "all treatments"
    more = len(where) - _PLACES_MAX
    return "; ".join(where) if more < 2 else f"{'; '.join(where[:_PLACES_MAX])} and {more} more"
