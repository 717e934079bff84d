"""The study that another program's job becomes: its load, over protocols that are there without more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def study_text(name: str, job: str, size: str, load: Mapping[str, Any]) -> str:
    """YAML. `job` is what a reader knows it by; `size` is of the volume, empty where the job does not say."""
    study = {
        "name": name,
        "question": f"What does the load of {job} cost over iSCSI and NVMe/TCP?",
        "volume": {"size": size} if size else {},
        "factors": {"protocol": ["iscsi", "nvme-tcp"]},
        "load": dict(load),
        "design": {"replicates": 3},
        "baseline": {"protocol": "iscsi"},
    }
    return yaml.safe_dump({key: value for key, value in study.items() if value}, sort_keys=False, allow_unicode=True)
