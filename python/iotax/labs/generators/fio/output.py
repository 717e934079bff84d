"""Converts fio's JSON (`--output-format=json+`) into a result in the common form.

fio's latency is `lat`, from the submission of an I/O to its completion, even in an open loop: it has no intended start.
Its bins are 1/64 of a power of two wide and named by their middle, which is within 1 % of their contents.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from iotax.labs.base import TrialFailed
from iotax.labs.generators.fio.job import groups
from iotax.merged import merged_directions
from iotax.records import CpuUse
from iotax.study.model import Settings
from iotax.trial import (
    Checks,
    Direction,
    Histogram,
    Open,
    Outstanding,
    StreamResult,
    TrialResult,
    Verify,
    Window,
)

_SIGNIFICANT_DIGITS = 2
_SECTOR_BYTES = 512


def read_output(text: str) -> dict[str, Any]:
    """The JSON, without fio's messages before it. Raises TrialFailed."""
    begin = text.find("{")
    try:
        read = json.loads(text[begin:]) if begin >= 0 else None
    except ValueError:
        read = None
    if not isinstance(read, dict) or not read.get("jobs"):
        raise TrialFailed("fio ended without its JSON", text[-2000:])
    return read


def result_of(
    output: dict[str, Any],
    settings: Settings,
    *,
    engine: str,
    endpoint: str,
    cpu: CpuUse,
    cpu_window_ns: int,
    checked_bytes: int | None,
    started_unix_ns: int,
) -> TrialResult:
    """The result of a `run_job`. Raises TrialFailed if fio had errors or did nothing."""
    raise_errors(output)
    jobs = output["jobs"]
    return result_from(
        [
            (_direction(job["read"], group.access.block_size), _direction(job["write"], group.access.block_size))
            for job, group in zip(jobs, groups(settings), strict=True)
        ],
        settings,
        version=str(output["fio version"]),
        engine=engine,
        endpoint=endpoint,
        cpu=cpu,
        cpu_window_ns=cpu_window_ns,
        checked_bytes=checked_bytes,
        window=Window(
            start_unix_ns=started_unix_ns,
            start_ns=0,
            duration_ns=max(job[side]["runtime"] for job in jobs for side in ("read", "write")) * 1_000_000,
        ),
    )


def raise_errors(output: dict[str, Any]) -> None:
    """Raises TrialFailed if a job met one."""
    if failed := [job for job in output["jobs"] if job.get("error")]:
        raise TrialFailed(f"fio: error {failed[0]['error']} in job {failed[0]['jobname']}")


def result_from(
    parts: Sequence[tuple[Direction, Direction]],
    settings: Settings,
    *,
    version: str,
    engine: str,
    endpoint: str,
    cpu: CpuUse,
    cpu_window_ns: int,
    checked_bytes: int | None,
    window: Window,
) -> TrialResult:
    """Reads and writes of each stream. Raises TrialFailed if nothing was done."""
    load, duration_ns = settings.load, window.duration_ns
    reads, writes = [one for one, _ in parts], [other for _, other in parts]
    read, write = merged_directions(reads), merged_directions(writes)
    ios = read.ios + write.ios
    if not ios:
        raise TrialFailed("no I/O completed within the measured window")
    held = None
    if load.rate_iops is not None:
        offered = round(load.rate_iops * duration_ns / 1e9)
        held = Open(
            rate_iops=load.rate_iops,
            arrivals=load.arrivals,
            offered=offered,
            achieved=ios / max(1, offered),
            offered_sd=math.sqrt(offered) if load.arrivals == "poisson" else 0.0,
        )
    streams = []
    for group, one, other in zip(groups(settings), reads, writes, strict=True):
        access = group.access
        streams.append(
            StreamResult(
                name=access.name,
                workers=group.workers,
                block_size_bytes=access.block_size,
                read_percent=access.read,
                random_percent=access.random,
                read=one,
                write=other,
            )
        )
    verify = None
    if checked_bytes is not None:
        verify = Verify(checked_blocks=checked_bytes // _SECTOR_BYTES, never_written_blocks=0, wrong_blocks=0)
    # fio's threads share processors and wait for each other: only of a single one does waiting tell of others.
    waited = cpu.initiator.run_queue_wait_ns if cpu.initiator and load.workers == 1 else None
    return TrialResult(
        generator="fio",
        engine_version=version,
        driver=engine,
        endpoint=endpoint,
        window=window,
        read=read,
        write=write,
        streams=streams if load.streams else [],
        open=held,
        cpu=cpu,
        # fio samples no number in flight: by Little's law.
        outstanding=Outstanding(
            workers=load.workers,
            per_worker=load.outstanding,
            mean=(read.latency_sum_ns + write.latency_sum_ns) / duration_ns,
        ),
        verify=verify,
        checks=Checks(
            cpu_window_ns=cpu_window_ns,
            run_queue_wait=None if waited is None else waited / duration_ns,
            clock="fio",
        ),
    )


def _direction(side: dict[str, Any], block_size_bytes: int) -> Direction:
    latency = side["lat_ns"]
    counts = sorted((int(value), int(count)) for value, count in latency.get("bins", {}).items() if count)
    ios = sum(count for _, count in counts)
    # With `group_reporting` the ramp's I/Os are in no histogram; `total_ios` and `io_bytes` have some, unequally many.
    return Direction(
        ios=ios,
        bytes=ios * block_size_bytes,
        latency_sum_ns=round(latency["mean"] * ios),
        latency_min_ns=int(latency["min"]) if ios else 0,
        latency_max_ns=int(latency["max"]) if ios else 0,
        histogram=Histogram(significant_digits=_SIGNIFICANT_DIGITS, counts=counts),
    )
