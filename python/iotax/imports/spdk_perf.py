"""The text of SPDK's `spdk_nvme_perf`: rates and latencies in µs; with `-L` percentiles, with `-LL` histograms.

Its histograms are exact counts in bins 1/128 of a power of two wide. It does not say how long it ran: the counts of a
histogram and the rate give it, else the command line within the file.
"""

from __future__ import annotations

import re
from pathlib import Path

from iotax.imports.measured import BLOCK_SIZE, OUTSTANDING, Measured, merged, reads_and_writes
from iotax.imports.problems import Notes, Unreadable, number, text_of
from iotax.trial import Histogram, LevelValue, Stream

PROGRAM = "SPDK perf"
_ROW = re.compile(r"^(?P<name>.+?)\s*:\s+(?P<figures>[\d.]+(?:\s+[\d.]+){4})\s*$")
_RANGE = re.compile(r"^\s*([\d.]+)\s+-\s+([\d.]+):\s+([\d.]+)%\s+\(\s*(\d+)\)")
_CUTOFF = re.compile(r"^\s*([\d.]+)%\s*:\s+([\d.]+)us")
_SECTION = re.compile(r"^(Summary latency data|Latency histogram) for (?P<name>.+?)\s+from core (?P<core>\d+):")
_OPTIONS = {"-q": OUTSTANDING, "-o": BLOCK_SIZE, "-w": "rw", "-t": "runtime_s", "-M": "rwmixread"}
_DIGITS = 2


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result: all namespaces and cores together. Raises Unreadable."""
    rows: dict[str, list[float]] = {}
    bins: dict[str, dict[int, int]] = {}
    cutoffs: dict[str, list[tuple[float, int]]] = {}
    section, kind = "", ""
    text = text_of(path)
    for line, content in enumerate(text.splitlines(), start=1):
        if found := _SECTION.match(content):
            section, kind = f"{found['name']} from core {found['core']}", found[1]
        elif kind == "Latency histogram" and (found := _RANGE.match(content)):
            value_ns = round(number(path, found[2], line=line) * 1000)
            counts = bins.setdefault(section, {})
            counts[value_ns] = counts.get(value_ns, 0) + int(found[4])
        elif kind == "Summary latency data" and (found := _CUTOFF.match(content)):
            value_ns = round(number(path, found[2], line=line) * 1000)
            cutoffs.setdefault(section, []).append((number(path, found[1], line=line), value_ns))
        elif found := _ROW.match(content):
            rows[found["name"]] = [float(figure) for figure in found["figures"].split()]
    parts = {name: row for name, row in rows.items() if " from core" in name}
    if not parts:
        raise Unreadable(path, "no row “NAME from core N: IOPS MiB/s average min max”: no result of spdk_nvme_perf")
    if "Total" not in rows:
        notes.add(path, "it ends before its total: the rows are added up", at="Total")
    asked = _asked(text)
    seconds = _seconds(path, parts, bins, asked)
    streams = [_stream(row, seconds, bins.get(_key(name)), cutoffs.get(_key(name))) for name, row in parts.items()]
    whole = merged(streams)
    reads, writes, said = reads_and_writes(whole, str(asked.get("rw", "read")))
    if whole.latency == "mean" and cutoffs and len(parts) > 1:
        said.append("percentiles of several cores cannot be merged: run spdk_nvme_perf with -LL")
    depth = asked.get(OUTSTANDING)
    return [
        Measured(
            path=path,
            program=PROGRAM,
            version="",
            read=reads,
            write=writes,
            duration_ns=round(seconds * 1e9),
            settings={name: value for name, value in asked.items() if name != "runtime_s"},
            workers=len(parts),
            per_worker=depth if isinstance(depth, int) else None,
            loop="closed",
            stack="user",
            notes=said,
        )
    ]


def _key(name: str) -> str:
    """Of a row as its sections write it: names are cut off there at 43 letters, and end otherwise."""
    head, _, core = name.rpartition(" from core ")
    return f"{head[:43].strip()} from core {core.strip()}"


def _stream(
    row: list[float], seconds: float, counts: dict[int, int] | None, cutoffs: list[tuple[float, int]] | None
) -> Stream:
    rate, mebibytes, mean_us, least_us, worst_us = row
    ios = round(rate * seconds)
    return Stream(
        ios=ios,
        bytes=round(mebibytes * (1 << 20) * seconds),
        latency="histogram" if counts else "percentiles" if cutoffs else "mean",
        latency_sum_ns=round(mean_us * 1000 * ios),
        latency_min_ns=round(least_us * 1000),
        latency_max_ns=round(worst_us * 1000),
        histogram=Histogram(significant_digits=_DIGITS, counts=sorted((counts or {}).items())),
        percentiles=[] if counts else [(percent, value) for percent, value in cutoffs or () if percent < 100],
    )


def _asked(text: str) -> dict[str, LevelValue]:
    """Of the command line, where the file holds it (`sh -x`, `script`)."""
    command = next((line for line in text.splitlines() if re.search(r"(spdk_nvme_perf|/perf)\s", line)), "")
    found: dict[str, LevelValue] = {}
    for option, value in re.findall(r"\s(-[qowtM])\s*(\S+)", command):
        found[_OPTIONS[option]] = int(value) if value.isdecimal() else value
    return found


def _seconds(
    path: Path, parts: dict[str, list[float]], bins: dict[str, dict[int, int]], asked: dict[str, LevelValue]
) -> float:
    counted = [
        (sum(counts.values()), row[0]) for name, row in parts.items() if (counts := bins.get(_key(name))) and row[0]
    ]
    if counted:
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
