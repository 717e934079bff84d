"""The report's sections, in the order of the page. Each is one file, and is left out if it has nothing to show."""

from collections.abc import Callable, Sequence

from iotax.report.section import Section, Source
from iotax.report.sections import (
    checklist,
    cost,
    cpu,
    design,
    effects,
    environment,
    figures,
    generators,
    imported,
    links,
    load,
    percentiles,
    published,
    reproduce,
    search,
    sizing,
    tax,
    validity,
    verdict,
)

MEASURED: Sequence[Callable[[Source], Section | None]] = (
    figures.section,
    links.section,
    tax.section,
    published.section,
    load.section,
    effects.section,
    generators.section,
    percentiles.section,
    cpu.section,
    cost.section,
    sizing.section,
    validity.section,
)
"""Sections about treatments, of which at least one must have been measured."""


def sections(source: Source) -> list[Section]:
    measured = MEASURED if source.summary.cells else ()
    found = [
        verdict.section(source),
        search.section(source),
        *(each(source) for each in measured),
        design.section(source),
        imported.section(source),
        environment.section(source),
        reproduce.method(),
        checklist.section(source),
        reproduce.section(source),
    ]
    return [each for each in found if each is not None]
