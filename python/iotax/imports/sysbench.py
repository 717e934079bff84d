"""What sysbench 1.0 and 1.1 print: rates, latencies in ms to two places, one percentile, with `--histogram` bins."""

from __future__ import annotations

import re
from pathlib import Path

from iotax.imports.measured import BLOCK_SIZE, WORKERS, Measured, bins_direction, no_direction, readable
from iotax.imports.problems import Notes, Unreadable, number, runs_of, text_of, whole
from iotax.trial import Direction, Histogram, LevelValue, percentile

PROGRAM = "sysbench"
_PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9)
"""Read from a histogram of reads, writes and syncs together."""
_DIGITS = 1
"""Bins are 2 % wide, but printed to 0.001 ms."""
_BEGIN = re.compile(r"^(sysbench \d|Running the test|SQL statistics:|File operations:|General statistics:)")
_RESULT = re.compile(r"^\s+(min|avg|max|sum|[\d.]+th percentile):\s")
_FILES_1_1 = re.compile(r"^\s*read:\s+IOPS=", re.MULTILINE)
_BIN = re.compile(r"^\s*([\d.]+) \|[* ]*\s(\d+)\s*$", re.MULTILINE)


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each run in the file. Raises Unreadable."""
    runs = enumerate(runs_of(text_of(path), _BEGIN, _RESULT), start=1)
    return readable(runs, lambda each: _run(path, *each), notes)


def _run(path: Path, run: int, text: str) -> Measured:
    threads = _figure(path, text, r"Number of threads:\s+(\d+)", "Number of threads")
    files = "File operations:" in text or _FILES_1_1.search(text) is not None
    said = ["latencies are of all operations, synchronisations included"] if files else []
    seconds = _figure(path, text, r"(?:total time|time elapsed):\s+([\d.]+)s", "total time")
    events = _figure(path, text, r"total number of events:\s+(\d+)", "total number of events")
    sum_ms, mean_ms = (_figure(path, text, rf"\b{name}:\s+([\d.]+)", name) for name in ("sum", "avg"))
    if files and seconds is None and threads and sum_ms and mean_ms:
        # The file test of 1.1 prints neither: all threads were busy all the time.
        seconds, events = sum_ms / 1000 / threads, sum_ms / mean_ms
        said.append("it does not say how long it ran: its length is the sum of all latencies over its threads")
    if seconds is None or events is None or not seconds or not events:
        raise Unreadable(path, "no statistics of sysbench with a time and events", at="total time")
    # The sum says more than the mean of two places.
    mean_ms = sum_ms / events if sum_ms else mean_ms
    worst_ms = _figure(path, text, r"max:\s+([\d.]+)", "max") or 0.0
    given = re.search(r"([\d.]+)th percentile:\s+([\d.]+)", text)
    bins: dict[int, int] = {}
    for value, count in _BIN.findall(text):
        value_ns = round(number(path, value, at="Latency histogram") * 1e6)
        bins[value_ns] = bins.get(value_ns, 0) + whole(path, count, at="Latency histogram")
    histogram = Histogram(counts=list(bins.items()))
    percentiles = [(percent, round(percentile(percent, histogram))) for percent in _PERCENTS if any(bins.values())]
    if given and not bins:
        percentiles = [(number(path, given[1]), round(number(path, given[2], at="percentile") * 1e6))]
    streams = (
        _files(path, text, seconds, mean_ms, worst_ms)
        if files
        else (_transactions(int(events), mean_ms, worst_ms, bins, percentiles), no_direction())
    )
    settings: dict[str, LevelValue] = {}
    if threads:
        settings[WORKERS] = int(threads)
    if files and (block := re.search(r"^Block size (\d{1,9})KiB", text, re.MULTILINE)):
        settings[BLOCK_SIZE] = int(block[1]) << 10
    if files and (mode := re.search(r"^Doing (.+) test", text, re.MULTILINE)):
        settings["access"] = mode[1]
    version = re.search(r"^sysbench (\d[\w.-]*)", text, re.MULTILINE)
    rate = _figure(path, text, r"Target transaction rate: ([\d.]+)/sec", "Target transaction rate")
    errors = _figure(path, text, r"ignored errors:\s+(\d+)", "ignored errors")
    workers = settings.get(WORKERS)
    return Measured(
        path=path,
        program=PROGRAM,
        version=version[1] if version else "",
        run=run,
        read=streams[0],
        write=streams[1],
        duration_ns=round(seconds * 1e9),
        percentiles=percentiles if streams[0].latency != "histogram" else (),
        settings=settings,
        workers=workers if isinstance(workers, int) else None,
        per_worker=1 if workers and not rate else None,
        rate_iops=rate,
        by_chance=bool(rate),
        loop="open" if rate else "closed",
        errors=None if errors is None else int(errors),
        stack="kernel" if files else "unknown",
        unit="I/O" if files else "event",
        notes=said,
    )


def _files(
    path: Path, text: str, seconds: float, mean_ms: float | None, worst_ms: float
) -> tuple[Direction, Direction]:
    found = []
    for rate, size, later in (("reads/s", "read, MiB/s", "read"), ("writes/s", "written, MiB/s", "write")):
        # 1.1 has both in one line.
        form = rf"^\s*{later}:\s+IOPS=([\d.]+) ([\d.]+) MiB/s"
        per_s = _figure(path, text, rf"{rate}:\s+([\d.]+)|{form}", rate) or 0
        mebibytes = _figure(path, text, rf"{size}:\s+([\d.]+)|{form.replace('([', '(?:[', 1)}", size) or 0
        found.append(_direction(round(per_s * seconds), round(mebibytes * (1 << 20) * seconds), mean_ms, worst_ms))
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
    """By the first group that matched; None if none did."""
    match = re.search(form, text, re.MULTILINE)
    return number(path, next(each for each in match.groups() if each), at=at) if match else None
