"""A study made from other programs' results: its factors are free, and it cannot be run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, field_validator

from iotax.study.endpoint import Endpoint
from iotax.study.fields import Section
from iotax.study.model import Factors, Level, Settings, Study
from iotax.study.rules import CELLS_MAX
from iotax.trial import LevelValue
from iotax.units import format_size

IMPORTED = "imported"
"""The section that identifies such a study."""
SIZES = ("block_size",)
"""Factors with levels in bytes."""


def beyond_cells(factors: Mapping[str, Sequence[LevelValue]]) -> str:
    """The error if factors have more combinations of levels than allowed: a comparison looks at each, with or without
    results. Empty if there is none."""
    cells = math.prod(len(levels) for levels in factors.values())
    if cells <= CELLS_MAX:
        return ""
    several = [f"{name} {len(levels)}" for name, levels in factors.items() if len(levels) > 1]
    return f"{cells:,} combinations of levels ({' × '.join(several)}); {CELLS_MAX:,} are the most"


class Imported(Section):
    """The source of the results, and the names under which they are compared."""

    programs: list[str]
    """Programs with their versions: fio 3.36."""
    files: int
    """How many results were read."""
    digest: str
    """A digest of the files: equal for equal files."""
    factors: Annotated[dict[str, Annotated[list[bool | int | float | str], Field(min_length=1)]], Field(min_length=1)]
    """Factor → levels, from file names, the command line or the files themselves."""

    @field_validator("factors")
    @classmethod
    def _few(cls, factors: dict[str, list[LevelValue]]) -> dict[str, list[LevelValue]]:
        if too_many := beyond_cells(factors):
            raise ValueError(too_many)
        return factors


class ImportedStudy(Study):
    """The study in the notebook's form. A study file cannot be one."""

    imported: Imported
    factors: Factors = Factors()  # ty: ignore[invalid-type-form]

    def levels(self) -> dict[str, tuple[Level, ...]]:
        return {
            name: tuple(Level(_label(name, value), value) for value in values)
            for name, values in self.imported.factors.items()
        }

    def level(self, factor: str, wanted: LevelValue) -> Level | None:
        found = self.levels().get(factor, ())
        return next((each for each in found if wanted == each.value or str(wanted) == each.label), None)

    def endpoints(self) -> dict[str, Endpoint]:
        """Its protocols are only names; nobody can connect to them."""
        return {level.label: Endpoint(level.label, "elsewhere") for level in self.levels().get("protocol", ())}

    def settings(self, treatment: Mapping[str, LevelValue]) -> Settings:
        raise ValueError(self.no_plan)

    @property
    def no_plan(self) -> str:
        """Why it cannot be run."""
        return (
            f"{self.name} was imported from {self.source}: it has no plan to run. To measure here, write a study "
            "(`iotax init`, or `iotax init --from JOB.fio`); to add results, import them with the same NOTEBOOK"
        )

    @property
    def source(self) -> str:
        """ "3 fio 3.36 files"."""
        plural = "file" if self.imported.files == 1 else "files"
        return f"{self.imported.files} {' and '.join(self.imported.programs)} {plural}"


def kept_study(text: str) -> Study:
    """A study from a notebook. Raises pydantic's ValidationError."""
    try:
        data: Any = json.loads(text)
    except ValueError:
        return Study.model_validate_json(text)
    if isinstance(data, dict) and IMPORTED in data:
        return ImportedStudy.model_validate_json(text)
    return Study.model_validate_json(text)


def _label(factor: str, value: LevelValue) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if factor in SIZES and isinstance(value, int):
        return format_size(value)
    return str(value)
