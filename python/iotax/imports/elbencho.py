"""elbencho's CSV (`--csvfile`) and JSON (`--jsonfile`): for each phase figures at the end of the first and of the last
worker, of which the last's are the run's. Of a mix (`--rwmixpct`) the columns are those of the writes, and the reads
have columns of their own, `rwmix read …`.

CSV has means only. JSON with `--lathisto` has histograms: in quarters of a power of two (19 % wide), of later versions
in 64 parts of each. A bin counts as its upper end, as in elbencho's own percentiles.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

from iotax.imports import elbencho_json
from iotax.imports.elbencho_json import PROGRAM, start_of, stragglers, workers_of
from iotax.imports.measured import BLOCK_SIZE, OUTSTANDING, Measured, no_direction
from iotax.imports.problems import Notes, Unreadable, number, text_of
from iotax.trial import Direction, LevelValue

_NEEDED = ("operation", "time ms [last]", "IOPS [last]", "MiB/s [last]")


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each phase that reads or writes. Raises Unreadable."""
    if text_of(path).lstrip().startswith("{"):
        return elbencho_json.read(path, notes)
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
    own = _direction(row, "", duration_s, figure)
    mixed = bool(row.get("rwmix read IOPS [last]", "").strip())
    reads = _direction(row, "rwmix read ", duration_s, figure) if mixed else no_direction()
    writes = mixed or row["operation"].upper().startswith("WRITE")
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
    depth, workers = settings.get(OUTSTANDING), workers_of(settings)
    said = ["the CSV of elbencho has mean, least and greatest latency; its --jsonfile has percentiles, with --lathisto"]
    if row.get("time ms [first]", "").strip():
        said += stragglers(row["operation"].lower(), figure("time ms [first]") / 1000, duration_s)
    return Measured(
        path=path,
        program=PROGRAM,
        version=row.get("version", ""),
        part=row["operation"].lower(),
        read=reads if writes else own,
        write=own if writes else no_direction(),
        duration_ns=round(duration_s * 1e9),
        start_unix_ns=start_of(row.get("ISO date", "")),
        settings=settings,
        workers=workers,
        per_worker=depth if isinstance(depth, int) else None,
        loop="closed",
        stack="kernel",
        notes=said,
    )


def _direction(row: Mapping[str, str], side: str, duration_s: float, figure: Callable[[str], float]) -> Direction:
    ios = round(figure(f"{side}IOPS [last]") * duration_s)
    timed = bool(row.get(f"{side}IO lat us [avg]", "").strip())
    return Direction(
        ios=ios,
        bytes=round(figure(f"{side}MiB/s [last]") * (1 << 20) * duration_s),
        latency="mean" if timed else "none",
        latency_sum_ns=round(figure(f"{side}IO lat us [avg]") * 1e3 * ios) if timed else 0,
        latency_min_ns=round(figure(f"{side}IO lat us [min]") * 1e3) if timed else 0,
        latency_max_ns=round(figure(f"{side}IO lat us [max]") * 1e3) if timed else 0,
    )
