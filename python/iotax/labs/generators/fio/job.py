"""Writes a fio job for a treatment. Pure text, so that any lab can run it.

A worker is a fio job in its own thread and zone, like the engine's workers; streams are groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iotax.study.model import Access, Settings, Volume


@dataclass(frozen=True)
class Target:
    """The target of fio's I/O."""

    engine: str
    """fio's I/O engine."""
    options: tuple[str, ...]
    """Lines that name the file, device or unit."""


@dataclass(frozen=True)
class Group:
    """A stream as fio runs it."""

    access: Access
    workers: int
    first_worker: int


def groups(settings: Settings) -> list[Group]:
    """Streams with their workers: one each, the rest by share, as the engine deals them."""
    accesses, workers = settings.load.accesses(), settings.load.workers
    whole = sum(each.share for each in accesses)
    counts = [1] * len(accesses)
    for _ in range(workers - len(accesses)):
        lacks = [workers * each.share / whole - count for each, count in zip(accesses, counts, strict=True)]
        counts[lacks.index(max(lacks))] += 1
    return [Group(each, count, sum(counts[:at])) for at, (each, count) in enumerate(zip(accesses, counts, strict=True))]


def verifies(settings: Settings) -> bool:
    """Whether fio checks data, which it can only for loads that only read. It writes each block with a checksum
    beforehand and reads it back afterwards; verification ignores the run time, so the measured run does not verify."""
    return settings.load.verify and all(each.read == 100 for each in settings.load.accesses())


def run_job(settings: Settings, target: Target, *, seed: int, cpus: Sequence[int]) -> str:
    """The measured job."""
    load = settings.load
    common = [
        *_common(settings, seed),
        f"ramp_time={load.warmup // 1000}us",
        f"runtime={load.runtime // 1000}us",
        "lat_percentiles=1",
    ]
    if cpus:
        common += [f"cpus_allowed={','.join(map(str, cpus))}", "cpus_allowed_policy=shared"]
    return _job(settings, target, common, [_asked(settings, group) for group in groups(settings)])


def logged_job(
    settings: Settings, target: Target, *, seed: int, offset_bytes: int, step_ms: int, longest_s: int
) -> str:
    """The same load until it is stopped, at most for this time, with a histogram of each interval by the host's clock:
    a window set by others lies within it. Its zones start at `offset_bytes`."""
    logs = ["write_hist_log=h", f"log_hist_msec={step_ms}", "log_unix_epoch=1"]
    common = [*_common(settings, seed), f"runtime={longest_s}s", *logs]
    return _job(settings, target, common, [_asked(settings, group) for group in groups(settings)], offset_bytes)


def _common(settings: Settings, seed: int) -> list[str]:
    load = settings.load
    how = [f"iodepth={load.outstanding}", f"randseed={seed}", "time_based=1", "refill_buffers=1"]
    return how + _reducible(settings.volume)


def _reducible(volume: Volume) -> list[str]:
    """fio's percentages of saved data."""
    options = {"buffer_compress_percentage": volume.compress, "dedupe_percentage": volume.dedupe}
    return [f"{name}={round(100 - 100 / ratio)}" for name, ratio in options.items() if ratio > 1]


def layout_job(settings: Settings, target: Target) -> str:
    """Writes every block once, with a checksum."""
    return _pass(settings, target, ["rw=write", "do_verify=0"])


def check_job(settings: Settings, target: Target) -> str:
    """Reads every block once and fails at the first that is not as it was written."""
    return _pass(settings, target, ["rw=read", "verify_fatal=1"])


def _pass(settings: Settings, target: Target, asked: list[str]) -> str:
    lines = [[*asked, f"bs={group.access.block_size}"] for group in groups(settings)]
    return _job(settings, target, ["iodepth=8", "verify=crc32c"], lines)


def _job(
    settings: Settings, target: Target, common: Sequence[str], each: Sequence[Sequence[str]], offset_bytes: int = 0
) -> str:
    zone_bytes = _zone_bytes(settings)
    lines = ["[global]", "thread=1", "group_reporting=1", "allow_file_create=0", f"ioengine={target.engine}"]
    lines += [*target.options, f"size={zone_bytes}", *common]
    for group, asked in zip(groups(settings), each, strict=True):
        lines += [
            f"[{group.access.name or 'load'}]",
            "new_group",
            f"numjobs={group.workers}",
            f"offset={offset_bytes + group.first_worker * zone_bytes}",
            f"offset_increment={zone_bytes}",
            *asked,
        ]
    return "\n".join(lines) + "\n"


def _asked(settings: Settings, group: Group) -> list[str]:
    load, access = settings.load, group.access
    places = "rand" if access.random else ""
    kind = "read" if access.read == 100 else "write" if access.read == 0 else "rw"
    lines = [f"rw={places}{kind}", f"bs={access.block_size}"]
    if kind == "rw":
        lines.append(f"rwmixread={round(access.read)}")
    if 0 < access.random < 100:
        lines.append(f"percentage_random={round(access.random)}")
    if load.rate_iops is not None:
        lines.append(f"rate_iops={_rates(settings, group)}")
        if load.arrivals == "poisson":
            lines.append("rate_process=poisson")
    return lines


def _rates(settings: Settings, group: Group) -> str:
    """Rates of one worker's reads and writes, which fio paces separately."""
    load, access = settings.load, group.access
    assert load.rate_iops is not None
    whole = sum(each.share for each in load.accesses())
    rate_iops = load.rate_iops * access.share / whole / group.workers
    parts = (rate_iops * access.read / 100, rate_iops * (1 - access.read / 100))
    return ",".join(str(max(1, round(part))) if part else "" for part in parts)


def _zone_bytes(settings: Settings) -> int:
    """Size of each worker's zone; a multiple of every block size."""
    largest = max(each.block_size for each in settings.load.accesses())
    return settings.working_set_bytes // settings.load.workers // largest * largest
