"""Several hosts' results of one window as one: counts and histograms are added, percentiles never averaged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from pydantic import Field

from iotax.labs.hosts.clock import Offset
from iotax.merged import merged_directions, merged_gaps, merged_latencies
from iotax.records import CpuRole, CpuTime, CpuUse, Record
from iotax.records.cpu import ProcessCpu, Role
from iotax.records.interruptions import Counts
from iotax.trial import (
    Arrived,
    Checks,
    Client,
    CpuSecond,
    Database,
    Gaps,
    Open,
    Outstanding,
    Second,
    StreamResult,
    TrialResult,
    Verify,
)
from iotax.units import format_size, show_share


@dataclass(frozen=True)
class Part:
    """The measurements of one host."""

    host: str
    offset: Offset
    result: TrialResult
    pace: float | None = None
    """Pace of its clock relative to ours; None if it is the same."""

    @property
    def started_ns(self) -> int:
        """By our clock."""
        return self.result.window.start_unix_ns - self.offset.ahead_ns


def merged(parts: Sequence[Part], cpu: CpuUse) -> TrialResult:
    """All hosts together, from the start of the first; `cpu` is theirs, host by host."""
    results = [part.result for part in parts]
    first = min(parts, key=lambda part: part.started_ns)
    last_ns = max(part.started_ns for part in parts)
    one = first.result
    syncs = [each.sync for each in results if each.sync is not None]
    return one.model_copy(
        update={
            "endpoint": " ".join(dict.fromkeys(each.endpoint for each in results)),
            "window": one.window.model_copy(update={"start_unix_ns": first.started_ns}),
            "read": merged_directions([each.read for each in results]),
            "write": merged_directions([each.write for each in results]),
            "sync": merged_directions(syncs) if syncs else None,
            # Percentiles of several hosts do not add up.
            "percentiles": one.percentiles if len(parts) == 1 else [],
            "streams": [_parts(each) for each in zip(*(each.streams for each in results), strict=True)],
            "open": _open([each.open for each in results if each.open is not None]),
            "cpu": cpu,
            "series": _series(results),
            # Each host has measured one slice, the whole window.
            "slices": (),
            "outstanding": Outstanding(
                workers=sum(each.outstanding.workers or 0 for each in results),
                per_worker=one.outstanding.per_worker,
                mean=sum(each.outstanding.mean for each in results),
            ),
            "gaps": _gaps(parts, first.started_ns),
            "counted": _counted(parts),
            "verify": _verify([each.verify for each in results if each.verify is not None]),
            "database": _database([each.database for each in results if each.database is not None]),
            "checks": _checks([each.checks for each in results], last_ns - first.started_ns),
            "clients": tuple(_client(part, first.started_ns) for part in parts),
        }
    )


def _client(part: Part, first_ns: int) -> Client:
    result = part.result
    return Client(
        host=part.host,
        started_after_ns=part.started_ns - first_ns,
        clock_error_ns=part.offset.error_ns,
        duration_ns=result.window.duration_ns,
        ios=result.ios,
        bytes=result.read.bytes + result.write.bytes,
        latency_sum_ns=result.read.latency_sum_ns + result.write.latency_sum_ns,
        latency_p50_ns=result.latency_ns(50) if result.ios else None,
        latency_p99_ns=result.latency_ns(99) if result.ios else None,
        longest_gap_ns=None if result.gaps is None else result.gaps.longest_ns,
        pace=part.pace,
        intervals=tuple((point.at_ns, point.reads + point.writes) for point in result.series),
    )


def _gaps(parts: Sequence[Part], first_ns: int) -> Gaps | None:
    """The longest gap of all clients at once. If their clocks run at different paces, the longest of any one client."""
    known = [(part.result.gaps, part.started_ns - first_ns) for part in parts if part.result.gaps is not None]
    if len(known) < len(parts):
        return None
    if len(parts) == 1:
        return known[0][0]
    if any(part.pace is not None for part in parts):
        return max((gaps for gaps, _ in known), key=lambda gaps: gaps.longest_ns).model_copy(update={"of": "client"})
    errors_ns = sorted(part.offset.error_ns for part in parts)[-2:]
    return merged_gaps(known, sum(errors_ns))


def _counted(parts: Sequence[Part]) -> Counts | None:
    """I/Os of all clients per interval. None if their clocks run at different paces; they differ by less than an
    interval otherwise."""
    known = [part.result.counted for part in parts if part.result.counted is not None and part.pace is None]
    if not known or len(known) < len(parts):
        return None
    ios = [sum(each) for each in zip(*(counts.ios for counts in known), strict=False)]
    return Counts(interval_ns=known[0].interval_ns, ios=ios)


def _parts(parts: Sequence[StreamResult]) -> StreamResult:
    rates = [each.rate_iops for each in parts if each.rate_iops is not None]
    arrived = [each.arrived for each in parts if each.arrived is not None]
    return parts[0].model_copy(
        update={
            "workers": sum(each.workers for each in parts),
            "rate_iops": sum(rates) if rates else None,
            "read": merged_directions([each.read for each in parts]),
            "write": merged_directions([each.write for each in parts]),
            "arrived": Arrived(**_arrived(arrived)) if arrived else None,
        }
    )


def _arrived(parts: Sequence[Arrived]) -> dict[str, int]:
    return {name: sum(getattr(each, name) for each in parts) for name in Arrived.model_fields}


def _open(parts: Sequence[Open]) -> Open | None:
    if not parts:
        return None
    arrived = _arrived(parts)
    done = sum(each.achieved * each.offered for each in parts)
    lateness = [each.lateness for each in parts if each.lateness is not None]
    return parts[0].model_copy(
        update={
            **arrived,
            "rate_iops": sum(each.rate_iops for each in parts),
            "backlog_max": sum(each.backlog_max for each in parts),
            "achieved": done / arrived["offered"] if arrived["offered"] else 1.0,
            "offered_sd": math.hypot(*(each.offered_sd for each in parts)),
            "lateness": merged_latencies(lateness) if lateness else None,
        }
    )


def _series(results: Sequence[TrialResult]) -> list[Second]:
    """Interval by interval, each from its host's own start; quantiles cannot be had without the histograms."""
    together = []
    for points in zip_longest(*(each.series for each in results)):
        some = [point for point in points if point is not None]
        longest = [point.latency_max_ns for point in some if point.latency_max_ns is not None]
        counts = ("reads", "writes", "read_bytes", "write_bytes")
        together.append(
            Second(
                at_ns=some[0].at_ns,
                duration_ns=some[0].duration_ns,
                latency_max_ns=max(longest, default=None),
                **{name: sum(getattr(point, name) for point in some) for name in counts},
            )
        )
    return together


def _verify(parts: Sequence[Verify]) -> Verify | None:
    if not parts:
        return None
    return Verify(**{name: sum(getattr(each, name) for each in parts) for name in Verify.model_fields})


def _database(parts: Sequence[Database]) -> Database | None:
    """The sum over all of them; values that one of them lacks are left out."""
    if not parts:
        return None
    counts = {name: [getattr(each, name) for each in parts] for name in Database.model_fields}
    return parts[0].model_copy(update={name: None if None in each else sum(each) for name, each in counts.items()})


def _checks(parts: Sequence[Checks], skew_ns: int) -> Checks:
    waits = [each.run_queue_wait for each in parts if each.run_queue_wait is not None]
    windows = [each.cpu_window_ns for each in parts if each.cpu_window_ns is not None]
    return Checks(
        errors=sum(each.errors or 0 for each in parts),
        start_skew_ns=max(skew_ns, *(each.start_skew_ns or 0 for each in parts)),
        cpu_window_ns=max(windows, default=None),
        run_queue_wait=max(waits, default=None),
        clock=parts[0].clock,
    )


class ObservedSecond(Record):
    """One interval of a host, from `at_ns` after its window's start."""

    at_ns: int
    duration_ns: int
    busy_ns: dict[str, int]
    """`machine`; `observer`, the engine's own process; and watched processes by name."""
    guest_ns: int = 0
    """The part of the machine's time that its guests ran."""


class Observed(Record):
    """A target's host over the window, as the engine's `observed` line gives it."""

    window: dict[str, int]
    watched: dict[str, ProcessCpu] = Field(default={})
    machine: dict[str, object]
    cpu_series: list[ObservedSecond] = Field(default=[])


def initiator_cpu(
    host: str,
    result: TrialResult,
    threads: int,
    background_ns: int | None,
    *,
    kernel: bool = False,
    virtual: bool = False,
) -> list[CpuTime]:
    """A client's own parts, under its name. If its kernel makes the path, its machine is the initiator. `virtual`: a
    measured hypervisor runs it."""
    window_ns = result.checks.cpu_window_ns or result.window.duration_ns
    role: Role = "initiator" if kernel else "other"
    return _named(host, result.cpu, window_ns, threads, background_ns, role, virtual=virtual)


def target_cpu(
    host: str, observed: Observed, threads: int, background_ns: int | None, *, virtual: bool = False
) -> list[CpuTime]:
    """A target's: its server and its machine; its machine alone where the server is not ours."""
    cpu = CpuUse.model_validate({**observed.watched, "machine": observed.machine})
    role: Role = "other" if observed.watched else "target"
    return _named(host, cpu, observed.window["duration_ns"], threads, background_ns, role, virtual=virtual)


def worker_cpu(host: str, worker: Mapping[str, object], window_ns: int) -> CpuTime:
    """CPU of the Dask worker through which a host is reached: part of the host's figures but not of the load."""
    [part] = CpuUse.model_validate({"initiator": worker})
    known: dict[str, object] = {"host": f"{host}: Dask worker", "role": "other", "window_ns": window_ns}
    return part.model_copy(update=known)


def worker_said(worker: CpuTime) -> str:
    """Its cost, for a log."""
    share = worker.busy_ns / (worker.window_ns or 1)
    memory = "" if worker.max_rss_bytes is None else f", {format_size(worker.max_rss_bytes >> 20 << 20)} of memory"
    return (
        f"{worker.host}: {worker.busy_ns / 1e6:.1f} ms of CPU time in the window, {show_share(share)} of a core{memory}"
    )


@dataclass(frozen=True)
class HostSeries:
    """CPU of one host over time, and which of it counts for which role."""

    host: str
    seconds: Sequence[ObservedSecond]
    own: Mapping[CpuRole, str]
    """Role → the name in `busy_ns`."""
    virtual: bool = False
    """A hypervisor that is read runs it: it is counted within that one's machine."""
    hypervisor: bool = False


def cpu_series(hosts: Sequence[HostSeries]) -> list[CpuSecond]:
    """All hosts together, interval by interval from each one's own start, as far as all of them go."""
    found = []
    for seconds in zip(*(each.seconds for each in hosts), strict=False):
        busy_ns: dict[CpuRole, int] = {}
        for host, second in zip(hosts, seconds, strict=True):
            own = {role: second.busy_ns[name] for role, name in host.own.items() if name in second.busy_ns}
            if host.hypervisor:
                own["hypervisor"] = max(0, second.busy_ns["machine"] - second.guest_ns)
            if not host.virtual:
                own["machine"] = second.busy_ns["machine"]
            for role, ns in own.items():
                busy_ns[role] = busy_ns.get(role, 0) + ns
        found.append(CpuSecond(at_ns=seconds[0].at_ns, duration_ns=seconds[0].duration_ns, busy_ns=busy_ns))
    return found


def _named(
    host: str, cpu: CpuUse, window_ns: int, threads: int, background_ns: int | None, machine_is: Role, *, virtual: bool
) -> list[CpuTime]:
    parts = []
    for part in cpu:
        known: dict[str, object] = {"host": host, "window_ns": window_ns}
        if part.layer == "machine":
            # A machine counts for a role only minus its background without load.
            role = machine_is if background_ns is not None else "other"
            known |= {"background_ns": background_ns, "role": role, "layer": "guest" if virtual else "machine"}
        elif part.role in ("initiator", "target"):
            machine = cpu.part("other", "machine")
            known["processors"] = min(threads, (machine.processors if machine else None) or threads)
        parts.append(part.model_copy(update=known))
    return parts
