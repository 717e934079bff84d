"""The treatments that a design omits: `design: {exclude: …}`. This is not the study's own `exclude`, which leaves out
measured runs by their findings."""

from __future__ import annotations

from collections.abc import Mapping

from iotax.study.model import Level, Study


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
