"""What SPDK's bdevperf answers to `perform_tests` (bdevperf.py, JSON): latencies in µs, means only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iotax.imports.json_text import read_documents
from iotax.imports.measured import BLOCK_SIZE, OUTSTANDING, WORKERS, Measured, reads_and_writes
from iotax.imports.problems import Notes, Unreadable
from iotax.merged import merged_directions
from iotax.trial import Direction, LevelValue

PROGRAM = "SPDK bdevperf"


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result: all jobs together. Raises Unreadable."""
    jobs = next((each["results"] for each in read_documents(path, notes) if each.get("results")), None)
    if not isinstance(jobs, list):
        raise Unreadable(path, "no results of bdevperf: keep what `bdevperf.py perform_tests` prints", at="results")
    try:
        streams = [_direction(job) for job in jobs]
        seconds = max(float(job["runtime"]) for job in jobs)
        failed = sum(round(job.get("io_failed", 0) + job.get("io_timeout", 0)) for job in jobs)
        settings = _settings(jobs)
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(path, f"not as bdevperf writes it ({error})", at="results") from None
    reads, writes, said = reads_and_writes(merged_directions(streams), str(jobs[0].get("workload", "read")))
    depth = settings.get(OUTSTANDING)
    return [
        Measured(
            path=path,
            program=PROGRAM,
            version="",
            read=reads,
            write=writes,
            duration_ns=round(seconds * 1e9),
            settings=settings,
            workers=len(jobs),
            per_worker=depth if isinstance(depth, int) else None,
            loop="closed",
            errors=failed,
            stack="user",
            notes=said,
        )
    ]


def _direction(job: dict[str, Any]) -> Direction:
    ios = round(job["iops"] * job["runtime"])
    timed = "avg_latency_us" in job
    return Direction(
        ios=ios,
        bytes=round(job["mibps"] * (1 << 20) * job["runtime"]),
        latency="mean" if timed else "none",
        latency_sum_ns=round(job.get("avg_latency_us", 0) * 1000 * ios),
        latency_min_ns=round(job.get("min_latency_us", 0) * 1000),
        latency_max_ns=round(job.get("max_latency_us", 0) * 1000),
    )


def _settings(jobs: list[dict[str, Any]]) -> dict[str, LevelValue]:
    found: dict[str, LevelValue] = {WORKERS: len(jobs)}
    for field, name in (("io_size", BLOCK_SIZE), ("queue_depth", OUTSTANDING), ("workload", "rw")):
        values = {job[field] for job in jobs if field in job}
        if len(values) == 1:
            found[name] = values.pop()
    shares = {job["percentage"] for job in jobs if "percentage" in job}
    if len(shares) == 1 and found.get("rw") in ("rw", "randrw"):
        found["rwmixread"] = shares.pop()
    return found
