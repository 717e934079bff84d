"""pgbench as a generator: its command line, and its log of a window. The vm lab runs it in a guest, beside the database
that it fills; the loopback lab does not run it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from iotax.imports.pgbench import Transaction, grouped, transaction_of
from iotax.labs.base import TrialFailed
from iotax.labs.generators.base import Elsewhere, said_of
from iotax.records import CpuUse
from iotax.study.database import memory_bytes, size_bytes, wal_bytes
from iotax.study.model import Settings
from iotax.trial import (
    Checks,
    Database,
    Direction,
    Histogram,
    Latency,
    Open,
    Outstanding,
    Second,
    TrialResult,
    Window,
    percentile,
)

_DIGITS = 3
_SAMPLE_US = 500_000
_BUFFERS_SHARE = 4
"""A quarter of its memory for the database's own buffers, as PostgreSQL's manual begins (shared_buffers)."""


class PgBench(Elsewhere):
    """Its clients share its threads."""

    name = "pgbench"
    foreign = True
    database = True
    elsewhere = "the database runs in guests or on hosts; say `lab: vm` or `lab: {hosts: …}`"


PGBENCH = PgBench()


@dataclass(frozen=True)
class Measured:
    """A window as the guest saw it; times in µs since 1970, by its own clock."""

    begin_us: int
    end_us: int
    log: Sequence[str]
    """pgbench's log, including transactions outside the window."""
    version: str
    reads: int
    writes: int
    read_bytes: int
    write_bytes: int
    checkpoints: int


def measured(lines: Sequence[str], begin_us: int, end_us: int, used: Sequence[int]) -> Measured:
    """A window, from the script's output about a database at its end. `used`: reads, bytes read, writes, bytes written.
    Raises TrialFailed."""
    versions, checkpoints = said_of(lines, "VERSION"), said_of(lines, "CHECKPOINTS")
    if not versions or not checkpoints:
        raise TrialFailed("the database did not say what it measured")
    reads, read_bytes, writes, write_bytes = used
    return Measured(
        begin_us=begin_us,
        end_us=end_us,
        log=said_of(lines, "LOG"),
        version=versions[0].removeprefix("pgbench "),
        reads=reads,
        writes=writes,
        read_bytes=read_bytes,
        write_bytes=write_bytes,
        checkpoints=int(checkpoints[0]),
    )


def server_options(settings: Settings) -> str:
    """PostgreSQL's settings: everything durable; checkpoints are not timed, since a window is too short for that."""
    buffers = memory_bytes(settings.load, settings.volume) // _BUFFERS_SHARE >> 10
    said = {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "checkpoint_timeout": "1d",
        "min_wal_size": "8MB",
        "max_wal_size": f"{wal_bytes(settings.load, settings.volume) >> 20}MB",
        "shared_buffers": f"{buffers}kB",
        "max_connections": settings.load.workers + 10,
    }
    return " ".join(f"-c {name}={value}" for name, value in said.items())


def client_options(settings: Settings, seed: int) -> str:
    """pgbench's options, without those about clients."""
    load = settings.load
    options = f"-M prepared -j {load.threads} --random-seed={seed & 0xFFFF_FFFF}"
    return options if load.rate_iops is None else f"{options} -R {load.rate_iops}"


def result_of(measured: Measured, settings: Settings, *, endpoint: str, cpu: CpuUse, cpu_window_ns: int) -> TrialResult:
    """Raises TrialFailed if the window holds no transaction, no checkpoint, or one that failed."""
    begin_us, end_us = measured.begin_us, measured.end_us
    everything = _parsed(measured.log)
    within = [each for each in everything if begin_us <= each.ended_us < end_us]
    if any(each.failed for each in within):
        raise TrialFailed("transactions failed within the measured window")
    if not within:
        raise TrialFailed("no transaction ended within the measured window")
    if not measured.checkpoints:
        raise TrialFailed("the database made no checkpoint")
    duration_ns = (end_us - begin_us) * 1000
    latencies = [each.latency_us or 0 for each in within]
    load = settings.load
    held = service = None
    if load.rate_iops is not None:
        offered = sum(begin_us <= each.ended_us - (each.latency_us or 0) < end_us for each in everything)
        held = Open(
            rate_iops=load.rate_iops, arrivals="poisson", offered=offered, achieved=len(within) / max(1, offered)
        )
        service = _latency([(each.latency_us or 0) - (each.lag_us or 0) for each in within])
    taken = _latency(latencies)
    return TrialResult(
        generator="pgbench",
        engine_version=measured.version,
        driver="PostgreSQL",
        endpoint=endpoint,
        window=Window(start_unix_ns=begin_us * 1000, start_ns=0, duration_ns=duration_ns),
        read=Direction(
            ios=len(within),
            bytes=0,
            latency_sum_ns=taken.latency_sum_ns,
            latency_min_ns=taken.latency_min_ns,
            latency_max_ns=taken.latency_max_ns,
            histogram=taken.histogram,
            service=service,
        ),
        write=Direction(ios=0, bytes=0, latency_sum_ns=0, latency_min_ns=0, latency_max_ns=0),
        open=held,
        cpu=cpu,
        series=_series(within, begin_us, end_us),
        # By Little's law: pgbench does not sample the number of transactions in flight.
        outstanding=Outstanding(workers=load.workers, per_worker=1, mean=taken.latency_sum_ns / duration_ns),
        checks=Checks(cpu_window_ns=cpu_window_ns, clock="pgbench"),
        database=Database(
            size_bytes=size_bytes(load, settings.volume),
            memory_bytes=memory_bytes(load, settings.volume),
            checkpoints=measured.checkpoints,
            reads=measured.reads,
            writes=measured.writes,
            read_bytes=measured.read_bytes,
            write_bytes=measured.write_bytes,
        ),
    )


def _parsed(log: Iterable[str]) -> list[Transaction]:
    """Transactions that were not skipped."""
    try:
        found = [transaction_of(line.encode()) for line in log]
    except ValueError as error:
        raise TrialFailed(f"pgbench's log cannot be read: {error}") from error
    return [each for each in found if each.failed or each.latency_us is not None]


def _latency(values_us: Sequence[int]) -> Latency:
    return Latency(
        latency_sum_ns=sum(values_us) * 1000,
        latency_min_ns=min(values_us) * 1000,
        latency_max_ns=max(values_us) * 1000,
        histogram=_histogram(values_us),
    )


def _histogram(values_us: Iterable[int]) -> Histogram:
    counts: dict[int, int] = {}
    for value in values_us:
        counts[value] = counts.get(value, 0) + 1
    return Histogram(
        significant_digits=_DIGITS, counts=[(value * 1000, count) for value, count in sorted(grouped(counts).items())]
    )


def _series(within: Sequence[Transaction], begin_us: int, end_us: int) -> list[Second]:
    """Counts by half seconds; the last interval may be shorter."""
    found = []
    for start_us in range(begin_us, end_us, _SAMPLE_US):
        until_us = min(start_us + _SAMPLE_US, end_us)
        own = [each.latency_us or 0 for each in within if start_us <= each.ended_us < until_us]
        histogram = _histogram(own)
        found.append(
            Second(
                at_ns=(until_us - begin_us) * 1000,
                duration_ns=(until_us - start_us) * 1000,
                reads=len(own),
                writes=0,
                read_bytes=0,
                write_bytes=0,
                latency_p50_ns=round(percentile(50, histogram)) if own else None,
                latency_p99_ns=round(percentile(99, histogram)) if own else None,
                latency_max_ns=max(own) * 1000 if own else None,
            )
        )
    return found
