"""elbencho's CSV: settings, then for each phase figures at the end of the first and of the last worker.

The last worker's figures are the run's. JSON beside it has the latencies in quarters of a power of two (19 % wide):
percentiles of them are within 10 %.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from iotax.imports.measured import BLOCK_SIZE, OUTSTANDING, WORKERS, Measured, no_stream
from iotax.imports.problems import Notes, Unreadable, number, text_of
from iotax.trial import LevelValue, Stream

PROGRAM = "elbencho"
_NEEDED = ("operation", "time ms [last]", "IOPS [last]", "MiB/s [last]")


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each phase that reads or writes. Raises Unreadable."""
    rows = csv.reader(text_of(path).splitlines())
    header: list[str] = []
    found: list[Measured] = []
    phases: list[tuple[int, dict[str, str]]] = []
    for line, cells in enumerate(rows, start=1):
        if "operation" in cells:
            header = cells  # again for each run that was appended
        elif header and cells:
            if len(cells) != len(header):
                raise Unreadable(path, f"{len(cells)} columns where the header names {len(header)}", line=line)
            phases.append((line, dict(zip(header, cells, strict=True))))
    if not header:
        raise Unreadable(path, "no line names columns (operation, IOPS [last]): name elbencho's --csvfile")
    if missing := [name for name in _NEEDED if name not in header]:
        raise Unreadable(path, "the header has no such column", at=missing[0])
    for line, row in phases:
        if row["IOPS [last]"].strip():
            found.append(_phase(path, line, row))
        else:
            notes.add(path, f"left out {row['operation']}: it does no I/O", line=line, at="operation")
    if not found:
        raise Unreadable(path, "no phase in it does I/O", at="IOPS [last]")
    return found


def _phase(path: Path, line: int, row: Mapping[str, str]) -> Measured:
    def figure(name: str) -> float:
        return number(path, row[name], line=line, at=name)

    duration_s = figure("time ms [last]") / 1000
    if duration_s <= 0:
        raise Unreadable(path, "it lasted no time", line=line, at="time ms [last]")
    ios = round(figure("IOPS [last]") * duration_s)
    size = round(figure("MiB/s [last]") * (1 << 20) * duration_s)
    timed = bool(row.get("IO lat us [avg]", "").strip())
    stream = Stream(
        ios=ios,
        bytes=size,
        latency="mean" if timed else "none",
        latency_sum_ns=round(figure("IO lat us [avg]") * 1e3 * ios) if timed else 0,
        latency_min_ns=round(figure("IO lat us [min]") * 1e3) if timed else 0,
        latency_max_ns=round(figure("IO lat us [max]") * 1e3) if timed else 0,
    )
    writes = row["operation"].upper().startswith("WRITE")
    settings: dict[str, LevelValue] = {"operation": row["operation"].lower()}
    for column, name in (
        ("block size", BLOCK_SIZE),
        ("IO depth", OUTSTANDING),
        ("threads", "threads"),
        ("hosts", "hosts"),
    ):
        if row.get(column, "").isdecimal():
            settings[name] = int(row[column])
    settings["random"] = "random" if row.get("random", "") in ("1", "true") else "sequential"
    threads, hosts = settings.get("threads"), settings.get("hosts", 1)
    depth = settings.get(OUTSTANDING)
    workers = threads * max(1, hosts) if isinstance(threads, int) and isinstance(hosts, int) else None
    if workers is not None:
        settings[WORKERS] = workers
    said = ["the CSV of elbencho has mean, least and greatest latency, and no percentiles"]
    first = row.get("time ms [first]", "").strip()
    if first and figure("time ms [first]") < 0.9 * duration_s * 1000:
        said.append(
            f"{row['operation'].lower()}: the first worker ended at {figure('time ms [first]') / 1000:.1f} s, the last "
            f"at {duration_s:.1f} s: the rate is that of all of it, stragglers included"
        )
    return Measured(
        path=path,
        program=PROGRAM,
        version=row.get("version", ""),
        part=row["operation"].lower(),
        read=no_stream() if writes else stream,
        write=stream if writes else no_stream(),
        duration_ns=round(duration_s * 1e9),
        start_unix_ns=_start(row.get("ISO date", "")),
        settings=settings,
        workers=workers,
        per_worker=depth if isinstance(depth, int) else None,
        loop="closed",
        stack="kernel",
        notes=said,
    )


def _start(text: str) -> int | None:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1e9)
