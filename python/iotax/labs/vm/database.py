"""PostgreSQL and pgbench in the guests: the database on the volume, and a trial's load on it.

The database is made once in the guest that serves, without any protocol, so that every protocol finds the same bytes.
A trial mounts the file system, starts PostgreSQL and pgbench, reads the clocks of both guests at the two ends of the
window, and stops everything again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iotax.labs.base import TrialFailed
from iotax.labs.generators import GENERATORS
from iotax.labs.generators.pgbench import Measured, client_options, result_of, server_options
from iotax.labs.vm.counters import Idle, Reading, hypervisor_part, spent_ns, target_part
from iotax.labs.vm.guests import Guests, Role
from iotax.labs.vm.hypervisor import HypervisorClocks
from iotax.records import CpuTime, CpuUse
from iotax.study import Settings
from iotax.study.database import memory_bytes, scale
from iotax.study.model import Load
from iotax.trial import TrialResult

_BUILD_S = 600.0
_STEP_S = 240.0
"""PostgreSQL's start and end, which flush what it has."""
_SLOWDOWN = 30
"""How much longer than by its own clock an emulated guest may take on a busy host."""
_TRANSACTION_S = 2.0
"""The longest that transactions may take on average."""
_CHECKPOINT_AT = 0.25
"""Of a window of time: when a checkpoint is asked for."""


@dataclass(frozen=True)
class _Edge:
    """One end of the window."""

    at_us: int
    load_guest: Reading
    target: Reading
    hypervisor: HypervisorClocks
    use: tuple[int, int, int, int]
    """Reads, bytes read, writes, bytes written on the volume so far."""


def is_database(settings: Settings) -> bool:
    return GENERATORS[settings.load.generator].database


def build(guests: Guests, role: Role, settings: Settings) -> None:
    """Lays out file system and database on the volume in this guest. Raises StepFailed and VmFault."""
    checksums = "-k" if settings.load.verify else ""
    script = f". /lab/database.sh; database_build {scale(settings.load, settings.volume)} '{checksums}'"
    guests[role].run(script, timeout_s=_BUILD_S)


@dataclass(frozen=True)
class Run:
    """A trial's load."""

    guests: Guests
    role: Role
    """The guest of the database and its clients."""
    device: str
    both_ends: bool
    """The target stands in the same guest."""
    local: bool
    """There is none."""
    cpus: int
    """Of each guest."""
    idle: Idle

    def measure(self, settings: Settings, *, seed: int, endpoint: str) -> TrialResult:
        """Raises TrialFailed, StepFailed and VmFault."""
        load, guest = settings.load, self.guests[self.role]
        clients = f"{load.workers} '{client_options(settings, seed)}'"
        guest.run(
            _script(
                f"database_begin {self.device} {memory_bytes(load, settings.volume)} '{server_options(settings)}' "
                f"{clients} {load.warmup / 1e9:g}"
            ),
            timeout_s=_STEP_S + _SLOWDOWN * load.warmup / 1e9,
        )
        begins, lasts, within_s = window(load, self.device, clients)
        before = self._edge(begins, _STEP_S)
        after = self._edge(lasts, _STEP_S + within_s)
        said = _said(guest.run(_script(f"database_end {self.device}"), timeout_s=_STEP_S))
        reads, read_bytes, writes, write_bytes = (
            late - early for late, early in zip(after.use, before.use, strict=True)
        )
        measured = Measured(
            begin_us=before.at_us,
            end_us=after.at_us,
            log=said("LOG"),
            version=_only(said("VERSION")).removeprefix("pgbench "),
            reads=reads,
            writes=writes,
            read_bytes=read_bytes,
            write_bytes=write_bytes,
            checkpoints=int(_only(said("CHECKPOINTS"))),
        )
        cpu, window_ns = self._cpu(before, after), before.load_guest.wall_ns(after.load_guest)
        return result_of(measured, settings, endpoint=endpoint, cpu=cpu, cpu_window_ns=window_ns)

    def _edge(self, step: str, timeout_s: float) -> _Edge:
        said = _said(self.guests[self.role].run(_script(step), timeout_s=timeout_s))
        target = Reading.parse(self.guests["storage"].counters(), self.cpus)
        seconds, _, fraction = _only(said("EDGE")).partition(".")
        reads, read_bytes, writes, write_bytes = map(int, _only(said("USE")).split())
        return _Edge(
            at_us=int(seconds) * 1_000_000 + int(f"{fraction:0<6}"[:6]),
            load_guest=Reading.parse(f"COUNTERS {_only(said('COUNTERS'))}", self.cpus),
            target=target,
            hypervisor=self.guests["initiator"].hypervisor(),
            use=(reads, read_bytes, writes, write_bytes),
        )

    def _cpu(self, before: _Edge, after: _Edge) -> CpuUse:
        window_ns = before.load_guest.wall_ns(after.load_guest)
        parts = [
            CpuTime(
                host=f"{self.role} guest",
                role="both" if self.both_ends else "initiator",
                layer="guest",
                busy_ns=before.load_guest.busy_ns(after.load_guest),
                background_ns=round(self.idle.initiator * window_ns),
                window_ns=window_ns,
                processors=self.cpus,
            )
        ]
        if not self.both_ends and not self.local:
            parts.append(target_part(spent_ns(before.target, after.target, self.idle.target), window_ns, self.cpus))
        hypervisor_ns = spent_ns(before.hypervisor, after.hypervisor, self.idle.hypervisor)
        return CpuUse([*parts, hypervisor_part(hypervisor_ns)])


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


def _said(lines: Sequence[str]) -> Callable[[str], list[str]]:
    """What stands behind a first word, line by line."""
    return lambda word: [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]


def _only(found: Sequence[str]) -> str:
    if len(found) != 1:
        raise TrialFailed("the database's guest did not say what it measured")
    return found[0]
