"""Adds targets that the user built to a study: `iotax run targets-exact --with-target ~/spdk/build/bin/nvmf_tgt`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from iotax.study.fields import OWN_TARGETS, kind_of
from iotax.study.model import Study
from iotax.study.read import folder_of, load_study, read_study
from iotax.study.source import read_yaml
from iotax.study.topology import SERVED


def load_with_targets(name: str, targets: Sequence[str]) -> tuple[Study, str]:
    """The study under the name NAME-own, with a level of `protocol` for each target, and its text. A target is
    `[LEVEL=]PATH`. Raises StudyError, and ValueError if the study or a target cannot be used so."""
    study, text = load_study(name)
    if study.lab.vm is None:
        raise ValueError(f"{study.name} runs in the {study.lab.name} lab; only the vm lab starts targets")
    data = read_yaml(name, text).data
    factors = data.get("factors") or {}
    if "protocol" not in factors:
        raise ValueError(f"{study.name} compares no protocols or targets: it has no factor `protocol`")
    levels = _by_name(factors["protocol"])
    for told in targets:
        level, endpoint = _level(told)
        if level in levels:
            raise ValueError(f"two levels have the name {level}; name each target: --with-target LEVEL=PATH")
        levels[level] = endpoint
    data |= {"name": f"{data['name'][:60]}-own", "factors": factors | {"protocol": levels}}
    said = "".join(f"# --with-target {told}\n" for told in targets)
    text = said + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
    return read_study(f"{name} with --with-target", text, folder_of(name)), text


def _level(told: str) -> tuple[str, dict[str, str]]:
    name, _, path = told.rpartition("=")
    program = Path(path).expanduser().absolute()
    kind = kind_of(str(program))
    if kind not in OWN_TARGETS:
        raise ValueError(f"{path}: the lab does not know this program; it can start {', '.join(OWN_TARGETS)}")
    protocol = SERVED[kind][0]
    return name or f"{protocol} {kind}", {"protocol": protocol, "target": str(program)}


def _by_name(levels: Any) -> dict[str, Any]:
    """A list of levels, too, as a mapping from their names."""
    return dict(levels) if isinstance(levels, dict) else {str(each): each for each in levels}
