"""A study of another lab as one of `lab: sim`: what virtual time asks otherwise is changed and said, all else that
cannot be is refused by the rules of the lab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from iotax.study.model import MODELLED, Study
from iotax.study.read import builtin_studies, load_study, read_study
from iotax.study.source import Problem, StudyError
from iotax.units import parse_size

LINK_RATE = "25Gbit"
_WINDOWS = {"warmup": "20ms", "runtime": "100ms"}
_OPEN_WINDOWS = {"warmup": "100ms", "runtime": "500ms"}
"""Of an open loop and before modelled media: what is simulated is I/Os, and at a low rate a second has few."""
_SIZE = "64MiB"
_BY_ROUNDS = ("sessions", "rounds", "slice", "settle")


def load_simulated(name: str) -> tuple[Study, str, list[str]]:
    """The study, its text as it is simulated, and what was changed, a sentence each. Raises StudyError, also for what
    the simulator cannot do."""
    study, text = load_study(name)
    if study.lab.sim is not None:
        return study, text, []
    data, said = as_simulated(yaml.safe_load(text))
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
    folder = Path.cwd() if name in builtin_studies() else Path(name).resolve().parent
    try:
        return read_study(f"{name} with --lab sim", text, folder), text, said
    except StudyError as error:
        raise StudyError(error.name, [*_at_full_size(name), *error.problems]) from None


def _at_full_size(name: str) -> list[Problem]:
    """The built-in study that asks the same of the simulator, with costs of its own."""
    full = builtin_studies().get(f"{name}-full")
    if full is None or "sim" not in (yaml.safe_load(full).get("lab") or ()):
        return []
    return [Problem(None, (), f"cannot be simulated; {name}-full asks the same of the simulator, at its full size")]


def as_simulated(told: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The same for what a study file says."""
    data, said = dict(told), []
    data |= {"name": f"{data['name'][:60]}-sim", "lab": {"sim": {}}}
    factors = dict(data.get("factors") or {})
    load, topology, volume, design = (dict(data.get(part) or {}) for part in ("load", "topology", "volume", "design"))
    if _without_local(factors):
        said.append("the simulator serves no volume without a protocol: `local` is left out")
        if data.get("floor") == "local":
            del data["floor"]
    if _without_other_media(data, factors):
        said.append("the media of a simulation are alike in all treatments: only `media: model` is simulated")
        volume["media"] = "model"
    if volume.get("media") == "model":
        data["lab"] = {"sim": {"media": _media(volume)}}
    if "link_rate" not in factors and not topology.get("link_rate"):
        topology["link_rate"] = LINK_RATE
        said.append(f"a simulated link has a rate: {LINK_RATE}")
    if any(name in design for name in _BY_ROUNDS):
        replicates = design.get("sessions", 6)
        design = {name: value for name, value in design.items() if name not in _BY_ROUNDS} | {"replicates": replicates}
        said.append(f"each simulated trial runs on its own: {replicates} replicates in place of sessions and rounds")
    slow = "rate_iops" in factors or load.get("rate_iops") or data["lab"]["sim"]
    windows = _OPEN_WINDOWS if slow else _WINDOWS
    load |= {name: value for name, value in windows.items() if name not in factors}
    said.append("virtual time needs no long windows: {warmup} of warm-up, {runtime} measured".format(**windows))
    volume.pop("refill", None)
    if (
        "size" not in factors
        and not load.get("working_set")
        and parse_size(volume.get("size", "1GiB")) > parse_size(_SIZE)
    ):
        volume["size"] = _SIZE
        said.append(f"simulated memory has no caches that a size could exceed: the volume has {_SIZE}")
    parts = {"factors": factors, "load": load, "topology": topology, "volume": volume, "design": design}
    return data | {name: part for name, part in parts.items() if part}, said


def _without_local(factors: dict[str, Any]) -> bool:
    """Takes the lab's own `local` away where another protocol stays."""
    levels = factors.get("protocol")
    if isinstance(levels, dict):
        left: Any = {label: level for label, level in levels.items() if level != "local"}
    elif isinstance(levels, list):
        left = [level for level in levels if level != "local"]
    else:
        return False
    if not left or len(left) == len(levels):
        return False
    factors["protocol"] = left
    return True


def _without_other_media(data: dict[str, Any], factors: dict[str, Any]) -> bool:
    """Takes a factor `media` away of which a level is a model, and what is said of its levels elsewhere."""
    if "model" not in (factors.get("media") or ()):
        return False
    del factors["media"]
    data["baseline"] = {name: level for name, level in data["baseline"].items() if name != "media"}
    published = []
    for each in data.get("published") or ():
        said = [figure for figure in each["figures"] if figure["of"].get("media", "model") == "model"]
        own = [figure | {"of": {k: v for k, v in figure["of"].items() if k != "media"}} for figure in said]
        published += [each | {"figures": own}] if own else []
    data |= {"published": published} if published else {}
    return True


def _media(volume: dict[str, Any]) -> dict[str, Any]:
    """What a volume says of its model, taken out of it, as simulated media say it."""
    del volume["media"]
    media = {name: volume.pop(name) for name in MODELLED if name in volume}
    return media | ({"data": volume.get("size", "1GiB")} if "cache" in media else {})
