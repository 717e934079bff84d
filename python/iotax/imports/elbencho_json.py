"""elbencho's JSON, an object for each phase. All its values are texts.

Until 3.0 settings stand in the command line only, since then in `config`. Times are in whole ms, so where a histogram
counts the I/Os, their rate tells better how long a phase took.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from iotax.imports.json_text import Fields, read_documents
from iotax.imports.measured import (
    BLOCK_SIZE,
    OUTSTANDING,
    WORKERS,
    Bin,
    Measured,
    bins_direction,
    block_size_of,
    no_direction,
    readable,
    spread,
)
from iotax.imports.problems import Notes, Unreadable, number, small, start_of
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
_COMMAND_MAX = 10_000
"""Letters of a command line that are looked at."""
_PRINTED_S = 0.002
"""How far a time in whole ms may be off."""
_FINE_RATIO = 1.1
"""Of a bin's upper end to the one below: the later histogram's are finer, but for the least, which are 1 µs wide."""


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each phase that reads or writes. Raises Unreadable."""
    phases = []
    for document in read_documents(path, notes):
        phase, last = document.text("phase_type"), document.part("last_done")
        if not phase or not last.values:
            raise Unreadable(path, "not a phase of elbencho: name its --jsonfile", at="phase_type, last_done")
        last = replace(last, at=f"{phase}, {last.at}")
        if "iops" in last or "iops" in last.part("rwmix_read"):
            phases.append((phase, document, last))
        else:
            notes.add(path, f"left out {phase}: it does no I/O", at="iops")
    if not phases:
        raise Unreadable(path, "no phase in it does I/O", at="iops")
    return readable(phases, lambda each: _phase(path, *each), notes)


def _phase(path: Path, phase: str, document: Fields, last: Fields) -> Measured:
    duration_s = last.number("elapsed_time_ms") / 1000
    if duration_s <= 0:
        raise Unreadable(path, f"{phase} lasted no time", at="elapsed_time_ms")
    io = last.part("latency").part("IO")
    histogram = io.part("histogram")
    mixed = last.part("rwmix_read")
    duration_s = _lasted_s((last, mixed), (histogram, histogram.part("rwmix_read")), duration_s)
    own = _direction(last, duration_s, io, histogram)
    reads = (
        _direction(mixed, duration_s, io.part("rwmix_read"), histogram.part("rwmix_read"))
        if mixed.values
        else no_direction()
    )
    writes = bool(mixed.values) or phase.upper().startswith(("WRITE", "RWMIX"))
    given = document.part("config")
    config = (
        {"version": document.text("version")} | _asked(document) | {name: given.text(name) for name in given.values}
    )
    settings: dict[str, LevelValue] = {"operation": phase.lower()}
    for key, name in _SETTINGS.items():
        if (value := small(config.get(key))) is not None:
            settings[name] = value
    settings["random"] = "random" if config.get("random_offsets") in ("1", "true") else "sequential"
    depth = settings.get(OUTSTANDING)
    first = document.part("first_done")
    if (block := block_size_of(settings.get(BLOCK_SIZE), own.bytes + reads.bytes, own.ios + reads.ios)) is not None:
        settings[BLOCK_SIZE] = block
    return Measured(
        path=path,
        program=PROGRAM,
        version=config.get("version", ""),
        part=phase.lower(),
        read=reads if writes else own,
        write=own if writes else no_direction(),
        duration_ns=round(duration_s * 1e9),
        start_unix_ns=start_of(document.text("iso_start_date")),
        settings=settings,
        workers=workers_of(settings),
        per_worker=depth if isinstance(depth, int) else None,
        loop="closed",
        stack="kernel",
        notes=stragglers(phase.lower(), first.positive("elapsed_time_ms") / 1000, duration_s)
        if "elapsed_time_ms" in first
        else (),
    )


def _lasted_s(
    totals: Sequence[Fields],
    histograms: Sequence[Fields],
    printed_s: float,
) -> float:
    """More precisely than it is printed."""
    rate = sum(each.positive("iops") for each in totals if "iops" in each)
    counted = sum(each.count for histogram in histograms for each in _bins(histogram))
    lasted_s = counted / rate if rate else 0.0
    return lasted_s if abs(lasted_s - printed_s) <= _PRINTED_S else printed_s


def _asked(document: Fields) -> dict[str, str]:
    """What the command line says, under the names of `config`."""
    try:
        words = shlex.split(document.text("command")[:_COMMAND_MAX])
    except ValueError:
        return {}
    found = {"random_offsets": str("--rand" in words).lower()} if words else {}
    for word, value in itertools.pairwise(words):
        if word in _OPTIONS:
            with contextlib.suppress(ValueError):
                found[_OPTIONS[word]] = str(parse_size(value))
    return found


def _direction(totals: Fields, duration_s: float, latency: Fields, histogram: Fields) -> Direction:
    if "iops" not in totals:
        return no_direction()
    ios = round(totals.positive("iops") * duration_s)
    size = round(totals.positive("bytes", 0))
    timed = "avg_us" in latency
    mean_us, least_us, most_us = (latency.positive(name) if timed else 0.0 for name in ("avg_us", "min_us", "max_us"))
    bins = [each for each in _bins(histogram) if each.count]
    if not bins:
        return Direction(
            ios=ios,
            bytes=size,
            latency="mean" if timed else "none",
            latency_sum_ns=round(mean_us * 1e3 * ios),
            latency_min_ns=round(least_us * 1e3),
            latency_max_ns=round(most_us * 1e3),
        )
    if fine := _digits(bins):
        counts, edges = {each.high_ns or max(round(most_us * 1e3), each.low_ns): each.count for each in bins}, []
    else:
        counts, edges = spread(bins, round(least_us * 1e3), round(most_us * 1e3))
    counted = sum(each.count for each in bins)
    sum_ns, worst_ns = (round(mean_us * 1e3 * counted), round(most_us * 1e3)) if timed else (None, None)
    return bins_direction(counts, size, digits=fine, sum_ns=sum_ns, worst_ns=worst_ns, edges_ns=edges)


def _bins(histogram: Fields) -> list[Bin]:
    found = []
    for bucket in histogram.parts("buckets"):
        text = bucket.text("range")
        bounds = _RANGE.fullmatch(text.replace(" ", ""))
        if bounds is None:
            raise Unreadable(
                bucket.path, f"found {text[:80]!r} where a range such as 64-76us is expected", at=bucket.place("range")
            )
        low_ns, high_ns = (
            None if not each else round(number(bucket.path, each, at=bucket.place("range")) * 1e3)
            for each in bounds.group(1, 2)
        )
        found.append(Bin(low_ns or 0, high_ns, bucket.whole("count")))
    return found


def _digits(bins: Sequence[Bin]) -> int:
    """Significant digits that every bin has: one where they are finer than a tenth, of quarters of a power none."""
    ends = sorted(each.high_ns for each in bins if each.high_ns and each.high_ns > 100_000)
    near = [after / before for before, after in itertools.pairwise(ends)]
    return 1 if near and min(near) < _FINE_RATIO else 0


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
