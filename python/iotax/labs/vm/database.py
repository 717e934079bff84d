"""PostgreSQL and pgbench in the guests: a database on the volume of each initiator, and a trial's load on them.

The database is made once in the guest that serves, without any protocol, and copied for each further initiator: every
protocol finds the same bytes. A trial mounts the file systems, starts PostgreSQL and pgbench, reads the clocks of all
guests at the two ends of the window, and stops everything again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iotax.labs.base import TrialFailed
from iotax.labs.generators.base import said_of
from iotax.labs.generators.pgbench import Measured, client_options, measured, result_of, server_options
from iotax.labs.hosts.clock import Offset, Ours, offset_of
from iotax.labs.hosts.measure import each_of
from iotax.labs.hosts.merge import Part, merged
from iotax.labs.vm.counters import HypervisorClocks, Reading, hypervisor_part, spent_ns, target_part
from iotax.labs.vm.guests import Guest
from iotax.places.waiting import wait_for
from iotax.records import CpuTime, CpuUse
from iotax.study import Settings
from iotax.study.database import memory_bytes, scale
from iotax.study.model import Load
from iotax.trial import TrialResult

_BUILD_S = 600.0
_STEP_S = 240.0
"""Time for PostgreSQL's start and end, which flush its data."""
_SLOWDOWN = 30
"""Extra time that an emulated guest may take on a busy host beyond its own clock."""
_TRANSACTION_S = 2.0
"""The longest that transactions may take on average."""
_CHECKPOINT_AT = 0.25
"""Share of a timed window after which a checkpoint is requested."""


def build(guest: Guest, settings: Settings, volumes: int) -> None:
    """Lays out file system and database on each volume of this guest. Raises StepFailed and VmFault."""
    checksums = "-k" if settings.load.verify else ""
    build = f"database_build {scale(settings.load, settings.volume)} '{checksums}'"
    guest.run(_script(f"{build} && database_copies {volumes}"), timeout_s=_BUILD_S)


@dataclass(frozen=True)
class Host:
    """A guest with a database and its clients."""

    guest: Guest
    device: str
    idle_cores: float
    """Background of the guest and its hypervisor."""
    idle_hypervisor_cores: float


@dataclass(frozen=True)
class Run:
    """A trial's load."""

    hosts: Sequence[Host]
    storage: Guest
    idle_storage_cores: float
    both_ends: bool
    """The target stands in the guest of the only host."""
    local: bool
    """There is none."""
    cpus: int
    """Processors of each guest."""

    def measure(self, settings: Settings, *, seed: int, endpoint: str) -> TrialResult:
        """Raises TrialFailed, StepFailed and VmFault."""
        load = settings.load
        options = [client_options(settings, seed + number) for number in range(len(self.hosts))]
        clients = [f"{load.workers} '{each}'" for each in options]
        server = f"{memory_bytes(load, settings.volume)} '{server_options(settings)}'"
        self._each(
            [
                f"database_begin {host.device} {server} {each} {load.warmup / 1e9:g}"
                for host, each in zip(self.hosts, clients, strict=True)
            ],
            _STEP_S + _SLOWDOWN * load.warmup / 1e9,
        )
        steps = [window(load, host.device, each) for host, each in zip(self.hosts, clients, strict=True)]
        offsets = [_offset(host.guest) for host in self.hosts]
        begun = self._edges([begins for begins, _, _ in steps], _STEP_S)
        target = self._target()
        ended = self._edges([lasts for _, lasts, _ in steps], _STEP_S + max(within_s for _, _, within_s in steps))
        target_later = self._target()
        told = self._each([f"database_end {host.device}" for host in self.hosts], _STEP_S)
        windows = [_Window(*edges) for edges in zip(begun, ended, strict=True)]
        results = [
            result_of(
                _measured(each, said),
                settings,
                endpoint=endpoint,
                cpu=CpuUse([]),
                cpu_window_ns=each.cpu_window_ns,
            )
            for each, said in zip(windows, told, strict=True)
        ]
        cpu = [self._load_part(host, each) for host, each in zip(self.hosts, windows, strict=True)]
        if not self.both_ends and not self.local:
            target_ns = spent_ns(target, target_later, self.idle_storage_cores)
            cpu.append(target_part(target_ns, target.wall_ns(target_later), self.cpus))
        cpu += [
            hypervisor_part(spent_ns(each.begun.hypervisor, each.ended.hypervisor, host.idle_hypervisor_cores))
            for host, each in zip(self.hosts, windows, strict=True)
        ]
        if len(self.hosts) == 1:
            return results[0].model_copy(update={"cpu": CpuUse(cpu)})
        parts = zip(self.hosts, offsets, results, strict=True)
        return merged([Part(host.guest.name, offset, result) for host, offset, result in parts], CpuUse(cpu))

    def _each(self, steps: Sequence[str], timeout_s: float) -> list[list[str]]:
        """A step on each host, all at the same time; the lines of each."""
        ports = [host.guest.port for host in self.hosts]
        running = [port.run(_script(step), within_s=timeout_s) for port, step in zip(ports, steps, strict=True)]
        return [said.splitlines() for said in wait_for(each_of(running))]

    def _edges(self, steps: Sequence[str], timeout_s: float) -> list[_Edge]:
        told = zip(self.hosts, self._each(steps, timeout_s), strict=True)
        return [self._edge(host, lines) for host, lines in told]

    def _edge(self, host: Host, lines: Sequence[str]) -> _Edge:
        reads, read_bytes, writes, write_bytes = map(int, _only(lines, "USE").split())
        return _Edge(
            at_us=_time_us(_only(lines, "EDGE")),
            guest=Reading.parse(f"COUNTERS {_only(lines, 'COUNTERS')}", self.cpus),
            hypervisor=host.guest.hypervisor(),
            use=(reads, read_bytes, writes, write_bytes),
        )

    def _target(self) -> Reading:
        return Reading.parse(self.storage.counters(), self.cpus)

    def _load_part(self, host: Host, window: _Window) -> CpuTime:
        return CpuTime(
            host=f"{host.guest.name} guest",
            role="both" if self.both_ends else "initiator",
            layer="guest",
            busy_ns=window.begun.guest.busy_ns(window.ended.guest),
            background_ns=round(host.idle_cores * window.cpu_window_ns),
            window_ns=window.cpu_window_ns,
            processors=self.cpus,
        )


@dataclass(frozen=True)
class _Edge:
    """One end of a host's window."""

    at_us: int
    guest: Reading
    hypervisor: HypervisorClocks
    use: tuple[int, int, int, int]
    """Reads, bytes read, writes, bytes written on the volume so far."""


@dataclass(frozen=True)
class _Window:
    """CPU readings of a host."""

    begun: _Edge
    ended: _Edge

    @property
    def cpu_window_ns(self) -> int:
        return self.begun.guest.wall_ns(self.ended.guest)


def _measured(window: _Window, lines: Sequence[str]) -> Measured:
    used = [late - early for late, early in zip(window.ended.use, window.begun.use, strict=True)]
    return measured(lines, window.begun.at_us, window.ended.at_us, used)


def _offset(guest: Guest) -> Offset:
    """A reading of its clock."""
    ours = Ours()
    sent_ns = ours.now_ns()
    at_us = _time_us(_only(guest.run('echo "NOW $EPOCHREALTIME"'), "NOW"))
    return offset_of(sent_ns, at_us * 1000, ours.now_ns())


def window(load: Load, device: str, clients: str) -> tuple[str, str, float]:
    """The steps at its begin and to its end, and how long the second may take, in seconds."""
    if load.transactions is not None:
        within_s = _TRANSACTION_S * load.transactions * load.workers
        return f"counted_begin {device}", f"counted_window {device} {load.transactions} {clients}", within_s
    runtime_s = load.runtime / 1e9
    begins = f"window_begin {device} {_CHECKPOINT_AT * runtime_s:g}"
    return begins, f"timed_window {device} {runtime_s:g}", _SLOWDOWN * runtime_s


def _script(step: str) -> str:
    return f". /lab/database.sh; {step}"


def _only(lines: Sequence[str], word: str) -> str:
    found = said_of(lines, word)
    if len(found) != 1:
        raise TrialFailed("the database's guest did not say what it measured")
    return found[0]


def _time_us(epoch: str) -> int:
    """A value of the shell's EPOCHREALTIME."""
    seconds, _, fraction = epoch.partition(".")
    return int(seconds) * 1_000_000 + int(f"{fraction:0<6}"[:6])
