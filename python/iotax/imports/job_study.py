"""The study that another program's job becomes: its load, over protocols that are there without more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from iotax.study.source import StudyError


@dataclass(frozen=True)
class Converted:
    """A job as a study."""

    text: str
    """YAML."""
    notes: Sequence[str]
    """What the job asks that the study does not."""
    lines: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Field of the study → file and line of the job that it comes from."""

    def refused(self, source: str, error: StudyError) -> list[str]:
        """What is wrong with the study, with the lines of the job: nobody has seen those of the study."""
        found = []
        for problem in error.problems:
            place: tuple[str, ...] = tuple(str(each) for each in problem.place)
            while place and place not in self.lines:
                place = place[:-1]
            of = f"{problem.field()}: " if problem.place else ""
            found.append(f"{self.lines.get(place, source)}: as a study: {of}{problem.message}")
        return found


def study_text(name: str, job: str, volume: Mapping[str, Any], load: Mapping[str, Any]) -> str:
    """YAML. `job` is what a reader knows it by; `volume` is what the job says of it."""
    study = {
        "name": name,
        "question": f"What does the load of {job} cost over iSCSI and NVMe/TCP?",
        "volume": dict(volume),
        "factors": {"protocol": ["iscsi", "nvme-tcp"]},
        "load": dict(load),
        "design": {"replicates": 3},
        "baseline": {"protocol": "iscsi"},
    }
    return yaml.safe_dump({key: value for key, value in study.items() if value}, sort_keys=False, allow_unicode=True)
