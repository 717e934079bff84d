"""Iometer's CSV: blocks that lines with a leading `'` begin; latencies in ms. The rows ALL are whole tests.

"MBps" of 2006 and 2008 is MiB/s. Version 1.1 has both, and 21 bins of latency from 50 µs to 10 s, too wide for
percentiles: they are not read.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from iotax.imports.measured import BLOCK_SIZE, OUTSTANDING, Measured, mean_direction
from iotax.imports.problems import Notes, Unreadable, number, text_of
from iotax.trial import LevelValue

PROGRAM = "Iometer"
MIXED = "mixed"
"""What a specification whose accesses differ has in place of one size or share."""
_STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.:](\d+))?")


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each test. Raises Unreadable."""
    version, begun, stamp = "", None, ""
    header: list[str] = []
    spec: dict[str, LevelValue] = {}
    found: list[tuple[int, Mapping[str, str], dict[str, LevelValue], datetime | None]] = []
    for line, cells in enumerate(csv.reader(text_of(path).splitlines()), start=1):
        first = cells[0] if cells else ""
        if first.startswith("'"):
            stamp = first.strip("' ").lower()
            if stamp.startswith("target type"):
                header = [first[1:], *cells[1:]]
            continue
        if stamp == "version" and first:
            version = first
        elif stamp == "time stamp" and (at := _time(first)) is not None:
            begun = at
        elif stamp.startswith("size") and first.isdecimal() and len(cells) > 3:
            own: dict[str, LevelValue] = {BLOCK_SIZE: int(first)}
            for at, name in ((2, "read"), (3, "random")):
                own[name] = int(number(path, cells[at], line=line, at=f"% {name}"))
            # A specification may have several lines, each for a share of the accesses.
            spec = own if BLOCK_SIZE not in spec else {name: _shared(spec[name], value) for name, value in own.items()}
        elif stamp.startswith("access specification name") and cells:
            spec = {"access": first}
        elif header and first == "ALL":
            if len(cells) < len(header):
                raise Unreadable(path, f"{len(cells)} columns where the header names {len(header)}", line=line)
            found.append((line, dict(zip(header, cells, strict=False)), spec, begun))
    if not found:
        raise Unreadable(path, "no row ALL under a line 'Target Type,…: no result of Iometer")
    if any(len(own) and BLOCK_SIZE not in own for _, _, own, _ in found):
        notes.add(path, "it does not say the block size of each test: it stands in the configuration only")
    several = len(found) > 1
    return [
        _test(path, line, row, own, version, start, f"test {at}" if several else "")
        for at, (line, row, own, start) in enumerate(found, start=1)
    ]


def _test(
    path: Path,
    line: int,
    row: Mapping[str, str],
    spec: Mapping[str, LevelValue],
    version: str,
    start: datetime | None,
    part: str,
) -> Measured:
    def figure(name: str) -> float:
        if name not in row:
            raise Unreadable(path, "the header has no such column", line=line, at=name)
        return number(path, row[name] or "0", line=line, at=name)

    ios = {side: round(figure(f"{side} I/Os")) for side in ("Read", "Write")}
    rate = figure("IOps")
    if rate <= 0 or not sum(ios.values()):
        raise Unreadable(path, "no I/O completed", line=line, at="IOps")
    # The run's length is in no column: the I/Os and their rate give it.
    duration_s = sum(ios.values()) / rate
    streams = {
        side: mean_direction(
            ios[side],
            round(figure(f"Bytes {'Read' if side == 'Read' else 'Written'}")),
            figure(f"Average {side} Response Time"),
            figure(f"Maximum {side} Response Time"),
        )
        for side in ios
    }
    depth = row.get("Queue Depth", "")
    settings = dict(spec)
    name = row.get("Access Specification Name", "")
    if name:
        settings["access"] = name
    if depth.isdecimal():
        settings[OUTSTANDING] = int(depth)
    disks = row.get("# Disks", "")
    return Measured(
        path=path,
        program=PROGRAM,
        version=version,
        part=part,
        read=streams["Read"],
        write=streams["Write"],
        duration_ns=round(duration_s * 1e9),
        start_unix_ns=round(start.timestamp() * 1e9) if start is not None else None,
        settings=settings,
        workers=int(disks) if disks.isdecimal() and depth.isdecimal() else None,
        per_worker=int(depth) if depth.isdecimal() else None,
        loop="closed",
        errors=round(figure("Errors")) if "Errors" in row else None,
        stack="kernel",
        notes=[
            "Iometer gives means and maxima; its bins of latency are too wide for percentiles",
            *(["times are the measuring machine's, taken as UTC"] if start is not None else []),
        ],
    )


def _shared(one: LevelValue, other: LevelValue) -> LevelValue:
    return one if one == other else MIXED


def _time(text: str) -> datetime | None:
    match = _STAMP.match(text.strip())
    if not match:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
