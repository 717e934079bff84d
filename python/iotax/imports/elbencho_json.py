"""elbencho's JSON, an object for each phase. All its values are texts.

Until 3.0 settings stand in the command line only, since then in `config`. Times are in whole ms, so where a histogram
counts the I/Os, their rate tells better how long a phase took.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from iotax.imports.json_text import read_documents
from iotax.imports.measured import BLOCK_SIZE, OUTSTANDING, WORKERS, Measured, bins_direction, no_direction
from iotax.imports.problems import Notes, Unreadable, number
from iotax.trial import Direction, LevelValue
from iotax.units import parse_size

PROGRAM = "elbencho"
_RANGE = re.compile(r"([\d.]+)(?:-([\d.]+)|\+)us")
_SETTINGS = {"block_size": BLOCK_SIZE, "io_depth": OUTSTANDING, "threads": "threads", "hosts": "hosts"}
_OPTIONS = {
    "-b": "block_size",
    "--block": "block_size",
    "--iodepth": "io_depth",
    "-t": "threads",
    "--threads": "threads",
}
_PRINTED_S = 0.002
"""How far a time in whole ms may be off."""
_FINE_RATIO = 1.1
"""Of a bin's upper end to the one below: the later histogram's are finer, but for the least, which are 1 µs wide."""


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each phase that reads or writes. Raises Unreadable."""
    found = []
    for document in read_documents(path, notes):
        phase, last = document.get("phase_type"), document.get("last_done")
        if not isinstance(phase, str) or not isinstance(last, dict):
            raise Unreadable(path, "not a phase of elbencho: name its --jsonfile", at="phase_type, last_done")
        if "iops" in last or "iops" in _part(last, "rwmix_read"):
            found.append(_phase(path, phase, document, last))
        else:
            notes.add(path, f"left out {phase}: it does no I/O", at="iops")
    if not found:
        raise Unreadable(path, "no phase in it does I/O", at="iops")
    return found


def _phase(path: Path, phase: str, document: Mapping[str, Any], last: Mapping[str, Any]) -> Measured:
    duration_s = _figure(path, phase, last, "elapsed_time_ms") / 1000
    if duration_s <= 0:
        raise Unreadable(path, f"{phase} lasted no time", at="elapsed_time_ms")
    io = _part(_part(last, "latency"), "IO")
    histogram = _part(io, "histogram")
    mixed = _part(last, "rwmix_read")
    duration_s = _lasted_s(path, phase, (last, mixed), (histogram, _part(histogram, "rwmix_read")), duration_s)
    own = _direction(path, phase, last, duration_s, io, histogram)
    reads = (
        _direction(path, phase, mixed, duration_s, _part(io, "rwmix_read"), _part(histogram, "rwmix_read"))
        if mixed
        else no_direction()
    )
    writes = bool(mixed) or phase.upper().startswith(("WRITE", "RWMIX"))
    config = {"version": document.get("version", "")} | _asked(document) | dict(_part(document, "config"))
    settings: dict[str, LevelValue] = {"operation": phase.lower()}
    for key, name in _SETTINGS.items():
        if str(config.get(key, "")).isdecimal():
            settings[name] = int(config[key])
    settings["random"] = "random" if str(config.get("random_offsets")) in ("1", "true") else "sequential"
    depth = settings.get(OUTSTANDING)
    first = _part(document, "first_done")
    return Measured(
        path=path,
        program=PROGRAM,
        version=str(config.get("version", "")),
        part=phase.lower(),
        read=reads if writes else own,
        write=own if writes else no_direction(),
        duration_ns=round(duration_s * 1e9),
        start_unix_ns=start_of(str(document.get("iso_start_date", ""))),
        settings=settings,
        workers=workers_of(settings),
        per_worker=depth if isinstance(depth, int) else None,
        loop="closed",
        stack="kernel",
        notes=stragglers(phase.lower(), _figure(path, phase, first, "elapsed_time_ms") / 1000, duration_s)
        if "elapsed_time_ms" in first
        else (),
    )


def _lasted_s(
    path: Path,
    phase: str,
    totals: Sequence[Mapping[str, Any]],
    histograms: Sequence[Mapping[str, Any]],
    printed_s: float,
) -> float:
    """More precisely than it is printed."""
    rate = sum(_figure(path, phase, each, "iops") for each in totals if "iops" in each)
    counted = sum(sum(_counts(path, phase, each, 0.0).values()) for each in histograms)
    lasted_s = counted / rate if rate else 0.0
    return lasted_s if abs(lasted_s - printed_s) <= _PRINTED_S else printed_s


def _asked(document: Mapping[str, Any]) -> dict[str, str]:
    """What the command line says, under the names of `config`."""
    try:
        words = shlex.split(str(document.get("command", "")))
    except ValueError:
        return {}
    found = {"random_offsets": str("--rand" in words).lower()} if words else {}
    for word, value in itertools.pairwise(words):
        if word in _OPTIONS:
            with contextlib.suppress(ValueError):
                found[_OPTIONS[word]] = str(parse_size(value))
    return found


def _direction(
    path: Path,
    phase: str,
    totals: Mapping[str, Any],
    duration_s: float,
    latency: Mapping[str, Any],
    histogram: Mapping[str, Any],
) -> Direction:
    if "iops" not in totals:
        return no_direction()
    ios = round(_figure(path, phase, totals, "iops") * duration_s)
    size = round(_figure(path, phase, totals, "bytes")) if "bytes" in totals else 0
    timed = "avg_us" in latency
    mean_us, least_us, most_us = (
        (_figure(path, phase, latency, name) for name in ("avg_us", "min_us", "max_us")) if timed else (0.0, 0.0, 0.0)
    )
    if counts := _counts(path, phase, histogram, most_us):
        counted = sum(counts.values())
        sum_ns, worst_ns = (round(mean_us * 1e3 * counted), round(most_us * 1e3)) if timed else (None, None)
        return bins_direction(counts, size, digits=_digits(counts), sum_ns=sum_ns, worst_ns=worst_ns)
    return Direction(
        ios=ios,
        bytes=size,
        latency="mean" if timed else "none",
        latency_sum_ns=round(mean_us * 1e3 * ios),
        latency_min_ns=round(least_us * 1e3),
        latency_max_ns=round(most_us * 1e3),
    )


def _counts(path: Path, phase: str, histogram: Mapping[str, Any], most_us: float) -> dict[int, int]:
    """Upper end in ns → count; what is above the last bound counts as the slowest."""
    counts: dict[int, int] = {}
    for bucket in histogram.get("buckets") or []:
        text = str(bucket.get("range", "")) if isinstance(bucket, dict) else ""
        bounds = _RANGE.fullmatch(text.replace(" ", ""))
        if bounds is None:
            raise Unreadable(path, f"{phase}: found {text!r} where a range such as 64-76us is meant", at="range")
        end_us = float(bounds[2]) if bounds[2] else max(most_us, float(bounds[1]))
        count = number(path, bucket.get("count"), at="count")
        counts[round(end_us * 1e3)] = counts.get(round(end_us * 1e3), 0) + round(count)
    return counts


def _digits(counts: Mapping[int, int]) -> int:
    """Significant digits that every bin has: one where they are finer than a tenth, of quarters of a power none."""
    ends = sorted(end for end in counts if end > 100_000)
    near = [after / before for before, after in itertools.pairwise(ends)]
    return 1 if near and min(near) < _FINE_RATIO else 0


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = whole.get(name)
    return found if isinstance(found, dict) else {}


def _figure(path: Path, phase: str, of: Mapping[str, Any], name: str) -> float:
    if name not in of:
        raise Unreadable(path, f"{phase} has no such figure", at=name)
    return number(path, of[name], at=name)


def workers_of(settings: dict[str, LevelValue]) -> int | None:
    """Threads of all hosts, which becomes a setting too."""
    threads, hosts = settings.get("threads"), settings.get("hosts", 1)
    if not isinstance(threads, int) or not isinstance(hosts, int):
        return None
    settings[WORKERS] = threads * max(1, hosts)
    return threads * max(1, hosts)


def stragglers(phase: str, first_s: float, last_s: float) -> list[str]:
    """What is to be said where workers ended far apart."""
    if first_s >= 0.9 * last_s:
        return []
    return [
        f"{phase}: the first worker ended at {first_s:.1f} s, the last at {last_s:.1f} s: the rate is that of all of "
        "it, stragglers included"
    ]


def start_of(text: str) -> int | None:
    """Since 1970, in ns; None where it is no date."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1e9)
