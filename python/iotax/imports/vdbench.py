"""vdbench's flatfile.html or summary.html, and what it prints on a terminal; latencies in ms.

Intervals carry a number, the mean over them `avg_a-b`. The date is in summary.html or, of later versions, in the
flatfile's `timestamp`. `n/a` is what has no single value. Version 5.04.06 counts intervals asynchronously, and the last
of the warm-up may get into the mean, though not into its name. Percentiles come from histogram.html beside these files:
counts of I/Os by response time, of each run as a whole.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from iotax.imports.measured import (
    BLOCK_SIZE,
    MIXED,
    RATE,
    Bin,
    Measured,
    bins_direction,
    block_size_of,
    mean_direction,
    readable,
    spread,
)
from iotax.imports.problems import Notes, Unreadable, number, small, text_of, whole
from iotax.imports.vdbench_rows import MAXIMUM, Row, Tables, tables_of
from iotax.trial import Direction, LevelValue, Second

PROGRAM = "vdbench"
_AVERAGE = re.compile(r"avg_(\d{1,9})-(\d{1,9})")
_COUNTED_MIN = 0.98
"""Share of the I/Os that a histogram must hold, and not much more, to be that of the run."""
_ROUNDED = 1e-3
"""Share by which a printed rate may be off the mean of printed rates."""


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each run definition, and for each turn of its loops. Raises Unreadable."""
    tables = tables_of(path, text_of(path), notes)
    dates = _dates_beside(path, tables)
    histograms = counts_beside(path, notes)
    several = len({run.name for run in tables.runs}) > 1
    runs: list[tuple[_Run, str, Counts | None, Sequence[Row]]] = []
    for run in tables.runs:
        averages = [each for each in run.rows if _AVERAGE.fullmatch(each.values["Interval"])]
        if not averages:
            notes.add(path, f"run {run.name} has no mean (avg_…): it did not end, and is left out", at="Interval")
            continue
        row = averages[-1]
        first, last = map(int, row.values["Interval"].removeprefix("avg_").split("-"))
        if last < first:
            notes.add(path, f"run {run.name} ended within its first interval: left out", line=row.line, at="Interval")
            continue
        intervals = [each for each in run.rows if small(each.values["Interval"]) is not None]
        own = _Run(path, tables, row, intervals, _first_held(path, row, intervals, first, notes), last, run.at, notes)
        key = (run.name, run.at)
        runs.append((own, run.name if several else "", histograms.get(key), dates.get(key, intervals)))
    if not runs:
        raise Unreadable(path, "no run in it has ended", at="Interval")
    return readable(runs, lambda each: each[0].measured(*each[1:]), notes)


def _dates_beside(path: Path, tables: Tables) -> dict[tuple[str, int], list[Row]]:
    """(run's name, which of that name) → its intervals in the summary beside a flatfile, which alone has dates."""
    beside = path.with_name("summary.html")
    if beside == path or not beside.is_file() or any(row.unix_s for run in tables.runs for row in run.rows):
        return {}
    try:
        found = tables_of(beside, text_of(beside), Notes()).runs
    except Unreadable:
        return {}
    return {(run.name, run.at): [row for row in run.rows if small(row.values["Interval"]) is not None] for run in found}


@dataclass(frozen=True)
class _Run:
    """What one run's rows say."""

    path: Path
    tables: Tables
    row: Row
    """The mean."""
    intervals: Sequence[Row]
    first: int
    last: int
    """Intervals that the mean is of; those before are warm-up."""
    at: int
    """Which of the runs of its name."""
    notes: Notes

    def measured(self, part: str, counts: Counts | None, dated: Sequence[Row]) -> Measured:
        interval_s = _interval_s(self.path, self.intervals)
        duration_s = (self.last - self.first + 1) * interval_s
        streams = self._streams(duration_s, counts)
        asked_threads = self._figure("threads")
        threads = None if math.isnan(asked_threads) else round(asked_threads)
        requested = self._figure("reqrate")
        held = None if math.isnan(requested) or requested >= MAXIMUM else requested
        kept = [each for each in self.intervals if self.first <= int(each.values["Interval"]) <= self.last]
        ends_s = next((each.unix_s for each in dated if each.values["Interval"] == str(self.first)), None)
        zone = next((each.zone for each in dated), "")
        if ends_s is not None and zone not in ("UTC", "GMT", "Z"):
            known = f"times are of the zone {zone}" if zone else "times have no zone"
            self.notes.add(self.path, f"{known}: taken as UTC", at="timestamp" if zone else "tod")
        known = {each.latency for each in streams if each.ios}
        return Measured(
            path=self.path,
            program=PROGRAM,
            version=self.tables.version,
            part=part,
            run=self.at,
            read=streams[0],
            write=streams[1],
            duration_ns=round(duration_s * 1e9),
            start_unix_ns=None if ends_s is None else round((ends_s - interval_s) * 1e9),
            settings=self._settings(requested),
            workers=1 if threads else None,
            per_worker=threads,
            rate_iops=held,
            # Its arrivals are exponential, except for a workload's `iorate=curve` and the like.
            by_chance=held is not None,
            loop="unknown" if math.isnan(requested) else "open" if held else "closed",
            stack="kernel",
            warmup_ns=round((self.first - 1) * interval_s * 1e9),
            series=[self._second(each, at, interval_s) for at, each in enumerate(kept, start=1)],
            counted_in=f"MB of {self.tables.mb_bytes:,} bytes",
            notes=[
                "CPU is in percent of a number of processors that the file does not say: left out",
                *([] if known == {"histogram"} else [f"no percentiles: there is no {HISTOGRAM} beside it"]),
            ],
        )

    def _streams(self, duration_s: float, counts: Counts | None) -> list[Direction]:
        ios = round(self._needed("rate") * duration_s)
        share = self._figure("read%") / 100
        reads = round(ios * (1.0 if math.isnan(share) else share))
        size = self._needed("MB/sec") * self.tables.mb_bytes * duration_s
        found = []
        for side, own in (("read", reads), ("write", ios - reads)):
            mean_ms = self._figure(f"{side}_resp")
            worst_ms = self._figure(f"{side}_max")
            stream = mean_direction(
                own,
                round(size * own / ios) if ios else 0,
                self._needed("resp") if math.isnan(mean_ms) else mean_ms,
                self._figure("resp_max") if math.isnan(worst_ms) else worst_ms,
            )
            found.append(self._with_counts(stream, side, counts))
        return found

    def _with_counts(self, stream: Direction, side: str, counts: Counts | None) -> Direction:
        """Mean, maximum and I/Os as the table has them, the distribution as the histogram has it."""
        bins: Sequence[Bin] = getattr(counts, side, ()) if stream.ios else ()
        counted = sum(each.count for each in bins)
        if not counted:
            return stream
        if not _COUNTED_MIN <= counted / stream.ios <= 1 / _COUNTED_MIN:
            self.notes.add(
                self.path.with_name(HISTOGRAM),
                f"{counted:,} {side}s, where {self.path.name} has {stream.ios:,}: not of this run, left out",
            )
            return stream
        values, edges = spread(bins, worst_ns=stream.latency_max_ns)
        own = bins_direction(values, stream.bytes, digits=0, edges_ns=edges)
        return stream.model_copy(update={"latency": "histogram", "histogram": own.histogram})

    def _settings(self, requested: float) -> dict[str, LevelValue]:
        found: dict[str, LevelValue] = {}
        for column, setting in (("xfersize", BLOCK_SIZE), ("threads", "threads"), ("rdpct", "read_percent")):
            if not math.isnan(value := self._figure(column)):
                found[setting] = int(value) if value == int(value) else value
        mean_bytes = self._figure("bytes/io")
        if not math.isnan(mean_bytes) and (block := block_size_of(found.get(BLOCK_SIZE), mean_bytes, 1)) is not None:
            found[BLOCK_SIZE] = block
            if block == MIXED:
                self.notes.add(self.path, f"I/Os of several sizes, {mean_bytes:,.0f} bytes on average", at="xfersize")
        if not math.isnan(requested):
            found[RATE] = "max" if requested >= MAXIMUM else int(requested)
        return found

    def _figure(self, column: str) -> float:
        return _figure(self.path, self.row, column)

    def _needed(self, column: str) -> float:
        if math.isnan(value := self._figure(column)):
            raise Unreadable(self.path, "no figure", line=self.row.line, at=column)
        return value

    def _second(self, row: Row, at: int, interval_s: float) -> Second:
        def figure(column: str, default: float = 0.0) -> float:
            return default if math.isnan(value := _figure(self.path, row, column)) else value

        ios = round(figure("rate") * interval_s)
        reads = round(ios * figure("read%", 100) / 100)
        size = round(figure("MB/sec") * self.tables.mb_bytes * interval_s)
        return Second(
            at_ns=round(at * interval_s * 1e9),
            duration_ns=round(interval_s * 1e9),
            reads=reads,
            writes=ios - reads,
            read_bytes=round(size * reads / ios) if ios else 0,
            write_bytes=size - round(size * reads / ios) if ios else 0,
        )


def _first_held(path: Path, mean: Row, intervals: Sequence[Row], named: int, notes: Notes) -> int:
    """The first interval that the mean is of: the one that its name says, or an earlier one whose mean it is."""
    rate = _figure(path, mean, "rate")
    rates = {int(each.values["Interval"]): _figure(path, each, "rate") for each in intervals}
    if rates.keys() != set(range(1, len(rates) + 1)):
        return named
    off = {
        first: abs(statistics.mean(rates[at] for at in range(first, len(rates) + 1)) - rate)
        for first in range(1, min(named, len(rates)) + 1)
    }
    first = min(off, key=off.__getitem__, default=named)
    if first == named or named not in off or off[first] > _ROUNDED * rate or off[named] <= _ROUNDED * rate:
        return named
    notes.add(
        path,
        f"{mean.values['Interval']} is the mean from interval {first} on: some of the warm-up is in it",
        line=mean.line,
        at="Interval",
    )
    return first


def _figure(path: Path, row: Row, column: str) -> float:
    """NaN where the row has none, or none that is the same for all of the load."""
    text = row.values.get(column)
    return number(path, text, line=row.line, at=column) if text and text != "n/a" else math.nan


def _interval_s(path: Path, intervals: Sequence[Row]) -> float:
    """By the times of day of neighbours, some of which were written late; a second where there are none."""
    ends_s = [_seconds_of(path, row.values["tod"], row.line) for row in intervals if "tod" in row.values]
    apart_s = [(after - before) % 86_400 for before, after in itertools.pairwise(ends_s)]
    return (round(statistics.median(apart_s)) if apart_s else 0) or 1.0


def _seconds_of(path: Path, text: str, line: int) -> float:
    parts = text.split(":")
    if len(parts) != 3:
        raise Unreadable(path, f"found {text!r} where a time of day is expected", line=line, at="tod")
    hours, minutes, seconds = (number(path, part, line=line, at="tod") for part in parts)
    return hours * 3600 + minutes * 60 + seconds


HISTOGRAM = "histogram.html"
_TAG = re.compile(r"<[^>]*>")
_START = re.compile(r"Starting RD=(?P<name>[^;\s]+)")
_TITLES = {
    "Only reads done for this workload:": "read",
    "Only writes done for this workload:": "write",
    "Reads:": "read",
    "Writes:": "write",
}
_BIN = re.compile(r"^\s*(?P<low>[\d.]+) <\s+(?P<high>[\d.]+|max)\s+(?P<count>[\d,.\u00a0\u202f]+)\s+[\d.]+\s+[\d.]+")


@dataclass
class Counts:
    """Of one run, its reads and its writes."""

    read: list[Bin] = field(default_factory=list)
    write: list[Bin] = field(default_factory=list)


def counts_beside(path: Path, notes: Notes) -> dict[tuple[str, int], Counts]:
    """(run's name, which of that name) → its counts, of the histogram in the same folder; empty if there is none, or
    none that can be read."""
    beside = path.with_name(HISTOGRAM)
    if not beside.is_file():
        return {}
    try:
        return counts_of(beside)
    except Unreadable as problem:
        notes.add(None, f"{problem}; without it there are no percentiles")
        return {}


def counts_of(path: Path) -> dict[tuple[str, int], Counts]:
    """The same. Raises Unreadable."""
    found: dict[tuple[str, int], Counts] = {}
    begun: Counter[str] = Counter()
    run, own = ("", 1), None
    for line, tagged in enumerate(text_of(path).splitlines(), start=1):
        content = _TAG.sub("", tagged)
        if start := _START.search(content):
            begun[start["name"]] += 1
            run, own = (start["name"], begun[start["name"]]), None
        elif content.strip() in _TITLES:
            own = getattr(found.setdefault(run, Counts()), _TITLES[content.strip()])
        elif content.strip() == "Reads and writes:":
            own = None  # both stand apart below
        elif own is not None and (row := _BIN.match(content)):
            high_ns = None if row["high"] == "max" else _ns(path, row["high"], line)
            count = whole(path, re.sub(r"\D", "", row["count"]), line=line, at="count")
            own.append(Bin(_ns(path, row["low"], line), high_ns, count))
        elif own is not None and " < " in content and "min(ms)" not in content:
            raise Unreadable(path, f"found {content.strip()[:60]!r} where a bin is expected", line=line)
    if not found:
        raise Unreadable(path, "no run with a histogram in it", line=1)
    return found


def _ns(path: Path, text_ms: str, line: int) -> int:
    return round(number(path, text_ms, line=line, at="ms") * 1e6)
