"""elbencho's CSV (`--csvfile`) and JSON (`--jsonfile`): for each phase figures at the end of the first and of the last
worker, of which the last's are the run's. Of a mix (`--rwmixpct`) the columns are those of the writes, and the reads
have columns of their own, `rwmix read …`.

CSV has means only. JSON with `--lathisto` has histograms: in quarters of a power of two (19 % wide), of later versions
in 64 parts of each. A fine bin counts as its upper end, as in elbencho's own percentiles; in a wide one latencies are
taken to lie evenly. Before 3.0-27 the CSV's date is that of a phase's end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from iotax.imports import elbencho_json
from iotax.imports.elbencho_json import PROGRAM, stragglers, workers_of
from iotax.imports.measured import BLOCK_SIZE, OUTSTANDING, Measured, no_direction, readable
from iotax.imports.problems import Notes, Unreadable, number, rows_of, small, start_of, text_of
from iotax.trial import Direction, LevelValue

_NEEDED = ("operation", "time ms [last]", "IOPS [last]", "MiB/s [last]")


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each phase that reads or writes. Raises Unreadable."""
    if text_of(path).lstrip().startswith("{"):
        return elbencho_json.read(path, notes)
    rows = rows_of(path, text_of(path).splitlines())
    header: list[str] = []
    phases: list[tuple[int, dict[str, str]]] = []
    for line, cells in rows:
        if "operation" in cells:
            header = cells  # again for each run that was appended
        elif header and cells:
            if len(cells) != len(header):
                raise Unreadable(path, f"{len(cells)} columns where the header names {len(header)}", line=line)
            phases.append((line, dict(zip(header, cells, strict=True))))
        elif "RuntimeMS" in cells and "MixType" in cells:
            raise Unreadable(path, "live statistics of elbencho (--livecsv): name its --csvfile", line=line)
    if not header:
        raise Unreadable(path, "no line names columns (operation, IOPS [last]): name elbencho's --csvfile")
    if missing := [name for name in _NEEDED if name not in header]:
        raise Unreadable(path, "the header has no such column", at=missing[0])
    with_io = [(line, row) for line, row in phases if row["IOPS [last]"].strip()]
    for line, row in phases:
        if (line, row) not in with_io:
            notes.add(path, f"left out {row['operation']}: it does no I/O", line=line, at="operation")
    if not with_io:
        raise Unreadable(path, "no phase in it does I/O", at="IOPS [last]")
    return readable(with_io, lambda each: _phase(path, *each), notes)


def _phase(path: Path, line: int, row: Mapping[str, str]) -> Measured:
    def figure(name: str) -> float:
        return number(path, row.get(name, ""), line=line, at=name)

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
        if (value := small(row.get(column))) is not None:
            settings[name] = value
    settings["random"] = "random" if row.get("random", "") in ("1", "true") else "sequential"
    depth, workers = settings.get(OUTSTANDING), workers_of(settings)
    said = ["the CSV of elbencho has mean, least and greatest latency; its --jsonfile has percentiles, with --lathisto"]
    if row.get("time ms [first]", "").strip():
        said += stragglers(row["operation"].lower(), figure("time ms [first]") / 1000, duration_s)
    stamp_ns, ended = start_of(row.get("ISO date", "")), _stamps_end(row.get("version", ""))
    if stamp_ns is not None:
        stamp_ns = None if ended is None else stamp_ns - (round(duration_s * 1e9) if ended else 0)
    return Measured(
        path=path,
        program=PROGRAM,
        version=row.get("version", ""),
        part=row["operation"].lower(),
        read=reads if writes else own,
        write=own if writes else no_direction(),
        duration_ns=round(duration_s * 1e9),
        start_unix_ns=stamp_ns,
        settings=settings,
        workers=workers,
        per_worker=depth if isinstance(depth, int) else None,
        loop="closed",
        stack="kernel",
        notes=said,
    )


def _stamps_end(version: str) -> bool | None:
    """Whether the CSV of that version has the date at which a phase ended (changelog of 3.0-27); None if it is not
    a version."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})(?:[-.](\d{1,4}))?", version.strip())
    return None if found is None else tuple(int(each or 0) for each in found.groups()) < (3, 0, 27)


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
