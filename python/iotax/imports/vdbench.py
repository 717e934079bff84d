"""vdbench's flatfile.html: a table whose header names its columns; latencies in ms, MB of 2²⁰ bytes.

Intervals carry a number, the mean over them `avg_a-b`. The flatfile has a time of day and no date, and no percentiles:
these stand in histogram.html beside it, over the whole test.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from iotax.imports.measured import BLOCK_SIZE, Measured, mean_stream
from iotax.imports.problems import Notes, Unreadable, number, text_of
from iotax.trial import LevelValue, Second

PROGRAM = "vdbench"
_MAXIMUM = 999_988
"""What `reqrate` says for "as fast as it goes", or a little more."""
_NEEDED = ("Run", "Interval", "rate", "MB/sec", "resp")
_AVERAGE = re.compile(r"avg_(\d+)-(\d+)")

_Row = Mapping[str, str]


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each run definition. Raises Unreadable."""
    header: list[str] = []
    runs: dict[str, list[tuple[int, _Row]]] = {}
    for line, text in enumerate(text_of(path).splitlines(), start=1):
        words = text.split()
        if "Interval" in words and "resp" in words:
            header = [word for word in words if word != "*"]
        elif header and words and not text.startswith(("*", "<")):
            if len(words) != len(header):
                raise Unreadable(path, f"{len(words)} columns where the header names {len(header)}", line=line)
            row = dict(zip(header, words, strict=True))
            if row["Run"] != "format_for":
                runs.setdefault(row["Run"], []).append((line, row))
    if not header:
        raise Unreadable(path, "no line names columns (Run, Interval, rate, resp): name vdbench's flatfile.html")
    if missing := [name for name in _NEEDED if name not in header]:
        raise Unreadable(path, f"the header has no column {missing[0]}", at=missing[0])
    found = []
    for name, rows in runs.items():
        averages = [each for each in rows if _AVERAGE.fullmatch(each[1]["Interval"])]
        if not averages:
            notes.add(path, f"run {name} has no mean (avg_…): it did not end, and is left out", at="Interval")
            continue
        intervals = [each for each in rows if each[1]["Interval"].isdecimal()]
        found.append(_run(path, name if len(runs) > 1 else "", *averages[-1], intervals))
    if not found:
        raise Unreadable(path, "no run in it has ended", at="Interval")
    return found


def _run(path: Path, name: str, line: int, row: _Row, intervals: Sequence[tuple[int, _Row]]) -> Measured:
    def figure(column: str) -> float:
        return number(path, row[column], line=line, at=column) if column in row else math.nan

    match = _AVERAGE.fullmatch(row["Interval"])
    assert match is not None
    first, last = int(match[1]), int(match[2])
    interval_s = _interval_s(path, intervals)
    duration_s = (last - first + 1) * interval_s
    ios = round(figure("rate") * duration_s)
    reads = round(ios * figure("read%") / 100) if "read%" in row else ios
    size = round(figure("MB/sec") * (1 << 20) * duration_s)
    parts = {"read": (reads, figure("read_resp")), "write": (ios - reads, figure("write_resp"))}
    share = {side: count / ios if ios else 0.0 for side, (count, _) in parts.items()}
    streams = {
        side: mean_stream(
            count, round(size * share[side]), figure("resp") if math.isnan(own) else own, figure("resp_max")
        )
        for side, (count, own) in parts.items()
    }
    threads = round(figure("threads")) if "threads" in row else None
    requested = figure("reqrate")
    held = None if math.isnan(requested) or requested >= _MAXIMUM else requested
    settings: dict[str, LevelValue] = {}
    for column, setting in (("xfersize", BLOCK_SIZE), ("threads", "threads"), ("rdpct", "read_percent")):
        if column in row and not math.isnan(value := figure(column)):
            settings[setting] = int(value) if value == int(value) else value
    if held:
        settings["rate_iops"] = int(held)
    kept = [each for at, each in intervals if first <= int(each["Interval"]) <= last]
    return Measured(
        path=path,
        program=PROGRAM,
        version="",
        part=name,
        read=streams["read"],
        write=streams["write"],
        duration_ns=round(duration_s * 1e9),
        settings=settings,
        workers=1 if threads else None,
        per_worker=threads,
        rate_iops=held,
        loop="unknown" if math.isnan(requested) else "open" if held else "closed",
        stack="kernel",
        warmup_ns=round((first - 1) * interval_s * 1e9),
        series=[_second(path, each, at, interval_s) for at, each in enumerate(kept, start=1)],
        notes=["the flatfile has no percentiles, and CPU in percent of a number of processors that it does not say"],
    )


def _second(path: Path, row: _Row, at: int, interval_s: float) -> Second:
    ios = round(number(path, row["rate"], at="rate") * interval_s)
    reads = round(ios * number(path, row.get("read%", "100"), at="read%") / 100)
    size = round(number(path, row["MB/sec"], at="MB/sec") * (1 << 20) * interval_s)
    return Second(
        at_ns=round(at * interval_s * 1e9),
        duration_ns=round(interval_s * 1e9),
        reads=reads,
        writes=ios - reads,
        read_bytes=round(size * reads / ios) if ios else 0,
        write_bytes=size - round(size * reads / ios) if ios else 0,
    )


def _interval_s(path: Path, intervals: Sequence[tuple[int, _Row]]) -> float:
    """By the times of day of two neighbours; a second where there are none."""
    days = [_seconds_of(path, row["tod"], line) for line, row in intervals[:2] if "tod" in row]
    if len(days) < 2:
        return 1.0
    return round((days[1] - days[0]) % 86_400) or 1.0


def _seconds_of(path: Path, text: str, line: int) -> float:
    parts = text.split(":")
    if len(parts) != 3:
        raise Unreadable(path, f"found {text!r} where a time of day is meant", line=line, at="tod")
    hours, minutes, seconds = (number(path, part, line=line, at="tod") for part in parts)
    return hours * 3600 + minutes * 60 + seconds
