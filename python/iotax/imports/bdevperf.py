"""What SPDK's bdevperf answers to `perform_tests` (bdevperf.py, JSON): latencies in µs, means only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from iotax.imports.json_text import Fields, read_documents
from iotax.imports.measured import BLOCK_SIZE, OUTSTANDING, WORKERS, Measured, readable, reads_and_writes
from iotax.imports.problems import Notes, Unreadable, level_of
from iotax.merged import merged_directions
from iotax.trial import Direction, LevelValue

PROGRAM = "SPDK bdevperf"


def read(path: Path, notes: Notes) -> list[Measured]:
    """One result for each answer in the file: all of its jobs together. Raises Unreadable."""
    runs = [jobs for each in read_documents(path, notes) if (jobs := each.parts("results", "job"))]
    if not runs:
        raise Unreadable(path, "no results of bdevperf: keep what `bdevperf.py perform_tests` prints", at="results")
    return readable(enumerate(runs, start=1), lambda each: _run(path, *each), notes)


def _run(path: Path, run: int, jobs: Sequence[Fields]) -> Measured:
    reads, writes, said = reads_and_writes(
        merged_directions([_direction(job) for job in jobs]), jobs[0].text("workload", "read")
    )
    settings = _settings(jobs)
    depth = settings.get(OUTSTANDING)
    return Measured(
        path=path,
        program=PROGRAM,
        version="",
        run=run,
        read=reads,
        write=writes,
        duration_ns=round(max(job.positive("runtime") for job in jobs) * 1e9),
        settings=settings,
        workers=len(jobs),
        per_worker=depth if isinstance(depth, int) else None,
        loop="closed",
        errors=sum(round(job.positive("io_failed", 0) + job.positive("io_timeout", 0)) for job in jobs),
        stack="user",
        notes=said,
    )


def _direction(job: Fields) -> Direction:
    ios = round(job.positive("iops") * job.positive("runtime"))
    timed = "avg_latency_us" in job
    return Direction(
        ios=ios,
        bytes=round(job.positive("mibps") * (1 << 20) * job.positive("runtime")),
        latency="mean" if timed else "none",
        latency_sum_ns=round(job.positive("avg_latency_us", 0) * 1000 * ios),
        latency_min_ns=round(job.positive("min_latency_us", 0) * 1000),
        latency_max_ns=round(job.positive("max_latency_us", 0) * 1000),
    )


def _settings(jobs: Sequence[Fields]) -> dict[str, LevelValue]:
    found: dict[str, LevelValue] = {WORKERS: len(jobs)}
    for field, name in (("io_size", BLOCK_SIZE), ("queue_depth", OUTSTANDING), ("workload", "rw")):
        values = {job.text(field) for job in jobs if field in job}
        if len(values) == 1:
            found[name] = level_of(values.pop())
    shares = {job.text("percentage") for job in jobs if "percentage" in job}
    if len(shares) == 1 and found.get("rw") in ("rw", "randrw"):
        found["rwmixread"] = level_of(shares.pop())
    return found
