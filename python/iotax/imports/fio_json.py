"""fio's JSON, JSON+ and the output of its client mode, of fio 2 and 3.

fio 2 counts latency in µs (`clat`) and `io_bytes` in KiB, later ones of it in bytes, fio 3 in ns (`clat_ns`) and bytes:
the fields tell which, not the version. JSON+ adds histograms, whose bins are 1/64 of a power of two wide and named by
their middle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from iotax.imports.fio_options import Asked, asked_of
from iotax.imports.json_text import read_documents
from iotax.imports.measured import Measured, no_direction
from iotax.imports.problems import Notes, Unreadable
from iotax.merged import merged_directions
from iotax.records import CpuTime
from iotax.trial import Direction, Histogram

PROGRAM = "fio"
_DIGITS = 2
"""A bin's middle is within 1/128 of what it holds."""
_TOGETHER = "All clients"
"""fio's own sum of all clients: it would count everything twice."""
_BETWEEN = 32
"""Halfway between bytes and KiB, as a ratio."""
_TOGETHER_MIN = 0.9
"""Share of the longest job that all must have run together; less is no load that ever was."""


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each group of jobs that ran after another (`stonewall`). Raises Unreadable."""
    documents = read_documents(path, notes)
    whole = [each for each in documents if each.get("jobs") or each.get("client_stats")]
    if not whole:
        raise Unreadable(path, "neither `jobs` nor `client_stats`: no result of fio; leave this file out")
    if len(whole) > 1:
        notes.add(path, f"{len(whole)} reports in one file (--status-interval): the last one is taken")
    output = whole[-1]
    version = str(output.get("fio version", "")).removeprefix("fio-")
    rows, together = _rows(output)
    groups = [list(rows) for _, rows in groupby(rows, key=lambda row: row.get("groupid", 0))]
    if len(groups) > 1 and _overlap(groups):
        groups = [rows]
    return [
        _group(path, output, version, group, together if len(groups) == 1 else None, notes, parts=len(groups))
        for group in groups
    ]


def _rows(output: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The jobs, and fio's own sum of them where they ran on several clients."""
    rows = [*output.get("client_stats", ()), *output.get("jobs", ())]
    own = [row for row in rows if row.get("jobname") != _TOGETHER]
    sums = [row for row in rows if row.get("jobname") == _TOGETHER]
    return (own or sums), (sums[0] if sums and own else None)


def _group(
    path: Path,
    output: dict[str, Any],
    version: str,
    rows: list[dict[str, Any]],
    together: dict[str, Any] | None,
    notes: Notes,
    *,
    parts: int,
) -> Measured:
    asked = asked_of(rows, output.get("global options"))
    sides = [_Side.of(path, row, name) for row in rows for name in _sides(row)]
    said = [remark for side in sides for remark in side.remarks]
    if any(side.name == "mixed" and side.stream.ios for side in sides):
        said.append("reads and writes were reported together (unified_rw_reporting): all are shown as reads")
    reads = [side.stream for side in sides if side.name != "write"]
    writes = [side.stream for side in sides if side.name == "write"]
    duration_ns = max((side.runtime_ns for side in sides), default=0)
    if not duration_ns:
        trims = any(row.get("trim", {}).get("total_ios") for row in rows)
        raise Unreadable(path, "it only trims: no read or write" if trims else "no job ran for any time", at="runtime")
    read_all, write_all = merged_directions(reads), merged_directions(writes)
    if together is not None:
        read_all, write_all = (
            _merged_by_fio(path, mine, together, name) for mine, name in ((read_all, "read"), (write_all, "write"))
        )
    if any(each.latency == "mean" for each in (read_all, write_all)) and len(rows) > 1:
        said.append(
            f"{len(rows)} jobs were reported apart and without histograms: no percentile can be had of them "
            "together. Run fio with group_reporting or --output-format=json+"
        )
    skew_ns = _skew_ns(rows)
    said += _apart(rows, duration_ns, skew_ns)
    failed = [row for row in rows if row.get("error")]
    for row in failed:
        notes.add(path, f"job {row.get('jobname')} ended with error {row['error']}", at="error")
    return Measured(
        path=path,
        program=PROGRAM,
        version=version,
        part=str(rows[0].get("jobname", "")) if parts > 1 else "",
        read=read_all,
        write=write_all,
        duration_ns=duration_ns,
        percentiles=_together_by_fio(path, rows),
        start_unix_ns=_start_unix_ns(output, rows, duration_ns) if parts == 1 or "job_start" in rows[0] else None,
        settings=asked.settings,
        workers=asked.workers,
        per_worker=asked.per_worker,
        rate_iops=asked.rate_iops,
        loop=asked.loop,
        errors=sum(int(row.get("total_err") or 1) for row in failed),
        start_skew_ns=skew_ns,
        warmup_ns=asked.ramp_ns,
        stack=asked.stack,
        driver=asked.engine,
        cpu=_cpu(rows, duration_ns, asked),
        notes=tuple(dict.fromkeys(said)),
        counted_in=_counted_in(rows),
    )


def _sides(row: Mapping[str, Any]) -> list[str]:
    """What counts the job's I/Os once: `unified_rw_reporting=both` adds reads and writes together to both apart."""
    apart = [name for name in ("read", "write") if name in row]
    return apart or [name for name in ("mixed",) if name in row]


def _io_bytes_unit(side: Mapping[str, Any]) -> int:
    """Bytes of one of `io_bytes`: fio 3 has KiB apart from it; fio 2 began with KiB and ended with bytes, of which
    `bw`, always in KiB/s, tells which."""
    by_rate_kib = side.get("bw", 0) * side["runtime"] / 1000
    in_bytes = "io_kbytes" in side or (by_rate_kib and side["io_bytes"] > _BETWEEN * by_rate_kib)
    return 1 if in_bytes else 1024


def _counted_in(rows: Sequence[Mapping[str, Any]]) -> str:
    sides = [row[name] for row in rows for name in _sides(row) if row[name].get("io_bytes")]
    if not sides:
        return ""
    size = "bytes" if _io_bytes_unit(sides[0]) == 1 else "KiB"
    return f"{'ns' if 'lat_ns' in sides[0] or 'clat_ns' in sides[0] else 'µs'} and {size}"


def _together_by_fio(path: Path, rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, int]]:
    """Percentiles of one job's reads and writes together, where fio reported both ways."""
    if len(rows) != 1 or "mixed" not in rows[0] or _sides(rows[0]) == ["mixed"]:
        return []
    return list(_Side.of(path, rows[0], "mixed").stream.percentiles)


@dataclass(frozen=True)
class _Side:
    """The reads or the writes of one job."""

    name: str
    stream: Direction
    runtime_ns: int
    remarks: list[str]

    @classmethod
    def of(cls, path: Path, row: Mapping[str, Any], name: str) -> _Side:
        side = row[name]
        try:
            return cls._of(name, side)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Unreadable(
                path, f"not as fio writes it ({error})", at=f"jobs, {row.get('jobname', '?')}, {name}"
            ) from None

    @classmethod
    def _of(cls, name: str, side: Mapping[str, Any]) -> _Side:
        runtime_ns = round(side["runtime"] * 1e6)
        ios = int(side.get("total_ios") or round(side.get("iops", 0) * runtime_ns / 1e9))
        if not ios:
            return cls(name, no_direction(), runtime_ns, [])
        unit_ns = 1 if "lat_ns" in side or "clat_ns" in side else 1000
        suffix = "_ns" if unit_ns == 1 else ""
        lat, clat = side.get(f"lat{suffix}") or {}, side.get(f"clat{suffix}") or {}
        size = side["io_bytes"] * _io_bytes_unit(side)
        basis = lat if lat.get("bins") or lat.get("percentile") else clat
        remarks = []
        if basis is clat and (clat.get("bins") or clat.get("percentile")):
            remarks.append(
                "percentiles are of completion latency (clat), means of total latency (slat + clat): fio keeps "
                "percentiles of the latter only with lat_percentiles=1"
            )
        mean = lat if lat.get("mean") else clat
        if not mean.get("mean"):
            return cls(
                name,
                Direction(ios=ios, bytes=size, latency="none", latency_sum_ns=0, latency_min_ns=0, latency_max_ns=0),
                runtime_ns,
                ["fio recorded no latency (disable_lat)"],
            )
        counts = sorted((int(value) * unit_ns, int(count)) for value, count in basis.get("bins", {}).items() if count)
        percentiles = [
            (float(percent), round(value * unit_ns))
            for percent, value in basis.get("percentile", {}).items()
            if float(percent)  # fio 2 fills up with 0.00
        ]
        stream = Direction(
            ios=ios,
            bytes=size,
            latency="histogram" if counts else "percentiles" if percentiles else "mean",
            latency_sum_ns=round(mean["mean"] * unit_ns * ios),
            latency_min_ns=round(mean.get("min", 0) * unit_ns),
            latency_max_ns=round(mean.get("max", 0) * unit_ns),
            histogram=Histogram(significant_digits=_DIGITS, counts=counts),
            percentiles=[] if counts else percentiles,
        )
        return cls(name, stream, runtime_ns, remarks)


def _merged_by_fio(path: Path, mine: Direction, together: Mapping[str, Any], name: str) -> Direction:
    """With the percentiles that fio made of all clients' histograms, where their rows have none to add up."""
    if mine.latency != "mean" or name not in together:
        return mine
    theirs = _Side.of(path, together, name).stream
    if theirs.latency != "percentiles" or theirs.ios != mine.ios:
        return mine
    return mine.model_copy(update={"latency": "percentiles", "percentiles": theirs.percentiles})


def _overlap(groups: Sequence[Sequence[Mapping[str, Any]]]) -> bool:
    """Whether groups ran at the same time, as `new_group` without `stonewall` makes them."""
    spans = [_span_ms(group) for group in groups]
    if any(span is None for span in spans):
        return False
    known = [span for span in spans if span is not None]
    return max(begin for begin, _ in known) < min(end for _, end in known)


def _span_ms(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """When jobs began and ended; fio says it from 3.36 on."""
    if any("job_start" not in row for row in rows):
        return None
    begin = min(row["job_start"] for row in rows)
    return begin, max(row["job_start"] + _runtime_ms(row) for row in rows)


def _runtime_ms(row: Mapping[str, Any]) -> float:
    return max((row[name].get("runtime", 0) for name in ("read", "write", "mixed") if name in row), default=0)


def _skew_ns(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """Between the first and the last job that began."""
    if len(rows) == 1:
        return 0
    begun = [row["job_start"] for row in rows if "job_start" in row]
    return round((max(begun) - min(begun)) * 1e6) if len(begun) == len(rows) else None


def _apart(rows: Sequence[Mapping[str, Any]], duration_ns: int, skew_ns: int | None) -> list[str]:
    """Jobs that are added up although they did not run together."""
    runtimes_ms = [ms for row in rows if (ms := _runtime_ms(row))]
    shared_ns = min(runtimes_ms, default=0) * 1e6 - (skew_ns or 0)
    if len(runtimes_ms) < 2 or shared_ns >= _TOGETHER_MIN * duration_ns:
        return []
    return [
        f"job_start, runtime: its {len(runtimes_ms)} jobs ran together for only {max(0.0, shared_ns) / 1e9:.1f} of "
        f"{duration_ns / 1e9:.1f} s: their sum is no rate that was ever reached"
    ]


def _start_unix_ns(output: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], duration_ns: int) -> int | None:
    begun = [row["job_start"] for row in rows if "job_start" in row]
    if begun:
        return round(min(begun) * 1e6)
    # What fio stamps is when it wrote the report.
    stamp_ms = output.get("timestamp_ms") or output.get("timestamp", 0) * 1000
    return round(stamp_ms * 1e6) - duration_ns if stamp_ms else None


def _cpu(rows: Sequence[Mapping[str, Any]], duration_ns: int, asked: Asked) -> list[CpuTime]:
    """Of fio's own threads; the kernel's, and interrupts, are in no figure of fio."""
    user_ns = system_ns = 0.0
    for row in rows:
        if "usr_cpu" not in row or "sys_cpu" not in row:
            return []
        spent_ms = row.get("job_runtime") or _runtime_ms(row)
        user_ns += row["usr_cpu"] / 100 * spent_ms * 1e6
        system_ns += row["sys_cpu"] / 100 * spent_ms * 1e6
    return [
        CpuTime(
            role="initiator",
            layer="process",
            busy_ns=round(user_ns + system_ns),
            user_ns=round(user_ns),
            system_ns=round(system_ns),
            window_ns=duration_ns,
            processors=asked.workers,
        )
    ]
