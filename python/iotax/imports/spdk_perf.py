"""The text of SPDK's `spdk_nvme_perf`: rates and latencies in µs; with `-L` percentiles, with `-LL` histograms.

Its histograms are exact counts in bins 1/128 of a power of two wide. It does not say how long it ran: the counts of a
histogram and the rate give it, else the command line within the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from iotax.imports.measured import BLOCK_SIZE, OUTSTANDING, Measured, readable, reads_and_writes
from iotax.imports.problems import Notes, Unreadable, level_of, number, runs_of, text_of, whole
from iotax.merged import merged_directions
from iotax.trial import Direction, Histogram, LevelValue

PROGRAM = "SPDK perf"
_ROW = re.compile(r"^(?P<name>.+?)\s*:\s+(?P<figures>[\d.]+(?:\s+[\d.]+){4})\s*$")
_RANGE = re.compile(r"^\s*([\d.]+)\s+-\s+([\d.]+):\s+([\d.]+)%\s+\(\s*(\d+)\)")
_CUTOFF = re.compile(r"^\s*([\d.]+)%\s*:\s+([\d.]+)us")
_SECTION = re.compile(r"^(Summary latency data|Latency histogram) for (?P<name>.+?)\s+from core (?P<core>\d+):")
_OPTIONS = {"-q": OUTSTANDING, "-o": BLOCK_SIZE, "-w": "rw", "-t": "runtime_s", "-M": "rwmixread"}
_COMMAND = re.compile(r"(spdk_nvme_perf|/perf)\s")
_BEGIN = re.compile(r"(spdk_nvme_perf|/perf)\s+-|^Starting SPDK|^Initializ|^Attach|^Device Information\s*:")
_RESULT = re.compile(r" from core\s+\d+:(\s+[\d.]+){5}\s*$")
_SUMMARY, _HISTOGRAM = "Summary latency data", "Latency histogram"
_DIGITS = 2


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each run in the file: all namespaces and cores together. Raises Unreadable."""
    runs = enumerate(runs_of(text_of(path), _BEGIN, _RESULT), start=1)
    return readable(runs, lambda each: _run(path, *each, notes), notes)


def _run(path: Path, run: int, text: str, notes: Notes) -> Measured:
    printed = _printed(path, text)
    if not printed.parts:
        raise Unreadable(path, "no row “NAME from core N: IOPS MiB/s average min max”: not a spdk_nvme_perf result")
    if not printed.total:
        notes.add(path, "it ends before its total: the rows are added up", at="Total")
    asked = _asked(text)
    seconds = _seconds(path, printed.parts, asked)
    every = merged_directions([_direction(part, seconds) for part in printed.parts])
    reads, writes, said = reads_and_writes(every, str(asked.get("rw", "read")))
    if "rw" not in asked:
        said.append("it does not say whether these were reads or writes (-w): all are shown as reads")
    if every.latency == "mean" and any(part.cutoffs for part in printed.parts) and len(printed.parts) > 1:
        said.append("percentiles of several cores cannot be merged: run spdk_nvme_perf with -LL")
    depth = asked.get(OUTSTANDING)
    return Measured(
        path=path,
        program=PROGRAM,
        version="",
        run=run,
        read=reads,
        write=writes,
        duration_ns=round(seconds * 1e9),
        settings={name: value for name, value in asked.items() if name != "runtime_s"},
        workers=len(printed.parts),
        per_worker=depth if isinstance(depth, int) else None,
        loop="closed",
        stack="user",
        notes=said,
    )


@dataclass(frozen=True)
class _Part:
    """What one core did on one namespace."""

    figures: Sequence[float]
    """IOPS, MiB/s, and mean, least and greatest latency in µs."""
    bins: Mapping[int, int] = field(default_factory=dict)
    """ns → I/Os."""
    cutoffs: Sequence[tuple[float, int]] = ()
    """(percent, ns)."""


@dataclass(frozen=True)
class _Printed:
    parts: Sequence[_Part]
    total: bool


def _printed(path: Path, text: str) -> _Printed:
    """Sections follow in the order of the rows. Their names are cut off, so namespaces of one subsystem may have the
    same; what did no I/O has no row, and a section with nothing in it."""
    rows: list[tuple[str, list[float]]] = []
    sections: dict[tuple[str, str], list[dict]] = {}
    own, kind, total = {}, "", False
    for line, content in enumerate(text.splitlines(), start=1):
        if found := _SECTION.match(content):
            own, kind = {}, found[1]
            sections.setdefault((kind, _key(f"{found['name']} from core {found['core']}")), []).append(own)
        elif kind == _HISTOGRAM and (found := _RANGE.match(content)):
            value_ns = round(number(path, found[2], line=line) * 1000)
            own[value_ns] = own.get(value_ns, 0) + whole(path, found[4], line=line)
        elif kind == _SUMMARY and (found := _CUTOFF.match(content)):
            own[number(path, found[1], line=line)] = round(number(path, found[2], line=line) * 1000)
        elif found := _ROW.match(content):
            figures = [number(path, figure, line=line) for figure in found["figures"].split()]
            if " from core" in found["name"]:
                rows.append((_key(found["name"]), figures))
            total = total or found["name"] == "Total"
    filled = {key: iter([each for each in found if each]) for key, found in sections.items()}
    parts = [
        _Part(
            figures,
            next(filled.get((_HISTOGRAM, name), iter(())), {}),
            list(next(filled.get((_SUMMARY, name), iter(())), {}).items()),
        )
        for name, figures in rows
    ]
    return _Printed(parts, total)


def _key(name: str) -> str:
    """Of a row as its sections write it: names are cut off there at 43 letters, and end otherwise."""
    head, _, core = name.rpartition(" from core ")
    return f"{head[:43].strip()} from core {core.strip()}"


def _direction(part: _Part, seconds: float) -> Direction:
    rate, mebibytes, mean_us, least_us, worst_us = part.figures
    ios = round(rate * seconds)
    return Direction(
        ios=ios,
        bytes=round(mebibytes * (1 << 20) * seconds),
        latency="histogram" if part.bins else "percentiles" if part.cutoffs else "mean",
        latency_sum_ns=round(mean_us * 1000 * ios),
        latency_min_ns=round(least_us * 1000),
        latency_max_ns=round(worst_us * 1000),
        histogram=Histogram(significant_digits=_DIGITS, counts=sorted(part.bins.items())),
        percentiles=[] if part.bins else [(percent, value) for percent, value in part.cutoffs if percent < 100],
    )


def _asked(text: str) -> dict[str, LevelValue]:
    """Of the command line, where the file holds it (`sh -x`, `script`)."""
    command = next((line for line in text.splitlines() if _COMMAND.search(line)), "")
    found: dict[str, LevelValue] = {}
    for option, value in re.findall(r"\s(-[qowtM])\s*(\S+)", command):
        found[_OPTIONS[option]] = level_of(value)
    return found


def _seconds(path: Path, parts: Sequence[_Part], asked: Mapping[str, LevelValue]) -> float:
    counted = [(sum(part.bins.values()), part.figures[0]) for part in parts if part.bins and part.figures[0]]
    if any(count for count, _ in counted):
        return sum(count for count, _ in counted) / sum(rate for _, rate in counted)
    asked_s = asked.get("runtime_s")
    if isinstance(asked_s, int) and asked_s > 0:
        return float(asked_s)
    raise Unreadable(
        path,
        "it does not say how long it ran: run spdk_nvme_perf with -LL, or put its command line (with -t) into the file "
        "as its first line",
        line=1,
    )
