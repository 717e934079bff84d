"""The study that another program's job becomes: its load, over protocols that need no set-up."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from iotax.units import format_duration, format_size


@dataclass(frozen=True)
class Converted:
    """A job as a study."""

    text: str
    """YAML."""
    notes: Sequence[str]
    """What the job asks that the study does not."""
    lines: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Field of the study → file and line of the job that it comes from."""


@dataclass(frozen=True)
class Pattern:
    """What a part of a load reads or writes."""

    block_bytes: int
    read_percent: float
    random_percent: float
    share: float = 1.0
    """Of the I/Os of its step."""

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "block_size": format_size(self.block_bytes),
            "read": f"{self.read_percent:g}%",
            "random": f"{self.random_percent:g}%",
        }


@dataclass(frozen=True)
class Step:
    """One of the loads that a job runs one after another."""

    name: str
    patterns: Sequence[Pattern]
    workers: int
    outstanding: int
    rate_iops: int | None = None

    @property
    def asked(self) -> dict[str, Any]:
        rate = {"rate_iops": self.rate_iops} if self.rate_iops else {}
        return {"workers": self.workers, "outstanding": self.outstanding, **rate}


_LABEL_MAX = 40
_RUNTIMES = ("warmup", "runtime")


def of_steps(
    steps: Sequence[Step], times_s: Mapping[str, int], notes: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(load, factors): differences between the steps become factors: field by field where every combination exists,
    else by name. `times_s`: warmup and runtime."""
    first = steps[0]
    common = {name: value for name, value in first.asked.items() if all(each.asked == first.asked for each in steps)}
    single = all(len(each.patterns) == 1 for each in steps)
    rows = [each.asked | (each.patterns[0].fields if single else {}) for each in steps]
    levels = {
        name: list(dict.fromkeys(row.get(name) for row in rows)) for name in dict.fromkeys(n for r in rows for n in r)
    }
    varied = {name: found for name, found in levels.items() if len(found) > 1 and None not in found}
    distinct = list(dict.fromkeys(tuple(row.items()) for row in rows))
    load: dict[str, Any] = {
        name: format_duration(times_s[name] * 1_000_000_000) for name in _RUNTIMES if times_s.get(name)
    }
    if single and len(distinct) == math.prod(len(found) for found in varied.values()):
        return load | {name: value for name, value in rows[0].items() if name not in varied}, varied
    if len(common) < len(first.asked):
        kept = [each for each in steps if each.asked == first.asked]
        left = len(steps) - len(kept)
        notes.append(
            f"{left} of {len(steps)} steps have another number of outstanding I/Os, of workers or another rate than "
            "the "
            f"first, and not every combination is there: left out, one study each"
        )
        return of_steps(kept, times_s, notes)
    load |= first.asked
    named = {_label(each.name, at): _streams(each) for at, each in enumerate(steps, start=1)}
    if (most := max(len(each) for each in named.values())) > load["workers"]:
        whole = load["workers"] * load["outstanding"]
        load |= {"workers": most, "outstanding": max(1, round(whole / most))}
        notes.append(
            f"{most} patterns at once: each has a worker of its own in a study, with {load['outstanding']} of the "
            f"{whole} "
            "outstanding I/Os"
        )
    if len(named) == 1:
        return load | {"streams": next(iter(named.values()))}, {}
    return load, {"streams": named}


def _streams(step: Step) -> dict[str, Any]:
    if len(step.patterns) == 1:
        return {"all": step.patterns[0].fields}
    return {
        f"part-{at}": each.fields | {"share": round(each.share, 4)} for at, each in enumerate(step.patterns, start=1)
    }


def _label(name: str, at: int) -> str:
    plain = re.sub(r"[^A-Za-z0-9. -]+", " ", name).strip(" .-")[:_LABEL_MAX].strip()
    return plain or f"step {at}"


OWN_VOLUME = "the study uses iotax's own volume; name your endpoints under factors: protocol"


def study_text(
    name: str,
    job: str,
    volume: Mapping[str, Any],
    load: Mapping[str, Any],
    factors: Mapping[str, Any] | None = None,
) -> str:
    """YAML. `job` is what a reader knows it by; `volume` is what the job says of it; `factors` beside the protocol."""
    study = {
        "name": name,
        "question": f"What does the load of {job} cost over iSCSI and NVMe/TCP?",
        "volume": dict(volume),
        "factors": {"protocol": ["iscsi", "nvme-tcp"], **(factors or {})},
        "load": dict(load),
        "design": {"replicates": 3},
        "baseline": {"protocol": "iscsi"},
    }
    return yaml.safe_dump({key: value for key, value in study.items() if value}, sort_keys=False, allow_unicode=True)
