"""Files in the formats of other programs, written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BINS = {"100000": 600, "200000": 300, "400000": 90, "1600000": 10}
"""ns → count, for 1,000 I/Os: p50 100 µs, p99 400 µs, p99.9 1.6 ms."""


def fio_side(ios: int = 1000, *, bins: dict[str, int] | None = None, runtime_ms: int = 1000, **more: Any) -> dict:
    latency = {"min": 90_000, "max": 1_650_000, "mean": 180_000.5, "stddev": 1.0, "N": ios}
    percentile = {"50.000000": 100_000, "99.000000": 400_000, "99.900000": 1_600_000}
    clat = latency | {"percentile": percentile} | ({"bins": bins} if bins else {})
    side = {
        "io_bytes": ios * 4096,
        "io_kbytes": ios * 4,
        "iops": ios * 1000 / runtime_ms,
        "runtime": runtime_ms,
        "total_ios": ios,
        "lat_ns": latency,
        "clat_ns": clat,
    }
    return side | more


IDLE = {"io_bytes": 0, "io_kbytes": 0, "iops": 0.0, "runtime": 0, "total_ios": 0, "lat_ns": {}, "clat_ns": {}}


def fio_job(name: str = "job", *, options: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    asked = {"rw": "randread", "bs": "4k", "ioengine": "libaio", "iodepth": "8"} | (options or {})
    whole = {
        "jobname": name,
        "groupid": 0,
        "error": 0,
        "job options": asked,
        "read": fio_side(),
        "write": IDLE,
        "job_runtime": 1000,
        "usr_cpu": 10.0,
        "sys_cpu": 20.0,
    }
    return whole | more


def fio_output(*jobs: dict[str, Any], version: str = "3.36", **more: Any) -> str:
    head = {"fio version": f"fio-{version}", "timestamp_ms": 1_700_000_000_000, "time": "Tue", "global options": {}}
    return json.dumps({**head, "jobs": list(jobs or [fio_job()]), **more}, indent=2)


def fio_file(path: Path, *jobs: dict[str, Any], **more: Any) -> Path:
    path.write_text(fio_output(*jobs, **more))
    return path


def fio_campaign(folder: Path, *, bins: bool = True) -> Path:
    """Two protocols with three replicates: iscsi has 1,000, 1,010 and 1,020 IOPS, nfs twice as many."""
    folder.mkdir(exist_ok=True)
    for protocol, factor in (("iscsi", 1), ("nfs", 2)):
        for replicate in (1, 2, 3):
            counts = {key: (count + (10 if key == "100000" else 0) * (replicate - 1)) * factor
                      for key, count in BINS.items()}  # fmt: skip
            side = fio_side(sum(counts.values()), bins=counts if bins else None)
            path = fio_file(folder / f"{protocol}-4k-r{replicate}.json", fio_job(read=side))
            text = json.loads(path.read_text()) | {"timestamp_ms": 1_700_000_000_000 + replicate * 10_000}
            path.write_text(json.dumps(text))
    return folder
