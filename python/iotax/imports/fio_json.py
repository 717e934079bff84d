"""fio's JSON, JSON+, the output of its client mode, and what it prints by default (`fio_text`), of fio 2 and 3.

fio 2 counts latency in µs (`clat`) and `io_bytes` in KiB, later ones of it in bytes, fio 3 in ns (`clat_ns`) and bytes:
the fields tell which, not the version. JSON+ adds histograms, whose bins are 1/64 of a power of two wide and named by
their middle.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from iotax.imports import fio_text
from iotax.imports.fio_options import Asked, asked_of
from iotax.imports.json_text import Fields, has_objects, read_documents
from iotax.imports.measured import BLOCK_SIZE, Measured, block_size_of, no_direction, readable
from iotax.imports.problems import Notes, Unreadable, number, text_of, whole
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
"""Share of the longest job that all must have run together; less is not a load that ever was."""
_CLOCKS_APART_S = 3.0
"""By which whole seconds, and the time that a report takes, may put two reports of one run apart."""


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each run in the file, and of a run one for each group of jobs that ran after another
    (`stonewall`). Raises Unreadable."""
    text = text_of(path)
    # With --output-format=normal,json both stand in the file: JSON says more.
    printed = not has_objects(text) and fio_text.recognised(text)
    documents = fio_text.outputs(path, text, notes) if printed else read_documents(path, notes)
    reports = [each for each in documents if each.parts("jobs") or each.parts("client_stats")]
    if not reports:
        raise Unreadable(path, "neither `jobs` nor `client_stats`: not a fio result; leave this file out")
    runs: list[Fields] = []
    for each in reports:
        if runs and _continues(runs[-1], each):
            runs[-1] = each
        else:
            runs.append(each)
    if len(runs) < len(reports):
        which = "one run (--status-interval): the last one is taken"
        if len(runs) > 1:
            which = f"{len(runs)} runs (--status-interval): the last one of each is taken"
        notes.add(path, f"{len(reports)} reports of {which}")
    groups = [group for at, output in enumerate(runs, start=1) for group in _groups(path, output, at, notes)]
    return readable(groups, lambda group: group.measured(path, notes), notes)


def _continues(earlier: Fields, later: Fields) -> bool:
    """Whether two reports are of one run: the same jobs, counted further in as much time as passed between them."""
    before, after = (_rows(each)[0] for each in (earlier, later))
    if [(row.text("jobname"), row.text("groupid")) for row in before] != [
        (row.text("jobname"), row.text("groupid")) for row in after
    ]:
        return False
    if any(
        "job_start" in one and one.number("job_start") != two.number("job_start", 0)
        for one, two in zip(before, after, strict=True)
    ):
        return False
    if any(_counted(one) > _counted(two) for one, two in zip(before, after, strict=True)):
        return False
    stamps_s = [each.number("timestamp", 0) for each in (earlier, later)]
    return not all(stamps_s) or abs(stamps_s[1] - stamps_s[0] - (_spent_s(after) - _spent_s(before))) <= _CLOCKS_APART_S


def _counted(row: Fields) -> float:
    return sum(row.part(name).number("total_ios", 0) + row.part(name).number("io_bytes", 0) for name in _sides(row))


def _spent_s(rows: Sequence[Fields]) -> float:
    """Since fio began, as far as it is known: groups ran one after another."""
    if all("elapsed" in row for row in rows):
        return max(row.number("elapsed") for row in rows)
    groups = groupby(rows, key=lambda row: row.text("groupid"))
    return sum(max(map(_runtime_ms, own)) for _, own in groups) / 1000


def _rows(output: Fields) -> tuple[list[Fields], Fields | None]:
    """The jobs, and fio's own sum of them where they ran on several clients."""
    rows = [*output.parts("client_stats", "jobname"), *output.parts("jobs", "jobname")]
    own = [row for row in rows if row.text("jobname") != _TOGETHER]
    sums = [row for row in rows if row.text("jobname") == _TOGETHER]
    return (own or sums), (sums[0] if sums and own else None)


def _groups(path: Path, output: Fields, run: int, notes: Notes) -> list[_Group]:
    """The jobs that ran together, in the order in which they ran."""
    rows, together = _rows(output)
    groups = [list(own) for _, own in groupby(rows, key=lambda row: row.text("groupid", "0"))]
    shared = output.values.get("global options")
    asked = [asked_of([row.values for row in own], shared) for own in groups]
    if len(groups) > 1 and not _one_after_another(groups, shared):
        groups, asked = [rows], [asked_of([row.values for row in rows], shared)]
    if len(groups) > 1:
        together = None
    starts, remark = _starts(output, groups, asked)
    if remark:
        notes.add(path, remark, at="timestamp")
    return [
        _Group(output, run, own, each, together, start, len(groups))
        for own, each, start in zip(groups, asked, starts, strict=True)
    ]


def _one_after_another(groups: Sequence[Sequence[Fields]], shared: object) -> bool:
    """Whether groups ran so, as `stonewall` makes them; `new_group` alone lets them run at the same time."""
    spans = [_span_ms(group) for group in groups]
    known = [span for span in spans if span is not None]
    if len(known) == len(spans):
        return max(begin for begin, _ in known) >= min(end for _, end in known)
    asked = [group[0].part("job options") for group in groups[1:]]
    waits = ("stonewall", "wait_for_previous", "wait_for")
    shared = shared if isinstance(shared, dict) else {}
    if any(name in shared for name in waits) or not any("new_group" in each.values for each in asked):
        return True
    return any(name in each.values for each in asked for name in waits)


def _starts(output: Fields, groups: Sequence[Sequence[Fields]], asked: Sequence[Asked]) -> tuple[list[int | None], str]:
    """When each group's measured time began, and what is to be said of how that is known. fio says it from 3.36 on;
    before that it stamps when it wrote the report, and groups follow one another up to there."""
    begun_ms = [[row.number("job_start") for row in group if "job_start" in row] for group in groups]
    if all(begun_ms):
        return [round(min(own) * 1e6) + (each.ramp_ns or 0) for own, each in zip(begun_ms, asked, strict=True)], ""
    stamp_ms = output.number("timestamp_ms", 0) or output.number("timestamp", 0) * 1000
    if not stamp_ms:
        return [None] * len(groups), ""
    end_ns, found = round(stamp_ms * 1e6), []
    for group, each in zip(reversed(groups), reversed(asked), strict=True):
        start_ns = end_ns - round(max(map(_runtime_ms, group)) * 1e6)
        found.append(start_ns)
        end_ns = start_ns - (each.ramp_ns or 0)
    return found[::-1], (
        "this fio does not say when jobs began: groups of jobs are taken to have followed one another without a pause, "
        "up to the time of the report"
        if len(groups) > 1
        else ""
    )


@dataclass(frozen=True)
class _Group:
    """Jobs of one run that ran together."""

    output: Fields
    run: int
    rows: Sequence[Fields]
    asked: Asked
    together: Fields | None
    """fio's own sum of clients."""
    start_unix_ns: int | None
    groups: int
    """Of the run."""

    def measured(self, path: Path, notes: Notes) -> Measured:
        rows, asked = self.rows, self.asked
        failed = [row for row in rows if row.number("error", 0)]
        for row in failed:
            notes.add(path, f"job {row.text('jobname')} ended with {_error(row)}", at="error")
        sides = [_Side.of(row, name) for row in rows for name in _sides(row)]
        said = [remark for side in sides for remark in side.remarks]
        if any(side.name == "mixed" and side.stream.ios for side in sides):
            said.append("reads and writes were reported together (unified_rw_reporting): all are shown as reads")
        duration_ns = max((side.runtime_ns for side in sides), default=0)
        if not duration_ns:
            raise Unreadable(path, self._no_time(failed), at="error" if failed else "runtime")
        streams = [
            merged_directions([side.stream for side in sides if (side.name == "write") == (name == "write")])
            for name in ("read", "write")
        ]
        if self.together is not None:
            streams = [
                _merged_by_fio(own, self.together, name) for own, name in zip(streams, ("read", "write"), strict=True)
            ]
        if any(each.latency == "mean" for each in streams) and len(rows) > 1:
            said.append(
                f"{len(rows)} jobs were reported apart and without histograms: no percentile can be had of them "
                "together. Run fio with group_reporting or --output-format=json+"
            )
        skew_ns = _skew_ns(rows)
        said += _apart(rows, duration_ns, skew_ns)
        syncs = [side.stream for row in rows if (side := _Side.of_syncs(row)).stream.ios]
        if syncs:
            said.append(
                "the job flushed its data (fsync, fdatasync): the latency of flushes is shown apart, and first, since "
                "that of writes may be of the page cache alone"
            )
        cpu = self._cpu(duration_ns)
        if not cpu and asked.stack != "kernel" and any("usr_cpu" in row for row in rows):
            said.append(
                "interrupts and the kernel's threads are not in fio's usr_cpu and sys_cpu, so they give no CPU per I/O"
            )
        if asked.pauses:
            said.append("thinktime: the jobs wait between I/Os, so fewer I/Os are outstanding than iodepth says")
        size, ios = (sum(getattr(each, name) for each in streams) for name in ("bytes", "ios"))
        block = block_size_of(asked.settings.get(BLOCK_SIZE), size, ios)
        return Measured(
            path=path,
            program=PROGRAM,
            version=self.output.text("fio version").removeprefix("fio-"),
            part=rows[0].text("jobname") if self.groups > 1 else "",
            run=self.run,
            read=streams[0],
            write=streams[1],
            sync=merged_directions(syncs) if syncs else None,
            duration_ns=duration_ns,
            percentiles=_together_by_fio(rows),
            start_unix_ns=self.start_unix_ns,
            settings=asked.settings | ({BLOCK_SIZE: block} if block is not None else {}),
            workers=asked.workers,
            per_worker=None if asked.pauses else asked.per_worker,
            rate_iops=asked.rate_iops,
            by_chance=asked.by_chance,
            loop="unknown" if "printed" in self.output else asked.loop,
            errors=sum(row.whole("total_err", 0) or 1 for row in failed),
            start_skew_ns=skew_ns,
            warmup_ns=asked.ramp_ns,
            stack=asked.stack,
            driver=asked.engine,
            cpu=cpu,
            notes=tuple(dict.fromkeys(said)),
            counted_in=_counted_in(rows),
        )

    def _no_time(self, failed: Sequence[Fields]) -> str:
        if failed:
            return f"job {failed[0].text('jobname')} ended with {_error(failed[0])}, before it measured anything"
        trims = any(row.part("trim").number("total_ios", 0) for row in self.rows)
        return "it only trims: no read or write" if trims else "no job ran for any time"

    def _cpu(self, duration_ns: int) -> list[CpuTime]:
        """Of fio's own threads, where that is all that an I/O costs, or where the kernel's part is known to be missing:
        the kernel's threads, and interrupts, are in no figure of fio."""
        if self.asked.stack != "kernel" and not self.asked.all_in_its_threads:
            return []
        user_ns = system_ns = 0.0
        for row in self.rows:
            if "usr_cpu" not in row or "sys_cpu" not in row:
                return []
            spent_ms = row.positive("job_runtime", 0) or _runtime_ms(row)
            user_ns += row.positive("usr_cpu") / 100 * spent_ms * 1e6
            system_ns += row.positive("sys_cpu") / 100 * spent_ms * 1e6
        return [
            CpuTime(
                role="initiator",
                layer="process",
                busy_ns=round(user_ns + system_ns),
                user_ns=round(user_ns),
                system_ns=round(system_ns),
                window_ns=duration_ns,
                processors=self.asked.workers,
            )
        ]


def _error(row: Fields) -> str:
    code = row.whole("error")
    words = os.strerror(code) if code < 200 else ""
    return f"error {code} ({words})" if words else f"error {code}"


def _sides(row: Fields) -> list[str]:
    """What counts the job's I/Os once: `unified_rw_reporting=both` adds reads and writes together to both apart."""
    apart = [name for name in ("read", "write") if name in row]
    return apart or [name for name in ("mixed",) if name in row]


def _io_bytes_unit(side: Fields) -> int:
    """Bytes of one of `io_bytes`: fio 3 has KiB apart from it; fio 2 began with KiB and ended with bytes, of which
    `bw`, always in KiB/s, tells which."""
    by_rate_kib = side.positive("bw", 0) * side.positive("runtime", 0) / 1000
    in_bytes = "io_kbytes" in side or (by_rate_kib and side.positive("io_bytes", 0) > _BETWEEN * by_rate_kib)
    return 1 if in_bytes else 1024


def _counted_in(rows: Sequence[Fields]) -> str:
    sides = [side for row in rows for name in _sides(row) if (side := row.part(name)).number("io_bytes", 0)]
    if not sides:
        return ""
    size = "bytes" if _io_bytes_unit(sides[0]) == 1 else "KiB"
    return f"{'ns' if 'lat_ns' in sides[0] or 'clat_ns' in sides[0] else 'µs'} and {size}"


def _together_by_fio(rows: Sequence[Fields]) -> list[tuple[float, int]]:
    """Percentiles of one job's reads and writes together, where fio reported both ways."""
    if len(rows) != 1 or "mixed" not in rows[0] or _sides(rows[0]) == ["mixed"]:
        return []
    return list(_Side.of(rows[0], "mixed").stream.percentiles)


@dataclass(frozen=True)
class _Side:
    """The reads, the writes or the flushes of one job."""

    name: str
    stream: Direction
    runtime_ns: int
    remarks: list[str]

    @classmethod
    def of(cls, row: Fields, name: str) -> _Side:
        side = row.part(name)
        runtime_ns = round(side.positive("runtime") * 1e6)
        ios = side.whole("total_ios", 0) or round(side.positive("iops", 0) * runtime_ns / 1e9)
        if not ios:
            return cls(name, no_direction(), runtime_ns, [])
        unit_ns = 1 if "lat_ns" in side or "clat_ns" in side else 1000
        suffix = "_ns" if unit_ns == 1 else ""
        lat, clat = side.part(f"lat{suffix}"), side.part(f"clat{suffix}")
        size = side.whole("io_bytes") * _io_bytes_unit(side)
        basis = lat if "bins" in lat or "percentile" in lat else clat
        remarks = []
        if basis is clat and ("bins" in clat or "percentile" in clat):
            remarks.append(
                "percentiles are of completion latency (clat), means of total latency (slat + clat): fio keeps "
                "percentiles of the latter only with lat_percentiles=1"
            )
        mean = lat if lat.number("mean", 0) else clat
        stream = _direction(ios, size, mean, basis, unit_ns)
        if stream.latency == "none":
            remarks = ["fio recorded no latency (disable_lat)"]
        return cls(name, stream, runtime_ns, remarks)

    @classmethod
    def of_syncs(cls, row: Fields) -> _Side:
        side = row.part("sync")
        unit_ns = 1 if "lat_ns" in side else 1000
        lat = side.part("lat_ns" if unit_ns == 1 else "lat")
        ios = lat.whole("N", 0) or side.whole("total_ios", 0)
        return cls("sync", _direction(ios, 0, lat, lat, unit_ns) if ios else no_direction(), 0, [])


def _direction(ios: int, size: int, mean: Fields, basis: Fields, unit_ns: int) -> Direction:
    """`mean` has the mean and the extremes, `basis` the distribution."""
    if not mean.number("mean", 0):
        return Direction(ios=ios, bytes=size, latency="none", latency_sum_ns=0, latency_min_ns=0, latency_max_ns=0)
    bins = basis.part("bins")
    counts = sorted(
        (whole(bins.path, value, at=bins.at) * unit_ns, bins.whole(value))
        for value in bins.values
        if bins.number(value)
    )
    own = basis.part("percentile")
    percentiles = [
        (percent, round(own.positive(text) * unit_ns))
        for text in own.values
        # fio 2 fills up with 0.00
        if (percent := number(own.path, text, at=own.at))
    ]
    return Direction(
        ios=ios,
        bytes=size,
        latency="histogram" if counts else "percentiles" if percentiles else "mean",
        latency_sum_ns=round(mean.positive("mean") * unit_ns * ios),
        latency_min_ns=round(mean.positive("min", 0) * unit_ns),
        latency_max_ns=round(mean.positive("max", 0) * unit_ns),
        histogram=Histogram(significant_digits=_DIGITS, counts=counts),
        percentiles=[] if counts else percentiles,
    )


def _merged_by_fio(mine: Direction, together: Fields, name: str) -> Direction:
    """With the percentiles that fio made of all clients' histograms, where their rows have none to add up."""
    if mine.latency != "mean" or name not in together:
        return mine
    theirs = _Side.of(together, name).stream
    if theirs.latency != "percentiles" or theirs.ios != mine.ios:
        return mine
    return mine.model_copy(update={"latency": "percentiles", "percentiles": theirs.percentiles})


def _span_ms(rows: Sequence[Fields]) -> tuple[float, float] | None:
    """When jobs began and ended; fio says it from 3.36 on."""
    if any("job_start" not in row for row in rows):
        return None
    begin = min(row.number("job_start") for row in rows)
    return begin, max(row.number("job_start") + _runtime_ms(row) for row in rows)


def _runtime_ms(row: Fields) -> float:
    return max((row.part(name).positive("runtime", 0) for name in ("read", "write", "mixed")), default=0)


def _skew_ns(rows: Sequence[Fields]) -> int | None:
    """Between the first and the last job that began."""
    if len(rows) == 1:
        return 0
    begun = [row.number("job_start") for row in rows if "job_start" in row]
    return round((max(begun) - min(begun)) * 1e6) if len(begun) == len(rows) else None


def _apart(rows: Sequence[Fields], duration_ns: int, skew_ns: int | None) -> list[str]:
    """Jobs that are added up although they did not run together."""
    runtimes_ms = [ms for row in rows if (ms := _runtime_ms(row))]
    shared_ns = min(runtimes_ms, default=0) * 1e6 - (skew_ns or 0)
    if len(runtimes_ms) < 2 or shared_ns >= _TOGETHER_MIN * duration_ns:
        return []
    return [
        f"job_start, runtime: its {len(runtimes_ms)} jobs ran together for only {max(0.0, shared_ns) / 1e9:.1f} of "
        f"{duration_ns / 1e9:.1f} s: their sum is not a rate that was ever reached"
    ]
