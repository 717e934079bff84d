"""The study that another program's job becomes: its load, over protocols that are there without more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml


@dataclass(frozen=True)
class Converted:
    """A job as a study."""

    text: str
    """YAML."""
    notes: Sequence[str]
    """What the job asks that the study does not."""
    lines: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Field of the study → file and line of the job that it comes from."""


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
