"""Iometer's CSV: blocks that lines with a leading `'` begin; latencies in ms. The rows ALL are whole tests.

"MBps" of 2006 and 2008 is MiB/s. Version 1.1 has both, and 21 bins of latency from 50 µs to 10 s, too wide for
percentiles: they are not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from iotax.imports.measured import BLOCK_SIZE, MIXED, OUTSTANDING, Measured, mean_direction, readable
from iotax.imports.problems import Notes, Unreadable, number, rows_of, small, text_of
from iotax.trial import LevelValue

PROGRAM = "Iometer"
_STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.:](\d+))?")


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each test. Raises Unreadable."""
    version, stamp = "", ""
    header: list[str] = []
    spec: dict[str, LevelValue] = {}
    tests: list[_Test] = []
    for line, cells in rows_of(path, text_of(path).splitlines()):
        first = cells[0] if cells else ""
        if first.startswith("'"):
            stamp = first.strip("' ").lower()
            if stamp.startswith("target type"):
                header = [first[1:], *cells[1:]]
            continue
        if stamp == "version" and first:
            version = first
        elif stamp == "time stamp" and (at := _time(first)) is not None:
            # Iometer stamps the begin of a file, then the end of each test, below its rows.
            if tests and tests[-1].ended is None:
                tests[-1] = replace(tests[-1], ended=at)
        elif stamp.startswith("size") and small(first) is not None and len(cells) > 3:
            own: dict[str, LevelValue] = {BLOCK_SIZE: small(first) or 0}
            for at, name in ((2, "read"), (3, "random")):
                own[name] = int(number(path, cells[at], line=line, at=f"% {name}"))
            # A specification may have several lines, each for a share of the accesses.
            spec = own if BLOCK_SIZE not in spec else {name: _shared(spec[name], value) for name, value in own.items()}
        elif stamp.startswith("access specification name") and cells:
            spec = {"access": first}
        elif header and first == "ALL":
            if len(cells) < len(header):
                raise Unreadable(path, f"{len(cells)} columns where the header names {len(header)}", line=line)
            tests.append(_Test(line, dict(zip(header, cells, strict=False)), spec, version))
    if not tests:
        raise Unreadable(path, "no row ALL under a line 'Target Type,…: not an Iometer result")
    if any(test.spec and BLOCK_SIZE not in test.spec for test in tests):
        notes.add(path, "it does not say the block size of each test: it stands in the configuration only")
    several = len(tests) > 1
    parts = [(each, f"test {at}" if several else "") for at, each in enumerate(tests, start=1)]
    return readable(parts, lambda each: _test(path, *each), notes)


@dataclass(frozen=True)
class _Test:
    """A row ALL, and what stands around it."""

    line: int
    row: Mapping[str, str]
    spec: Mapping[str, LevelValue]
    version: str
    ended: datetime | None = None


def _test(path: Path, test: _Test, part: str) -> Measured:
    line, row = test.line, test.row

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
    depth, disks = small(row.get("Queue Depth")), small(row.get("# Disks"))
    settings = dict(test.spec)
    name = row.get("Access Specification Name", "")
    if name:
        settings["access"] = name
    if depth is not None:
        settings[OUTSTANDING] = depth
    ended_ns = None if test.ended is None else round(test.ended.timestamp() * 1e9)
    return Measured(
        path=path,
        program=PROGRAM,
        version=test.version,
        part=part,
        read=streams["Read"],
        write=streams["Write"],
        duration_ns=round(duration_s * 1e9),
        start_unix_ns=None if ended_ns is None else ended_ns - round(duration_s * 1e9),
        settings=settings,
        workers=disks if depth is not None else None,
        per_worker=depth,
        loop="closed",
        errors=round(figure("Errors")) if "Errors" in row else None,
        stack="kernel",
        notes=[
            "Iometer gives means and maxima; its bins of latency are too wide for percentiles",
            *(["times are the measuring machine's, taken as UTC"] if ended_ns is not None else []),
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
