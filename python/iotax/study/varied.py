"""The values of a field in a study, and their places in the file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from iotax.study.model import Study, factor_names
from iotax.study.omissions import Omissions
from iotax.study.source import Place


def values(study: Study, name: str) -> list[Any]:
    """The values of the field in the study: its levels, or its one setting."""
    levels = study.levels()
    if name in levels:
        return [level.value for level in levels[name]]
    return [getattr(study.section(factor_names()[name]), name)]


def place(study: Study, name: str) -> Place:
    """The place of its levels, or of its one setting."""
    return ("factors", name) if name in study.levels() else own_place(name)


def own_place(name: str) -> Place:
    """The place of its one setting."""
    section = factor_names()[name]
    return ("lab", "sim", name) if section == "sim" else (section, name)


def combinations(study: Study, names: tuple[str, ...]) -> Iterator[dict]:
    """The levels of those of these fields that are factors, without those that the design always omits."""
    levels = {name: found for name, found in study.levels().items() if name in names}
    omitted = Omissions(study)
    for chosen in itertools.product(*levels.values()):
        combination = dict(zip(levels, chosen, strict=True))
        if combination not in omitted:
            yield {name: level.value for name, level in combination.items()}
