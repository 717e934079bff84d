"""The values of a field in a study, with their places in the file, but for the treatments that its design omits
(`design: {exclude: …}`). This is not the study's own `exclude`, which leaves out measured runs by their findings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from iotax.study.model import Level, Study, sections_of_fields
from iotax.study.source import Place


def values(study: Study, name: str) -> list[Any]:
    """The values of the field in the study: its levels, or its one setting."""
    levels = study.levels()
    if name in levels:
        return [level.value for level in levels[name]]
    return [getattr(study.section(sections_of_fields()[name]), name)]


def place(study: Study, name: str) -> Place:
    """The place of its levels, or of its one setting."""
    return ("factors", name) if name in study.levels() else own_place(name)


def own_place(name: str) -> Place:
    """The place of its one setting."""
    section = sections_of_fields()[name]
    return ("lab", "sim", name) if section == "sim" else (section, name)


def combinations(study: Study, names: tuple[str, ...]) -> Iterator[dict]:
    """The levels of those of these fields that are factors, without those that the design always omits."""
    levels = {name: found for name, found in study.levels().items() if name in names}
    omitted = Omissions(study)
    for chosen in itertools.product(*levels.values()):
        combination = dict(zip(levels, chosen, strict=True))
        if combination not in omitted:
            yield {name: level.value for name, level in combination.items()}


class Omissions:
    """The combinations of levels that do not run."""

    def __init__(self, study: Study) -> None:
        self._combinations = [
            {name: study.level(name, value) for name, value in combination.items()}
            for combination in study.design.exclude
        ]

    def __contains__(self, levels: Mapping[str, Level]) -> bool:
        """Whether no treatment with these levels runs."""
        return any(
            all(name in levels and levels[name] == level for name, level in combination.items())
            for combination in self._combinations
        )
