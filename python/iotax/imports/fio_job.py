"""A fio job file as a study: what iotax can ask of every protocol, and what it leaves out, told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iotax.imports.job_study import study_text
from iotax.imports.problems import Unreadable, text_of
from iotax.units import COMPRESS_MAX, DEDUPE_MAX, format_duration, format_size, parse_duration, parse_size

_SECTION = re.compile(r"^\[(?P<name>.+)\]$")
_MIXES = {"read": (100, 0), "write": (0, 0), "randread": (100, 100), "randwrite": (0, 100), "rw": (50, 0),
          "readwrite": (50, 0), "randrw": (50, 100)}  # fmt: skip
"""fio's `rw` → percent of reads, percent at random places."""
_UNDERSTOOD = {"rw", "readwrite", "bs", "blocksize", "iodepth", "numjobs", "runtime", "ramp_time", "size", "rwmixread",
               "rate_iops", "time_based", "direct", "ioengine", "group_reporting", "name", "percentage_random",
               "rate_process", "randrepeat", "norandommap", "stonewall", "filename", "directory",
               "buffer_compress_percentage", "dedupe_percentage", "refill_buffers"}  # fmt: skip
_EMPTY = "1"
"""What an option without a value stands for."""


def study_of_job(path: Path, name: str) -> tuple[str, list[str]]:
    """(YAML of a study, what the job asks that the study does not). Raises Unreadable.

    A job file with several jobs that run together becomes a load of several streams; after a `stonewall`, the first
    group only.
    """
    jobs, notes = _jobs(path)
    options = list(jobs.values())
    streams = {job: _stream(path, job, own) for job, own in jobs.items()}
    load: dict[str, Any] = dict(next(iter(streams.values())))
    depths = {own.get("iodepth", "1") for own in options}
    if len(depths) > 1:
        notes.append(f"jobs of different iodepth ({', '.join(sorted(depths))}): every worker of a study has the same")
    load |= {
        "outstanding": _count(path, options[0], "iodepth"),
        "workers": sum(_count(path, o, "numjobs") for o in options),
    }
    for option, field in (("runtime", "runtime"), ("ramp_time", "warmup")):
        if option in options[0]:
            load[field] = format_duration(_duration(path, option, options[0][option]))
    rates = [own["rate_iops"] for own in options if "rate_iops" in own]
    if rates and len(rates) == len(options) and all(rate.isdecimal() for rate in rates):
        load["rate_iops"] = sum(int(r) * _count(path, o, "numjobs") for r, o in zip(rates, options, strict=True))
    elif rates:
        notes.append(f"rate_iops={', '.join(rates)} is not one rate for all jobs: the study is a closed loop")
    if len(streams) > 1:
        load["streams"] = {job: own | {"share": _count(path, jobs[job], "numjobs")} for job, own in streams.items()}
    size = options[0].get("size", "")
    unknown = dict.fromkeys(option for own in options for option in own if option not in _UNDERSTOOD)
    notes += [f"{option}: nothing in a study corresponds to it" for option in unknown]
    if any("filename" in own or "directory" in own for own in options):
        notes.append("filename: the study uses iotax's own volume; name your endpoints under factors: protocol")
    own_size = _size(path, "size", size) if size and not size.endswith("%") else ""
    volume = ({"size": own_size} if own_size else {}) | _reduced(path, options, notes)
    return study_text(name, path.name, volume, load), notes


def _reduced(path: Path, jobs: Sequence[Mapping[str, str]], notes: list[str]) -> dict[str, float]:
    """Ratios, from fio's percentages of what is saved."""
    found: dict[str, float] = {}
    for option, field, most in (
        ("buffer_compress_percentage", "compress", COMPRESS_MAX),
        ("dedupe_percentage", "dedupe", DEDUPE_MAX),
    ):
        saved = {_count(path, own, option) if option in own else 0 for own in jobs}
        if len(saved) > 1:
            notes.append(f"{option} differs between jobs: the study's data are not reducible so")
        elif percent := min(saved.pop(), 100):
            ratio = most if percent == 100 else min(most, round(100 / (100 - percent), 2))
            if ratio == most:
                notes.append(f"{option}={percent}: a study goes to {field}: {most:g}")
            found[field] = ratio
    return found


def _jobs(path: Path) -> tuple[dict[str, dict[str, str]], list[str]]:
    shared: dict[str, str] = {}
    jobs: dict[str, dict[str, str]] = {}
    notes: list[str] = []
    own: dict[str, str] | None = None
    for line, text in enumerate(text_of(path).splitlines(), start=1):
        content = text.split(";", 1)[0].split("#", 1)[0].strip()
        if not content:
            continue
        if section := _SECTION.match(content):
            if section["name"] == "global":
                own = shared
            else:
                own = jobs[section["name"]] = dict(shared)
            continue
        if own is None:
            raise Unreadable(path, f"found {content[:60]!r} before any [job]: no job file of fio", line=line)
        option, _, value = content.partition("=")
        own[{"blocksize": "bs", "readwrite": "rw"}.get(option.strip(), option.strip())] = value.strip() or _EMPTY
    if not jobs:
        raise Unreadable(path, "no [job] in it: no job file of fio")
    first = list(jobs)
    later = [
        name for at, name in enumerate(first) if at and ("stonewall" in jobs[name] or "wait_for_previous" in jobs[name])
    ]
    if later:
        kept = first[: first.index(later[0])]
        notes.append(
            f"jobs after stonewall are left out ({', '.join(n for n in first if n not in kept)}): one study each"
        )
        jobs = {name: jobs[name] for name in kept}
    return jobs, notes


def _stream(path: Path, job: str, options: Mapping[str, str]) -> dict[str, Any]:
    mix = options.get("rw", "read").partition(":")[0]
    if mix not in _MIXES:
        raise Unreadable(path, f"rw={mix}: a study reads and writes only", at=job)
    reads, random = _MIXES[mix]
    if mix in ("rw", "readwrite", "randrw") and "rwmixread" in options:
        reads = _count(path, options, "rwmixread")
    return {
        "block_size": _size(path, "bs", options.get("bs", "4k").partition(",")[0]),
        "read": f"{reads}%",
        "random": f"{random}%",
    }


def _count(path: Path, options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "1")
    if not text.isdecimal():
        raise Unreadable(path, f"found {text!r} where a whole number is meant", at=name)
    return int(text)


def _size(path: Path, name: str, text: str) -> str:
    try:
        return format_size(parse_size(int(text) if text.isdecimal() else text))
    except ValueError as error:
        raise Unreadable(path, f"found {text!r}: {error}", at=name) from None


def _duration(path: Path, name: str, text: str) -> int:
    """fio counts in seconds where no unit is given."""
    try:
        return parse_duration(f"{text}s" if text.isdecimal() else text)
    except ValueError as error:
        raise Unreadable(path, f"found {text!r}: {error}", at=name) from None
