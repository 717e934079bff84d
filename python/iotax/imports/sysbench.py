"""What sysbench prints: rates, latencies in ms to two places, one percentile, and with `--histogram` bins."""

from __future__ import annotations

import re
from pathlib import Path

from iotax.imports.measured import BLOCK_SIZE, WORKERS, Measured, bins_direction, no_direction
from iotax.imports.problems import Notes, Unreadable, number, text_of
from iotax.trial import Direction, Histogram, LevelValue, percentile

PROGRAM = "sysbench"
_PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9)
"""Read from a histogram of reads, writes and syncs together."""
_DIGITS = 1
"""Bins are 2 % wide, but printed to 0.001 ms."""
_BIN = re.compile(r"^\s*([\d.]+) \|[* ]*\s(\d+)\s*$", re.MULTILINE)


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result. Raises Unreadable."""
    del notes
    text = text_of(path)
    seconds = _figure(path, text, r"total time:\s+([\d.]+)s", "total time")
    events = _figure(path, text, r"total number of events:\s+(\d+)", "total number of events")
    if seconds is None or events is None or not seconds or not events:
        raise Unreadable(path, "no “General statistics” of sysbench with a time and events", at="total time")
    mean_ms = _mean_ms(path, text, events)
    worst_ms = _figure(path, text, r"max:\s+([\d.]+)", "max") or 0.0
    given = re.search(r"([\d.]+)th percentile:\s+([\d.]+)", text)
    bins = {round(float(value) * 1e6): 0 for value, _ in _BIN.findall(text)}
    for value, count in _BIN.findall(text):
        bins[round(float(value) * 1e6)] += int(count)
    histogram = Histogram(counts=list(bins.items()))
    percentiles = [(percent, round(percentile(percent, histogram))) for percent in _PERCENTS if bins]
    if given and not bins:
        percentiles = [(float(given[1]), round(float(given[2]) * 1e6))]
    files = "File operations:" in text
    streams = (
        _files(path, text, seconds, mean_ms, worst_ms)
        if files
        else (_transactions(int(events), mean_ms, worst_ms, bins, percentiles), no_direction())
    )
    settings: dict[str, LevelValue] = {}
    if threads := _figure(path, text, r"Number of threads:\s+(\d+)", "Number of threads"):
        settings[WORKERS] = int(threads)
    if files and (block := re.search(r"^Block size (\d+)KiB", text, re.MULTILINE)):
        settings[BLOCK_SIZE] = int(block[1]) << 10
    if files and (mode := re.search(r"^Doing (.+) test", text, re.MULTILINE)):
        settings["access"] = mode[1]
    version = re.search(r"^sysbench ([\d.]+)", text, re.MULTILINE)
    rate = _figure(path, text, r"Target transaction rate: ([\d.]+)/sec", "Target transaction rate")
    errors = re.search(r"ignored errors:\s+(\d+)", text)
    workers = settings.get(WORKERS)
    return [
        Measured(
            path=path,
            program=PROGRAM,
            version=version[1] if version else "",
            read=streams[0],
            write=streams[1],
            duration_ns=round(seconds * 1e9),
            percentiles=percentiles if streams[0].latency != "histogram" else (),
            settings=settings,
            workers=workers if isinstance(workers, int) else None,
            per_worker=1 if workers and not rate else None,
            rate_iops=rate,
            loop="open" if rate else "closed",
            errors=int(errors[1]) if errors else None,
            stack="kernel" if files else "unknown",
            unit="I/O" if files else "event",
            notes=["latencies are of all operations, synchronisations included"] if files else [],
        )
    ]


def _mean_ms(path: Path, text: str, events: float) -> float | None:
    """By the sum, which says more than the mean of two places."""
    sum_ms = _figure(path, text, r"\bsum:\s+([\d.]+)", "sum")
    return sum_ms / events if sum_ms else _figure(path, text, r"avg:\s+([\d.]+)", "avg")


def _files(
    path: Path, text: str, seconds: float, mean_ms: float | None, worst_ms: float
) -> tuple[Direction, Direction]:
    found = []
    for rate, size in (("reads/s", "read, MiB/s"), ("writes/s", "written, MiB/s")):
        ios = round((_figure(path, text, rf"{rate}:\s+([\d.]+)", rate) or 0) * seconds)
        mebibytes = _figure(path, text, rf"{size}:\s+([\d.]+)", size) or 0
        found.append(_direction(ios, round(mebibytes * (1 << 20) * seconds), mean_ms, worst_ms))
    return found[0], found[1]


def _transactions(
    events: int, mean_ms: float | None, worst_ms: float, bins: dict[int, int], percentiles: list[tuple[float, int]]
) -> Direction:
    if not bins:
        plain = _direction(events, 0, mean_ms, worst_ms)
        known = "percentiles" if percentiles and plain.latency == "mean" else plain.latency
        return plain.model_copy(update={"latency": known, "percentiles": percentiles})
    sum_ns = None if mean_ms is None else round(mean_ms * 1e6 * events)
    return bins_direction(bins, 0, digits=_DIGITS, sum_ns=sum_ns, worst_ns=round(worst_ms * 1e6))


def _direction(ios: int, size: int, mean_ms: float | None, worst_ms: float) -> Direction:
    if not ios:
        return no_direction()
    return Direction(
        ios=ios,
        bytes=size,
        latency="none" if mean_ms is None else "mean",
        latency_sum_ns=round((mean_ms or 0) * 1e6 * ios),
        latency_min_ns=0,
        latency_max_ns=round(worst_ms * 1e6),
    )


def _figure(path: Path, text: str, form: str, at: str) -> float | None:
    match = re.search(form, text)
    return number(path, match[1], at=at) if match else None
