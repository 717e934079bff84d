"""The treatments of a study: all, a fraction, or a D-optimal choice."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeAlias

from iotax.design.fraction import Fraction, fraction
from iotax.study import Level, Omissions, Study

if TYPE_CHECKING:
    import numpy as np

Treatment: TypeAlias = tuple[Level, ...]
"""A level of each factor, in the study's order."""


def treatments(study: Study) -> list[Treatment]:
    """Treatments in the order of the factorial. Raises SingularDesignError if no D-optimal choice is possible."""
    everything = candidates(study)
    if study.design.fraction != "1":
        levels = list(study.levels().values())
        return [tuple(levels[factor][at] for factor, at in enumerate(run)) for run in fraction_of(study).runs()]
    if study.design.runs is not None:
        from iotax.design.doptimal import d_optimal  # noqa: PLC0415 - numpy is heavy, and few designs need it

        chosen = d_optimal(matrix(study, everything), study.design.runs, study.design.seed)
        return [everything[row] for row in chosen]
    return everything


def candidates(study: Study) -> list[Treatment]:
    """The full factorial without what the design omits."""
    levels = study.levels()
    omitted = Omissions(study)
    return [each for each in itertools.product(*levels.values()) if dict(zip(levels, each, strict=True)) not in omitted]


def fraction_of(study: Study) -> Fraction:
    halvings = int(study.design.fraction[2:]).bit_length() - 1
    return fraction(len(study.levels()), halvings)


def matrix(study: Study, some: list[Treatment]) -> np.ndarray:
    """The model matrix of the study's `effects`, which a D-optimal design must be able to estimate."""
    from iotax.design.doptimal import model_matrix  # noqa: PLC0415 - as above

    levels = list(study.levels().values())
    numbers = [[levels[at].index(level) for at, level in enumerate(treatment)] for treatment in some]
    order = min(len(levels), 1 if study.design.effects == "main" else 2)
    return model_matrix(numbers, [len(each) for each in levels], order)


def name_of(treatment: Treatment) -> str:
    """Its levels' labels, for a stream of random numbers of its own."""
    return "/".join(level.label for level in treatment)
