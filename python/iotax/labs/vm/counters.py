"""CPU of whole guests: for a path in the kernel, threads of the kernel and interrupts do the work.

Linux knows idle time to the nanosecond (nohz), and /proc/stat tells it in ticks of 10 ms; user and system time are
sampled, and therefore not used: busy = wall - idle - waiting - stolen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from iotax.trial import Core, Cpu, CpuUse, Machine, TrialResult

_TICK_NS = 10_000_000


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
        return cls(round(float(uptime) * 1e9), (ticks[3] + ticks[4] + ticks[7]) * _TICK_NS, cpus)

    def busy_ns(self, later: Reading) -> int:
        return max(0, self.cpus * self.wall_ns(later) - (later.unused_ns - self.unused_ns))

    def wall_ns(self, later: Reading) -> int:
        return later.now_ns - self.now_ns


def machine_busy_ns(machine: Machine, duration_ns: int) -> int:
    """What the engine's reading of /proc/stat says of the guest that it runs in."""
    return sum(max(0, duration_ns - core.idle_ns - core.iowait_ns - core.steal_ns) for core in machine.cores)


class Clocks(Protocol):
    """What tells how long something worked, and how long it took."""

    def busy_ns(self, later: Self) -> int: ...
    def wall_ns(self, later: Self) -> int: ...


_Clocks = TypeVar("_Clocks", bound=Clocks)


@dataclass(frozen=True)
class LoadCost(Generic[_Clocks]):
    """The storage guest, or a hypervisor, from before a load to after it, quiet at both ends, and the I/Os between."""

    before: _Clocks
    after: _Clocks
    ios: int

    def cpu_ns(self, ios: int, idle_cores: float) -> int | None:
        """CPU for that many I/Os, the idle work taken off."""
        if self.ios <= 0:
            return None
        spent_ns = self.before.busy_ns(self.after) - idle_cores * self.before.wall_ns(self.after)
        return max(0, round(spent_ns * ios / self.ios))


def with_guests(
    result: TrialResult, endpoint: str, target_ns: int | None, hypervisor_ns: int | None, idle_cores: float
) -> TrialResult:
    """The result with the CPU of whole guests: the initiator's, less what it spends idle, and both for the machine.

    The engine's own process stands as the initiator's user time, all the rest of its guest as system time. What the
    initiator's hypervisor spends is this host's time, and stands apart.
    """
    measured, process = result.cpu.machine, result.cpu.initiator
    # The generator shares its guest's processor with the protocol's kernel threads: to wait for them is no fault.
    checks = result.checks.model_copy(update={"run_queue_wait": None})
    result = result.model_copy(update={"endpoint": endpoint, "checks": checks})
    if measured is None:
        return result
    machine_ns = machine_busy_ns(measured, result.window.duration_ns)
    busy_ns = max(0, machine_ns - round(idle_cores * result.window.duration_ns))
    user_ns = min(busy_ns, process.user_ns) if process else 0
    initiator = Cpu(
        pid=process.pid if process else 0,
        total_ns=busy_ns,
        user_ns=user_ns,
        system_ns=busy_ns - user_ns,
        run_queue_wait_ns=process.run_queue_wait_ns if process else None,
        max_rss_bytes=process.max_rss_bytes if process else None,
    )
    target = None if target_ns is None else Cpu(pid=0, total_ns=target_ns, user_ns=0, system_ns=target_ns)
    hypervisor = (
        None if hypervisor_ns is None else Cpu(pid=0, total_ns=hypervisor_ns, user_ns=0, system_ns=hypervisor_ns)
    )
    cores = [*measured.cores]
    if target_ns is not None:
        cores.append(_core(len(cores), target_ns, result.window.duration_ns))
    machine = Machine(cores=cores, busy_ns=machine_ns + (target_ns or 0))
    use = CpuUse(initiator=initiator, target=target, machine=machine, hypervisor=hypervisor)
    return result.model_copy(update={"cpu": use})


def _core(number: int, busy_ns: int, duration_ns: int) -> Core:
    idle_ns = max(0, duration_ns - busy_ns)
    none = dict.fromkeys(("user_ns", "nice_ns", "irq_ns", "softirq_ns", "steal_ns", "iowait_ns"), 0)
    return Core(cpu=number, system_ns=busy_ns, idle_ns=idle_ns, **none)
