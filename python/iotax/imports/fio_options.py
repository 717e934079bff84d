"""What fio was asked: its options, as its JSON repeats them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from iotax.imports.measured import BLOCK_SIZE, OUTSTANDING, RATE, WORKERS
from iotax.trial import LevelValue
from iotax.units import parse_size

_SYNCHRONOUS = ("sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "libhdfs", "libpmem")
"""Engines with one I/O in flight, whatever `iodepth` says."""
_IN_PROCESS = ("nfs", "libiscsi", "http", "rbd", "rados", "libblkio", "gfapi", "null", "cpuio", "spdk", "libnfs")
"""Engines that bring their protocol with them; the others go through the kernel."""
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Asked:
    """Of the jobs that ran together; None where they differ or do not say."""

    workers: int | None
    per_worker: int | None
    rate_iops: float | None
    ramp_ns: int | None
    engine: str
    stack: Literal["user", "kernel", "unknown"]
    settings: dict[str, LevelValue] = field(default_factory=dict)

    @property
    def loop(self) -> Literal["open", "closed", "unknown"]:
        if self.rate_iops is not None:
            return "open"
        return "closed" if self.settings else "unknown"


def asked_of(rows: Sequence[Mapping[str, Any]], given: object) -> Asked:
    """`given` are the global options: a mapping, or a list of them."""
    shared: dict[str, Any] = {}
    for each in given if isinstance(given, list) else [given]:
        shared |= each if isinstance(each, Mapping) else {}
    options = [_known_names(shared | (row.get("job options") or {})) for row in rows]
    if not any(options):
        return Asked(None, None, None, None, "", "unknown")
    engines = {each.get("ioengine", "") for each in options}
    engine = engines.pop() if len(engines) == 1 else ""
    depths = {_depth(each) for each in options}
    per_worker = depths.pop() if len(depths) == 1 else None
    workers = _workers(rows, options)
    settings: dict[str, LevelValue] = {}
    for name, value in (
        (BLOCK_SIZE, _common(options, "bs", "4k")),
        ("rw", _common(options, "rw", "read")),
        (OUTSTANDING, per_worker),
        (WORKERS, workers),
        ("ioengine", engine or None),
        ("rwmixread", _common(options, "rwmixread", None)),
        (RATE, _common(options, "rate_iops", None)),
    ):
        if value is not None:
            settings[name] = _level(name, value)
    return Asked(
        workers,
        per_worker,
        _rate(options, workers),
        _ramp_ns(options),
        engine,
        "unknown" if not engine else "user" if engine.startswith(_IN_PROCESS) else "kernel",
        settings,
    )


_OTHER_NAMES = {"blocksize": "bs", "readwrite": "rw", "iodepth_": "iodepth"}


def _known_names(options: Mapping[str, Any]) -> dict[str, str]:
    return {_OTHER_NAMES.get(name, name): str(value) for name, value in options.items()}


def _depth(options: Mapping[str, str]) -> int | None:
    if options.get("ioengine", "psync") in _SYNCHRONOUS:
        return 1
    depth = options.get("iodepth", "1")
    return int(depth) if depth.isdecimal() else None


def _workers(rows: Sequence[Mapping[str, Any]], options: Sequence[Mapping[str, str]]) -> int | None:
    """Clones that are reported apart are rows of their own; reported together their times add up."""
    total = 0
    for row, own in zip(rows, options, strict=True):
        clones = int(own["numjobs"]) if own.get("numjobs", "").isdecimal() else 1
        apart = "group_reporting" not in own and sum(r.get("jobname") == row.get("jobname") for r in rows) >= clones
        longest = max((row[n].get("runtime", 0) for n in ("read", "write", "mixed") if n in row), default=0)
        spent = row.get("job_runtime")
        if not apart and spent and longest and abs(spent / longest - clones) > 0.3 * clones:
            return None  # a group of several jobs, of which fio repeats the options of the first
        total += 1 if apart else clones
    return total


def _common(options: Sequence[Mapping[str, str]], name: str, default: str | None) -> str | None:
    """The value that all share; all values where they differ."""
    values = dict.fromkeys(each.get(name, default) for each in options)
    return "+".join(value for value in values if value is not None) or None


def _level(name: str, value: LevelValue) -> LevelValue:
    if name == BLOCK_SIZE and isinstance(value, str):
        try:
            return parse_size(value)
        except ValueError:
            return value
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _rate(options: Sequence[Mapping[str, str]], workers: int | None) -> float | None:
    """Of all jobs together; fio's `rate_iops` is of each."""
    values = {each.get("rate_iops") for each in options}
    rate = values.pop() if len(values) == 1 else None
    return float(rate) * workers if rate and rate.isdecimal() and workers else None


def _ramp_ns(options: Sequence[Mapping[str, str]]) -> int | None:
    ramps = {each.get("ramp_time", "0") for each in options}
    text = ramps.pop() if len(ramps) == 1 else ""
    digits = text.rstrip("usmhd")
    unit = text[len(digits) :]
    return round(float(digits) * _SECONDS[unit] * 1e9) if digits.isdecimal() and unit in _SECONDS else None
