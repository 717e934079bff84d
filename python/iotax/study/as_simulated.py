"""Turns a study of another lab into one of `lab: sim`. Settings that virtual time needs otherwise are changed and
reported; the lab's rules refuse what cannot be simulated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from iotax.study.endpoint import NAMED, SIM
from iotax.study.model import MODELLED, Study
from iotax.study.read import folder_of, load_study, read_study
from iotax.study.sim import Sim, read_costs
from iotax.study.source import read_yaml
from iotax.units import parse_size

LINK_RATE = "25Gbit"
_WINDOWS = {"warmup": "20ms", "runtime": "100ms"}
_OPEN_WINDOWS = {"warmup": "100ms", "runtime": "500ms"}
"""Runtime of open loops and before modelled media: at a low rate, a second holds few I/Os."""
_KERNEL_WINDOWS = {"warmup": "500ms", "runtime": "2s"}
"""Runtime of emulated kernels, whose largest I/Os take milliseconds of a processor."""
_TWO_KERNELS, _ONE_KERNEL = "linux-6.1", "linux-6.1-one-kernel"
"""Cost tables for the vm lab's guests: each end in its own guest, or both in one."""
_DRAWN_REPLICATES = 10
"""Replicates if each draws its costs: an interval from two or three draws is too wide to be useful."""
_ELSEWHERE = tuple(name for name in NAMED if name not in SIM)
_SIZE = "64MiB"
_BY_ROUNDS = ("sessions", "rounds", "slice", "settle")


def load_simulated(name: str) -> tuple[Study, str, list[str]]:
    """The study, its text as simulated, and one sentence for each change. Raises StudyError, also for what the
    simulator cannot do."""
    study, text = load_study(name)
    if study.lab.sim is not None:
        return study, text, []
    data, said = as_simulated(read_yaml(name, text).data)
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
    return read_study(f"{name} with --lab sim", text, folder_of(name)), text, said


def as_simulated(told: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The same for the text of a study file."""
    data, said = dict(told), []
    kernel = _kernel(data)
    data |= {"name": f"{data['name'][:60]}-sim", "lab": {"sim": {}}}
    factors = dict(data.get("factors") or {})
    load, topology, volume, design = (dict(data.get(part) or {}) for part in ("load", "topology", "volume", "design"))
    costs = Sim().costs if kernel is None else _ONE_KERNEL if kernel.get("guests") == 1 else _TWO_KERNELS
    left_out = _without(factors, _ELSEWHERE)
    if "local" in left_out:
        said.append("the simulator serves no volume without a protocol: `local` is left out")
        if data.get("floor") == "local":
            del data["floor"]
    if others := [name for name in left_out if name != "local"]:
        said.append(f"the simulator does not speak {', '.join(others)}: left out")
    told_costs = read_costs(costs).protocols
    if free := _without(factors, [name for name in SIM if name not in told_costs]):
        said.append(f"{costs} has no costs of {', '.join(free)}: left out")
    _without_published(data, factors)
    if kernel is not None:
        data["lab"] = {"sim": {"costs": costs, "cores": 1, "target_cores": 1}}
        said.append(
            f"a simulation runs no kernel: what Linux 6.1 costs is the table {costs}, each end on one processor"
        )
    if _with_only("guest", "attach", data, factors, design):
        said.append("simulated guests reach the target themselves: only `attach: guest` is simulated")
    if _with_only("model", "media", data, factors, design):
        said.append("the media of a simulation are alike in all treatments: only `media: model` is simulated")
        volume["media"] = "model"
    if volume.get("media") == "model":
        data["lab"] = {"sim": data["lab"]["sim"] | {"media": _media(volume)}}
    if "link_rate" not in factors and not topology.get("link_rate"):
        topology["link_rate"] = LINK_RATE
        said.append(f"a simulated link has a rate: {LINK_RATE}")
    if any(name in design for name in _BY_ROUNDS):
        replicates = design.get("sessions", 6)
        design = {name: value for name, value in design.items() if name not in _BY_ROUNDS} | {"replicates": replicates}
        said.append(f"each simulated trial runs on its own: {replicates} replicates in place of sessions and rounds")
    if kernel is not None and design.get("replicates", 0) < _DRAWN_REPLICATES:
        design["replicates"] = _DRAWN_REPLICATES
        said.append(f"each replicate draws what is unknown of the costs: {_DRAWN_REPLICATES} replicates")
    slow = "rate_iops" in factors or load.get("rate_iops") or "media" in data["lab"]["sim"]
    windows = _KERNEL_WINDOWS if kernel is not None else _OPEN_WINDOWS if slow else _WINDOWS
    if not data.get("events"):
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


def _kernel(data: dict[str, Any]) -> dict[str, Any] | None:
    """The settings of the vm lab; None in another lab."""
    lab = data.get("lab")
    if lab == "vm":
        return {}
    return (lab["vm"] or {}) if isinstance(lab, dict) and "vm" in lab else None


def _without(factors: dict[str, Any], protocols: Sequence[str]) -> list[str]:
    """Removes these protocols if others remain, and names them."""
    levels = factors.get("protocol")
    if isinstance(levels, dict):
        unknown = {label: name for label, level in levels.items() if (name := _protocol(level)) in protocols}
        left: Any = {label: level for label, level in levels.items() if label not in unknown}
    elif isinstance(levels, list):
        unknown = {level: level for level in levels if level in protocols}
        left = [level for level in levels if level not in unknown]
    else:
        return []
    if not left or not unknown:
        return []
    factors["protocol"] = left
    return list(dict.fromkeys(unknown.values()))


def _without_published(data: dict[str, Any], factors: dict[str, Any]) -> None:
    """Removes published figures of protocols that are left out, or relative to one."""
    levels = factors.get("protocol") or ()

    def has(of: dict[str, Any]) -> bool:
        return "protocol" not in of or of["protocol"] in levels

    published = []
    for each in data.pop("published", None) or ():
        figures = [figure for figure in each["figures"] if has(figure["of"])]
        published += [each | {"figures": figures}] if figures and has(each.get("baseline") or {}) else []
    data |= {"published": published} if published else {}


def _protocol(level: Any) -> str:
    """The value of a label."""
    return str(level.get("protocol")) if isinstance(level, dict) else str(level)


def _with_only(kept: str, name: str, data: dict[str, Any], factors: dict[str, Any], design: dict[str, Any]) -> bool:
    """Removes a factor that has this level, and other settings of its levels. Keeps it if the study compares nothing
    else, which the simulator then refuses."""
    if kept not in (factors.get(name) or ()) or data["baseline"].keys() == {name}:
        return False
    del factors[name]

    def without(of: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in of.items() if key != name}

    data["baseline"] = without(data["baseline"])
    for key in ("exclude", "hard_to_change"):
        of_others = [each for each in design.pop(key, ()) if name not in ([each] if isinstance(each, str) else each)]
        if of_others:
            design[key] = of_others
    published = []
    for each in data.pop("published", None) or ():
        base = each.get("baseline") or {}
        said = [figure for figure in each["figures"] if figure["of"].get(name, kept) == base.get(name, kept) == kept]
        own = [figure | {"of": without(figure["of"])} for figure in said]
        if own:
            published.append(each | {"figures": own} | ({"baseline": without(base)} if base else {}))
    data |= {"published": published} if published else {}
    return True


def _media(volume: dict[str, Any]) -> dict[str, Any]:
    """Removes the media model from the volume's settings and returns it as settings of simulated media."""
    del volume["media"]
    media = {name: volume.pop(name) for name in MODELLED if name in volume}
    return media | ({"data": volume.get("size", "1GiB")} if "cache" in media else {})
