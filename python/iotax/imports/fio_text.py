"""What fio prints by default (`--output-format=normal`), of fio 2 and 3, as the JSON that it would have written.

Rates are printed with three or four digits: the counts of `issued rwts` and the run time are exact, and give them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from iotax.imports.fio_options import size_of
from iotax.imports.json_text import Fields
from iotax.imports.problems import Notes, Unreadable, number, whole

_CLIENT = re.compile(r"^<[^>]*>\s?")
_HEAD = re.compile(
    r"^(?P<name>.+?): \(g=(?P<group>\d{1,9})\): rw=(?P<rw>[^,\s]+), (?P<bs>bs=.*?,\s)?\s*"
    r"ioengine=(?P<ioengine>[^,\s]+), iodepth=(?P<iodepth>\d{1,9})"
)
_VERSION = re.compile(r"^fio-(?P<version>\d\S*)\s*$")
_JOB = re.compile(
    r"^(?P<name>.+?): \(groupid=(?P<group>\d{1,9}), jobs=(?P<jobs>\d{1,9})\): err=\s*(?P<error>\d{1,9})"
    r"(?:\s*\((?P<words>.*?)\))?: pid=\d+:\s*(?P<stamp>.*?)\s*$"
)
_SIDE = re.compile(r"^\s+(?P<side>read|write|trim|mixed)\s*:\s*(?P<figures>.*\b(?:IOPS|iops)=.*)$")
_LATENCY = re.compile(r"^\s+(?P<kind>slat|clat|lat|sync)\s*\((?P<unit>[num]sec)\)\s*:\s*(?P<figures>min=.*)$")
_PERCENTILES = re.compile(r"^\s+(?P<kind>slat|clat|lat|sync) percentiles \((?P<unit>[num]sec)\):")
_PERCENTILE = re.compile(r"(?P<percent>[\d.]+)th=\[\s*>?=?(?P<value>[\d.]+)\s*\]")
_ISSUED = re.compile(r"^\s+issued(?: rwts?| rwt| ddirs)?\s*:\s*total=(?P<counts>\S+)(?: short=(?P<short>\S+))?")
_SYNC = re.compile(r"^\s+f(?:data)?sync\S*:\s*$")
_CPU = re.compile(r"^\s+cpu\s*:\s*usr=(?P<usr>[\d.]+)%, sys=(?P<sys>[\d.]+)%")
_FAILED = re.compile(r"^fio: .*\b(?:err|error)=.*$", re.MULTILINE)
_NS = {"nsec": 1, "usec": 1000, "msec": 1_000_000}
_PRINTED = 0.01
"""Share by which a printed figure may be off."""
_DECIMAL = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


def recognised(text: str) -> bool:
    """Whether it holds a result, or the beginning of a run, as fio prints it."""
    return any(_JOB.match(line) or _HEAD.match(line) for line in map(_plain, text.splitlines()))


def outputs(path: Path, text: str, notes: Notes) -> list[Fields]:
    """Every report in the text. Raises Unreadable if there is none."""
    runs = list(_runs(path, text))
    found = [Fields(path, report) for run in runs for report in run.reports() if report["jobs"]]
    if not found:
        said = _FAILED.search(text)
        raise Unreadable(path, f"fio ended without a result: {said[0].strip()[:200]}" if said else "no result of fio")
    if any("timestamp" in each for each in found):
        notes.add(path, "the times that fio prints have no zone: taken as UTC")
    return found


@dataclass
class _Run:
    """One call of fio: what it announced, and its reports."""

    version: str = ""
    heads: dict[str, dict[str, str]] = field(default_factory=dict)
    """Job → options."""
    groups: dict[int, set[str]] = field(default_factory=dict)
    """Group → the jobs announced for it."""
    jobs: list[dict[str, Any]] = field(default_factory=list)

    def reports(self) -> Iterator[dict[str, Any]]:
        """One, or with --status-interval several, in each of which a job stands once."""
        report: list[dict[str, Any]] = []
        seen: set[tuple[str, int]] = set()
        for job in self.jobs:
            key = (job["line"], job["groupid"])
            if key in seen:
                yield self._report(report)
                report, seen = [], set()
            report.append(job)
            seen.add(key)
        yield self._report(report)

    def _report(self, jobs: list[dict[str, Any]]) -> dict[str, Any]:
        for job in jobs:
            announced = self.groups.get(job["groupid"], set())
            alone = len(announced) <= sum(each["groupid"] == job["groupid"] for each in jobs)
            if job["jobname"] in self.heads and alone:
                job["job options"] = self.heads[job["jobname"]] | job["members"]
            _complete(job)
        stamps = [job["stamp_s"] for job in jobs if job["stamp_s"] is not None]
        made = {"fio version": f"fio-{self.version}", "jobs": jobs, "printed": True}
        return made | ({"timestamp": max(stamps)} if stamps else {})


def _runs(path: Path, text: str) -> Iterator[_Run]:
    """What stands in the file from one beginning of fio to the next."""
    run = _Run()
    job: dict[str, Any] = {}
    side: dict[str, Any] = {}
    percentiles: tuple[dict[str, Any], int] | None = None
    for line, printed in enumerate(text.splitlines(), start=1):
        content = _plain(printed)
        if (head := _HEAD.match(content)) or _VERSION.match(content):
            if run.jobs:
                yield run
                run, job, side, percentiles = _Run(), {}, {}, None
            if head:
                run.heads[head["name"]] = _options(head)
                run.groups.setdefault(int(head["group"]), set()).add(head["name"])
            elif found := _VERSION.match(content):
                run.version = found["version"]
        elif found := _JOB.match(content):
            job, side, percentiles = _job(printed, found), {}, None
            run.jobs.append(job)
        elif not job:
            continue
        elif found := _SIDE.match(content):
            side = _side(path, line, found["figures"])
            # With unified_rw_reporting=both, what is mixed stands as a second `read`.
            job["mixed" if found["side"] in job else found["side"]] = side
        elif _SYNC.match(content):
            side = job["sync"] = {}
        elif found := _LATENCY.match(content):
            own = side.setdefault(f"{'lat' if found['kind'] == 'sync' else found['kind']}_ns", {})
            own |= _latency(path, line, found["figures"], _NS[found["unit"]])
        elif found := _PERCENTILES.match(content):
            own = side.setdefault(f"{'lat' if found['kind'] == 'sync' else found['kind']}_ns", {})
            percentiles = own.setdefault("percentile", {}), _NS[found["unit"]]
        elif percentiles is not None and content.lstrip().startswith("|"):
            for each in _PERCENTILE.finditer(content):
                percentiles[0][each["percent"]] = number(path, each["value"], line=line) * percentiles[1]
        elif found := _ISSUED.match(content):
            for key, counts in (("issued", found["counts"]), ("short", found["short"] or "")):
                job[key] = [whole(path, count, line=line, at="issued") for count in re.findall(r"\d+", counts)]
        elif found := _CPU.match(content):
            job |= {"usr_cpu": number(path, found["usr"], line=line), "sys_cpu": number(path, found["sys"], line=line)}
    yield run


def _plain(line: str) -> str:
    """Without the host that the output of client mode begins with."""
    return _CLIENT.sub("", line)


def _options(head: re.Match[str]) -> dict[str, str]:
    found = {name: head[name] for name in ("rw", "ioengine", "iodepth")}
    ranges = re.findall(r"([\d.]+[KMG]?i?B?)-([\d.]+[KMG]?i?B?)", head["bs"] or "")[:2]
    if ranges and all(low == high for low, high in ranges):
        return found | {"bs": ",".join(str(_bytes_of(low)) for low, _ in ranges)}
    return found | (
        {"bsrange": ",".join(f"{_bytes_of(low)}-{_bytes_of(high)}" for low, high in ranges)} if ranges else {}
    )


def _bytes_of(text: str) -> int:
    """fio 3 writes `4096B` and `4KiB`, fio 2 `4K`; all are binary."""
    return size_of(text.replace("iB", "").replace("i", "")) or 0


def _job(printed: str, found: re.Match[str]) -> dict[str, Any]:
    client = _CLIENT.match(printed)
    return {
        "jobname": found["name"],
        "line": f"{client[0] if client else ''}{found['name']}",
        "groupid": int(found["group"]),
        "error": int(found["error"]),
        "members": {"numjobs": found["jobs"], "group_reporting": ""},
        "stamp_s": _stamp_s(found["stamp"]),
    }


def _stamp_s(text: str) -> float | None:
    try:
        return datetime.strptime(text, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _side(path: Path, line: int, figures: str) -> dict[str, Any]:
    """`IOPS=16.1k, BW=62.9MiB/s (66.0MB/s)(3777MiB/60003msec)`, or of fio 2 `io=1023.6MB, bw=17463KB/s, iops=4365,
    runt= 60022msec`."""
    rate = re.search(r"iops=\s*([\d.]+)([kMG]?)", figures, re.IGNORECASE)
    moved = re.search(r"\(([\d.]+)([KMGTP]?)i?B/(\d+)msec\)", figures)
    if moved is None:
        older = re.search(r"io=\s*([\d.]+)([KMGTP]?)i?B", figures), re.search(r"runt=\s*(\d+)\s*msec", figures)
        moved = None if older[0] is None or older[1] is None else (*older[0].group(0, 1, 2), older[1][1])
    else:
        moved = moved.group(0, 1, 2, 3)
    if rate is None or moved is None:
        raise Unreadable(path, f"found {figures.strip()[:80]!r} where a rate and a time are expected", line=line)
    return {
        "iops": number(path, rate[1], line=line, at="IOPS") * _DECIMAL[rate[2]],
        "io_bytes": round(number(path, moved[1], line=line) * _BINARY[moved[2]]),
        "io_kbytes": 0,
        "runtime": int(number(path, moved[3], line=line)),
    }


def _latency(path: Path, line: int, figures: str, unit_ns: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, digits, letter in re.findall(r"(min|max|avg)=\s*([\d.]+)([kMG]?)", figures):
        value = number(path, digits, line=line, at=name) * _DECIMAL[letter] * unit_ns
        found["mean" if name == "avg" else name] = value
    return found


def _complete(job: dict[str, Any]) -> None:
    """With the exact counts, and the bytes where all blocks are alike."""
    issued = job.get("issued", [])
    blocks = [size_of(text) for text in job.get("job options", {}).get("bs", "").split(",") if text]
    for at, name in enumerate(("read", "write")):
        if name in job and at < len(issued) and "mixed" not in job:
            job[name]["total_ios"] = issued[at]
            size = blocks[min(at, len(blocks) - 1)] if blocks else None
            # What was printed has three digits.
            if size and abs(issued[at] * size - job[name]["io_bytes"]) < _PRINTED * job[name]["io_bytes"]:
                job[name]["io_bytes"] = issued[at] * size
    if "sync" in job and "lat_ns" in job["sync"]:
        # `total` counts fsync only. fio adds an fdatasync or a sync_file_range one or two places past the end of its
        # totals, which is where its short reads and writes are (stat.c: total_io_u, short_io_u).
        counts = [*issued[3:4], *job.get("short", [])[:2]]
        job["sync"]["lat_ns"]["N"] = next(filter(None, counts), 0)
