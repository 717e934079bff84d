"""The compared responses: a number for each run, its unit, and whether more is better."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from iotax.analysis import histogram
from iotax.analysis.recovery import rate_after_iops
from iotax.records import CpuRole, CpuTime, Lack
from iotax.trial import Direction, Trial, TrialResult

MIB = 1 << 20

CpuPart: TypeAlias = Literal["both"] | CpuRole
"""`both`: initiator and target together."""

ROLES: dict[CpuRole, str] = {
    "initiator": "initiator",
    "target": "target",
    "hypervisor": "initiator's hypervisor",
    "machine": "whole machine",
}
"""Their names in titles."""


@dataclass(frozen=True)
class Run:
    """A trial that was measured: the unit of observation."""

    trial: Trial
    result: TrialResult
    by_slices: Mapping[str, float] = field(default_factory=dict)
    """Response → the value that its session's slices give, if it was measured in rounds."""

    @cached_property
    def latency(self) -> histogram.LatencyBins:
        """Reads and writes together; empty if a part of them has no histogram."""
        merged = self.result.latency_known == "histogram"
        return histogram.of(*([self.result.read.histogram, self.result.write.histogram] if merged else []))

    @property
    def local(self) -> bool:
        """No server: the volume is reached without a protocol."""
        return self.result.facts.served == "nobody"

    @property
    def duration_s(self) -> float:
        return self.result.window.duration_ns / 1e9

    @property
    def total_outstanding(self) -> int | None:
        """None if not known."""
        return self.result.outstanding.total


_BOTH_ENDS = "initiator + target"
SLOW = {"over 100 ms": 100_000_000, "over 1 s": 1_000_000_000}
"""Limits of slow and very slow I/Os, in ns."""


@dataclass(frozen=True)
class Tail:
    """A percentile of the latency of some I/Os."""

    percent: float
    of: Literal["all", "read", "write", "sync"] = "all"

    def told(self, runs: Iterable[Run]) -> bool:
        """Whether enough I/Os of each run lie beyond to tell how well it is known."""
        return histogram.tells_tail(self.percent, (self._ios(run) for run in runs))

    def _ios(self, run: Run) -> int:
        if self.of == "all":
            return run.result.ios
        own: Direction | None = getattr(run.result, self.of)
        return 0 if own is None else own.ios


@dataclass(frozen=True)
class Response:
    key: str
    title: str
    unit: str
    more_is_better: bool
    of_window: Callable[[Run], float | None]
    """Value over the whole window; None if it was not measured or does not exist."""
    tail: "Tail | None" = None
    """What a percentile is of."""

    def of(self, run: Run) -> float | None:
        """The value from its slices if it was measured in rounds, else over the whole window."""
        return run.by_slices.get(self.key, self.of_window(run))

    @property
    def is_latency(self) -> bool:
        return self.key.startswith("latency")

    @property
    def short(self) -> str:
        """The title, with the role only if it is one of several."""
        return self.title.removesuffix(f", {_BOTH_ENDS}")


def counted(response: Response, *, database: bool) -> Response:
    """The equivalent response for a load that counts transactions, if there is one."""
    return _COUNTERPARTS.get(response, response) if database else response


def _of_ios(of: Callable[[Run], float | None]) -> Callable[[Run], float | None]:
    """None if transactions were counted."""
    return lambda run: of(run) if run.result.database is None else None


def _of_transactions(of: Callable[[Run], float | None]) -> Callable[[Run], float | None]:
    """None if I/Os were counted."""
    return lambda run: of(run) if run.result.database is not None else None


def _disk_iops(run: Run) -> float | None:
    database = run.result.database
    return None if database is None else (database.reads + database.writes) / run.duration_s or None


def _latency_us(percent: float) -> Callable[[Run], float | None]:
    """None if a run has too few I/Os for the percentile, or if it is not known."""
    enough = histogram.smallest_count(percent)

    def of(run: Run) -> float | None:
        if run.result.latency_known != "histogram":
            return _known_us(run.result.latency_ns(percent)) if run.result.ios >= enough else None
        return run.latency.percentile_ns(percent) / 1e3 if run.latency.total >= enough else None

    return of


def _latency_mean_us(run: Run) -> float | None:
    return _known_us(run.result.latency_mean_ns)


def _direction_us(
    name: Literal["read", "write", "sync"], percent: float | None = None
) -> Callable[[Run], float | None]:
    """The mean or a percentile of only the reads, writes or flushes; None if there were none, or too few."""
    enough = 1 if percent is None else histogram.smallest_count(percent)

    def of(run: Run) -> float | None:
        own: Direction | None = getattr(run.result, name)
        if own is None or own.ios < enough or own.latency == "none":
            return None
        return _known_us(own.latency_sum_ns / own.ios if percent is None else own.percentile_ns(percent))

    return of


def _percentile_of(name: Literal["read", "write", "sync"], named: str, percent: int) -> Response:
    title = f"{'Median' if percent == 50 else f'p{percent}'} latency of {named}"
    found = _direction_us(name, percent)
    return Response(f"latency_{name}_p{percent}", title, "µs", False, found, Tail(percent, name))


def _known_us(value_ns: float) -> float | None:
    return None if math.isnan(value_ns) else value_ns / 1e3


def parts_of(result: TrialResult, part: CpuPart) -> tuple[CpuTime, ...]:
    """The readings of a part; empty if some are missing or it does not exist. `both` is initiator and target together:
    a local run has no target, an external target was not measured, and a guest with both ends gives only their sum. A
    simulated hypervisor's part is included."""
    if part != "both":
        return result.role(part).parts
    if (together := result.cpu.part("both")) is not None:
        return (together,)
    initiator, target = result.role("initiator"), result.role("target")
    if not initiator.parts or target.lack not in (None, Lack.NOBODY):
        return ()
    within = result.hypervisor_within
    return (*initiator.parts, *target.parts, *([within] if within else []))


def cpu_ns(result: TrialResult, part: CpuPart) -> int | None:
    """CPU time of a part over the window; None if it was not measured or there is none."""
    if part != "both":
        return result.cpu_ns(part)
    parts = parts_of(result, part)
    return sum(each.net_ns for each in parts) if parts else None


def generator_ns(result: TrialResult) -> int | None:
    """User time of the load process if the path runs in a kernel whose machine was read as a whole; None otherwise."""
    whole, process = result.cpu.part("both") or result.cpu_initiator, result.cpu.part("initiator", "process")
    if whole is None or whole.layer == "process" or process is None:
        return None
    return process.user_ns


def disk_ns(result: TrialResult) -> int | None:
    """User time of the process that serves a virtual disk above the initiator's path; None without one."""
    disk = result.cpu.part("disk", "process")
    return None if disk is None else disk.user_ns


def _of_qemu(result: TrialResult) -> CpuTime | None:
    """QEMU's processes, of a host that was read whole."""
    process = result.cpu.part("hypervisor", "process")
    if process is None or process.guests_ns is None or result.cpu.part("hypervisor", "machine") is None:
        return None
    return process


def qemu_ns(result: TrialResult) -> int | None:
    """CPU time of QEMU's processes besides their guests, I/O threads and vhost: exits of guests, and the main loop.
    Threads without names count here, vhost since Linux 6.4; None if no process was read."""
    if (process := _of_qemu(result)) is None:
        return None
    threads = process.threads
    return process.own_ns if threads is None else max(0, process.own_ns - threads.io_ns - threads.vhost_ns)


def _io_threads_ns(result: TrialResult) -> int | None:
    process = _of_qemu(result)
    return None if process is None or process.threads is None else process.threads.io_ns


def _vhost_ns(result: TrialResult) -> int | None:
    """Threads of QEMU, or of the kernel."""
    process = _of_qemu(result)
    if process is None or process.threads is None:
        return None
    return process.threads.vhost_ns + process.threads.vhost_apart_ns


def _host_rest_ns(result: TrialResult) -> int | None:
    """The hypervisor's part that is none of these: interrupts and network of its kernel."""
    spent_ns, qemu = cpu_ns(result, "hypervisor"), qemu_ns(result)
    if spent_ns is None or qemu is None:
        return None
    return max(0, spent_ns - qemu - (_io_threads_ns(result) or 0) - (_vhost_ns(result) or 0))


def _guest_ns(result: TrialResult) -> int | None:
    initiator = result.cpu.part("initiator", "guest")
    return None if initiator is None else initiator.net_ns


def _initiator_kernel_ns(result: TrialResult) -> int | None:
    """None if one guest also holds the target's kernel."""
    spent_ns, generator = cpu_ns(result, "initiator"), generator_ns(result)
    if spent_ns is None or generator is None or result.cpu.part("both") is not None:
        return None
    return max(0, spent_ns - generator - (disk_ns(result) or 0))


def _target_kernel_ns(result: TrialResult) -> int | None:
    """None if the target is a program, or if its machine was not read."""
    return cpu_ns(result, "target") if result.facts.target_stack == "kernel" else None


def _layer(name: str, of: Callable[[TrialResult], int | None], called: str) -> Response:
    def us(run: Run) -> float | None:
        spent_ns = of(run.result)
        return spent_ns / 1e3 / run.result.ios if spent_ns and run.result.ios else None

    return Response(name, f"CPU per I/O, {called}", "µs", False, _of_ios(us))


def _cpu_us(part: CpuPart) -> Callable[[Run], float | None]:
    def of(run: Run) -> float | None:
        spent_ns = cpu_ns(run.result, part)
        return spent_ns / 1e3 / run.result.ios if spent_ns is not None and run.result.ios else None

    return of


def _cpu_per_io(name: str, part: CpuPart, called: str) -> Response:
    return Response(name, f"CPU per I/O, {called}", "µs", False, _of_ios(_cpu_us(part)))


def _cpu_per_transaction(name: str, part: CpuPart, called: str) -> Response:
    return Response(name, f"CPU per transaction, {called}", "µs", False, _of_transactions(_cpu_us(part)))


def _events(name: str) -> Callable[[Run], float | None]:
    """Per I/O, initiator and target together; None unless the processes that do all the work were counted."""

    def of(run: Run) -> float | None:
        parts = [run.result.cpu_initiator]
        if run.result.facts.served != "nobody":
            parts.append(run.result.cpu.part("target"))
        counted = [each.events for each in parts if each is not None and each.events is not None]
        if not run.result.ios or len(counted) < len(parts):
            return None
        return sum(getattr(each, name) for each in counted) / run.result.ios

    return of


def _utilisation_percent(role: CpuRole) -> Callable[[Run], float | None]:
    """Busy time of its processors, background included, as a utilisation is read elsewhere."""

    def of(run: Run) -> float | None:
        share = run.result.role(role).share
        return 100 * share if share else None

    return of


def _longest_gap_ms(run: Run) -> float | None:
    return None if run.result.gaps is None else run.result.gaps.longest_ns / 1e6


def _iops_after(run: Run) -> float | None:
    return rate_after_iops(run.result) or None


IOPS = Response("iops", "Throughput", "IOPS", True, _of_ios(lambda run: run.result.rate_iops or None))
TRANSACTIONS = Response(
    "transactions", "Throughput", "transactions/s", True, _of_transactions(lambda run: run.result.rate_iops or None)
)
DISK_IOPS = Response("disk_iops", "I/O on the volume", "IOPS", True, _disk_iops)
LATENCY = Response("latency", "Mean latency", "µs", False, _latency_mean_us)
P50, P95, P99, P999 = (
    Response(f"latency_p{key}", f"{title} latency", "µs", False, _latency_us(percent), Tail(percent))
    for key, title, percent in (("50", "Median", 50), ("95", "p95", 95), ("99", "p99", 99), ("999", "p99.9", 99.9))
)
READ = Response("latency_read", "Mean latency of reads", "µs", False, _direction_us("read"))
READ_P50 = _percentile_of("read", "reads", 50)
READ_P99 = _percentile_of("read", "reads", 99)
WRITE = Response("latency_write", "Mean latency of writes", "µs", False, _direction_us("write"))
WRITE_P50 = _percentile_of("write", "writes", 50)
WRITE_P99 = _percentile_of("write", "writes", 99)
SYNC = Response("latency_sync", "Mean latency of flushes", "µs", False, _direction_us("sync"))
SYNC_P50 = _percentile_of("sync", "flushes", 50)
SYNC_P99 = _percentile_of("sync", "flushes", 99)
BANDWIDTH = Response("bandwidth", "Bandwidth", "MiB/s", True, lambda run: run.result.rate_bytes_per_s / MIB or None)
LONGEST_GAP = Response("longest_gap", "Longest gap without I/O", "ms", False, _longest_gap_ms)
"""The longest gap over several threads or clients; below 1 ms it may be an upper bound (`Gaps.is_bound`)."""
IOPS_AFTER = Response("iops_after", "Throughput after events", "IOPS", True, _iops_after)
CPU = _cpu_per_io("cpu", "both", _BOTH_ENDS)
CPU_INITIATOR = _cpu_per_io("cpu_initiator", "initiator", "initiator")
CPU_TARGET = _cpu_per_io("cpu_target", "target", "target")
CPU_HYPERVISOR = _cpu_per_io("cpu_hypervisor", "hypervisor", "initiator's hypervisor")
CPU_MACHINE = _cpu_per_io("cpu_machine", "machine", "whole machine")
CPU_GUEST = _layer("cpu_guest", _guest_ns, "initiator's guest")
CPU_GENERATOR = _layer("cpu_generator", generator_ns, "load generator in user space")
CPU_DISK = _layer("cpu_disk", disk_ns, "virtual disk's process in user space")
CPU_QEMU = _layer("cpu_qemu", qemu_ns, "QEMU beside its guests")
CPU_IO_THREADS = _layer("cpu_io_threads", _io_threads_ns, "QEMU's I/O threads")
CPU_VHOST = _layer("cpu_vhost", _vhost_ns, "vhost")
CPU_HOST_REST = _layer("cpu_host_rest", _host_rest_ns, "hypervisor beside QEMU")
CPU_INITIATOR_KERNEL = _layer("cpu_initiator_kernel", _initiator_kernel_ns, "initiator's kernel")
CPU_TARGET_KERNEL = _layer("cpu_target_kernel", _target_kernel_ns, "target's kernel")
LAYERS = (
    CPU_GUEST, CPU_GENERATOR, CPU_DISK, CPU_QEMU, CPU_IO_THREADS, CPU_VHOST, CPU_HOST_REST, CPU_INITIATOR_KERNEL,
    CPU_TARGET_KERNEL,
)  # fmt: skip
"""Parts of CPU per I/O besides the hypervisor: only if a lab reads them."""
CPU_TRANSACTION = _cpu_per_transaction("cpu_transaction", "both", _BOTH_ENDS)
CPU_TRANSACTION_INITIATOR = _cpu_per_transaction("cpu_transaction_initiator", "initiator", "initiator")
CPU_TRANSACTION_TARGET = _cpu_per_transaction("cpu_transaction_target", "target", "target")
CPU_TRANSACTION_HYPERVISOR = _cpu_per_transaction("cpu_transaction_hypervisor", "hypervisor", "initiator's hypervisor")
BOTH_ENDS = (CPU, CPU_TRANSACTION)
"""CPU time of initiator and target, on one machine or two."""
_COUNTERPARTS = {
    IOPS: TRANSACTIONS,
    CPU: CPU_TRANSACTION,
    CPU_INITIATOR: CPU_TRANSACTION_INITIATOR,
    CPU_TARGET: CPU_TRANSACTION_TARGET,
    CPU_HYPERVISOR: CPU_TRANSACTION_HYPERVISOR,
}
DATABASE = (DISK_IOPS, *_COUNTERPARTS.values())
"""Responses of a database's load, which counts transactions; latencies are theirs, too."""
UTILISATION = tuple(
    Response(f"cpu_utilisation_{role}", f"CPU utilisation, {named}", "%", False, _utilisation_percent(role))
    for role, named in ROLES.items()
)
"""Utilisation of all processors of a role. It compares costs at equal rates only."""

ROLE_OF: dict[str, CpuRole] = {
    **{f"cpu_{role}": role for role in ROLES},
    **{f"cpu_transaction_{role}": role for role in ROLES if role != "machine"},
    **{f"cpu_utilisation_{role}": role for role in ROLES},
}
"""Response key → the role whose CPU time it is."""

EVENTS = tuple(
    Response(f"{what}_{where}", f"{what.capitalize()} per I/O, {place}", what, False, _events(f"{where}_{what}"))
    for what in ("instructions", "cycles")
    for where, place in (("user", "user space"), ("kernel", "kernel"))
)
"""Readings of the processor's own counters, initiator and target together."""

RESPONSES = (
    *(IOPS, BANDWIDTH, LATENCY, P50, P95, P99, P999),
    *(READ, READ_P50, READ_P99, WRITE, WRITE_P50, WRITE_P99),
    *(SYNC, SYNC_P50, SYNC_P99),
    *(CPU, CPU_INITIATOR, CPU_TARGET, CPU_HYPERVISOR, CPU_MACHINE),
    *LAYERS,
    *UTILISATION,
    *EVENTS,
    *DATABASE,
    *(LONGEST_GAP, IOPS_AFTER),
)

ASKED = {
    "iops": IOPS,
    "latency": LATENCY,
    "cpu_per_io": CPU,
    **{each.key: each for each in (CPU_INITIATOR, CPU_TARGET, CPU_HYPERVISOR, CPU_MACHINE, *UTILISATION)},
    "transactions": TRANSACTIONS,
    "cpu_per_transaction": CPU_TRANSACTION,
    "disk_iops": DISK_IOPS,
    "longest_gap": LONGEST_GAP,
    "iops_after": IOPS_AFTER,
}
"""A study's word for a response → the response that answers it. `slow_ios` is counted beside, and compared by no
ratio: most runs have none."""
