"""CPU of whole guests, and of the hypervisor below them.

For a path in the kernel, threads of the kernel and interrupts do the work. Linux knows idle time to the nanosecond
(nohz), and /proc/stat tells it in ticks of 10 ms; user and system time are sampled, and therefore not used:
busy = wall - idle - waiting - stolen.

The hypervisor's CPU is that of a QEMU process less its guest. Under KVM the guest's share is what the kernel counts as
guest time. Under emulation it is the thread that stands for the processor, which does part of the devices' work too:
the hypervisor's figure is then without that part. It is time of this host, where a guest's figure is time by the
guest's own clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from iotax.labs.outcomes import THIS_MACHINE
from iotax.labs.proc import process_clock_ns, stat_fields
from iotax.records import Core, CpuRole, CpuTime, CpuUse
from iotax.records.cpu import TICK_NS
from iotax.trial import CpuSecond, TrialResult


@dataclass(frozen=True)
class Reading:
    """A guest's own clocks."""

    now_ns: int
    unused_ns: int
    """Idle, waiting for I/O, or stolen by the host; of all processors together."""
    cpus: int = 1

    @classmethod
    def parse(cls, line: str, cpus: int) -> Reading:
        """`COUNTERS UPTIME_S cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …`: /proc/uptime, /proc/stat."""
        _, uptime, _, *fields = line.split()
        ticks = [int(field) for field in fields]
        return cls(round(float(uptime) * 1e9), (ticks[3] + ticks[4] + ticks[7]) * TICK_NS, cpus)

    def busy_ns(self, later: Reading) -> int:
        return max(0, self.cpus * self.wall_ns(later) - (later.unused_ns - self.unused_ns))

    def wall_ns(self, later: Reading) -> int:
        return later.now_ns - self.now_ns


class Clocks(Protocol):
    """How long something ran, and over which period."""

    def busy_ns(self, later: Self) -> int: ...
    def wall_ns(self, later: Self) -> int: ...


_Clocks = TypeVar("_Clocks", bound=Clocks)


@dataclass(frozen=True)
class Idle:
    """CPU that the guests and the initiator's hypervisor use without load, in cores."""

    initiator: float
    target: float
    hypervisor: float


def spent_ns(before: _Clocks, after: _Clocks, idle_cores: float) -> int:
    """Between two readings of the same clock, the idle work taken off."""
    return max(0, round(before.busy_ns(after) - idle_cores * before.wall_ns(after)))


@dataclass(frozen=True)
class LoadCost(Generic[_Clocks]):
    """The storage guest, or a hypervisor, from before a load to after it, quiet at both ends, and the bytes moved
    between."""

    before: _Clocks
    after: _Clocks
    moved: int

    def cpu_ns(self, moved: int, idle_cores: float) -> int | None:
        """CPU for so many of these bytes, the idle work taken off."""
        if self.moved <= 0:
            return None
        spent_ns = self.before.busy_ns(self.after) - idle_cores * self.before.wall_ns(self.after)
        return max(0, round(spent_ns * moved / self.moved))


def with_guests(
    result: TrialResult,
    *,
    load_guest: str,
    processors: int,
    idle_cores: float,
    both_ends: bool,
    target_ns: int | None,
    hypervisor_ns: int | None,
) -> TrialResult:
    """The result with the CPU of whole guests. `idle_cores` is the background of the load's guest; for target and
    hypervisor it is already subtracted. `both_ends`: the load's guest is the target's, too. The CPU of the initiator's
    hypervisor is this host's time and separate."""
    window_ns = result.window.duration_ns
    parts = load_parts(
        result, host=f"{load_guest} guest", processors=processors, idle_cores=idle_cores, both_ends=both_ends
    )
    if target_ns is not None and not both_ends:
        parts.append(target_part(target_ns, window_ns, processors))
    if hypervisor_ns is not None:
        parts.append(hypervisor_part(hypervisor_ns))
    return with_cpu(result, parts)


def with_cpu(result: TrialResult, parts: list[CpuTime]) -> TrialResult:
    # The generator shares its guest's processor with the protocol's kernel threads: to wait for them is not a fault.
    checks = result.checks.model_copy(update={"run_queue_wait": None})
    both = any(part.role == "both" for part in parts)
    series = [_of_guest(each, both_ends=both) for each in result.cpu_series]
    return result.model_copy(update={"checks": checks, "cpu": CpuUse(parts), "cpu_series": series})


def _of_guest(second: CpuSecond, *, both_ends: bool) -> CpuSecond:
    """The machine that the engine read is the load's guest; the other guest was read only at its ends."""
    role: CpuRole = "machine" if both_ends else "initiator"
    return second.model_copy(update={"busy_ns": {role: second.busy_ns["machine"]}})


def load_parts(
    result: TrialResult, *, host: str, processors: int, idle_cores: float, both_ends: bool = False
) -> list[CpuTime]:
    """CPU of a load's guest by the engine's own reading: all of it, the engine's part, and the part of the process that
    serves it a virtual disk, which the engine watched as the target."""
    window_ns = result.window.duration_ns
    process, engines = result.cpu.part("initiator", "process"), result.cpu.part("other", "machine")
    parts = []
    if engines is not None:
        guest = engines.model_copy(
            update={
                "host": host,
                "role": "both" if both_ends else "initiator",
                "layer": "guest",
                "busy_ns": busy_ns_of(engines.cores, window_ns),
                "background_ns": round(idle_cores * window_ns),
                "window_ns": window_ns,
                "processors": processors,
            }
        )
        parts.append(guest)
    if process is not None:
        threads = min(result.facts.threads or processors, processors)
        parts.append(process.model_copy(update={"host": host, "window_ns": window_ns, "processors": threads}))
    if (disk := result.cpu.part("target", "process")) is not None:
        parts.append(disk.model_copy(update={"host": host, "role": "disk", "window_ns": window_ns}))
    return parts


def target_part(busy_ns: int, window_ns: int, processors: int) -> CpuTime:
    """The storage guest's, the idle work taken off."""
    return CpuTime(
        host="storage guest",
        role="target",
        layer="guest",
        busy_ns=busy_ns,
        background_ns=0,
        window_ns=window_ns,
        processors=processors,
    )


def hypervisor_part(busy_ns: int) -> CpuTime:
    """The initiator's, the idle work taken off."""
    return CpuTime(host=THIS_MACHINE, role="hypervisor", layer="process", busy_ns=busy_ns, background_ns=0)


def busy_ns_of(cores: list[Core], duration_ns: int) -> int:
    """The engine's reading of /proc/stat in its guest."""
    return sum(max(0, duration_ns - core.idle_ns - core.iowait_ns - core.steal_ns) for core in cores)


@dataclass(frozen=True)
class HypervisorClocks:
    """One QEMU's clocks."""

    now_ns: int
    spent_ns: int
    """CPU time of the process, its guest aside."""

    def busy_ns(self, later: HypervisorClocks) -> int:
        return max(0, later.spent_ns - self.spent_ns)

    def wall_ns(self, later: HypervisorClocks) -> int:
        return later.now_ns - self.now_ns


def read_clocks(pid: int, processors: list[int], *, kvm: bool) -> HypervisorClocks:
    """`processors` are the threads that stand for the guest's. Raises OSError when the process is gone."""
    tasks = Path(f"/proc/{pid}/task")
    if kvm:
        guest_ns = sum(_guest_time_ns((tasks / str(thread) / "stat").read_text()) for thread in processors)
    else:
        guest_ns = sum(int((tasks / str(thread) / "schedstat").read_text().split()[0]) for thread in processors)
    return HypervisorClocks(time.monotonic_ns(), process_clock_ns(pid) - guest_ns)


def processor_threads(answer: list[dict[str, Any]]) -> list[int]:
    """QEMU's answer to `query-cpus-fast`; under icount all processors share one thread."""
    return sorted({each["thread-id"] for each in answer})


def _guest_time_ns(stat: str) -> int:
    """Field 43."""
    return int(stat_fields(stat)[40]) * TICK_NS
