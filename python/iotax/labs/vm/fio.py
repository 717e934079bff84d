"""fio in the guest of the load.

fio tells its I/Os and their latency. What they cost is read beside it. The clocks of its own guest are read twice
within its window, where that guest does nothing but this load, so that the whole window costs as much more as it is
longer. The target and the initiator's hypervisor are read before fio begins and after it has ended, and of what they
spent the window has its share of the bytes, as with the engine.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass

from iotax.labs.base import TrialFailed
from iotax.labs.generators import GENERATORS
from iotax.labs.vm.counters import HypervisorClocks, Idle, LoadCost, Reading, hypervisor_part, target_part, with_cpu
from iotax.labs.vm.guests import Guests, Role
from iotax.records import CpuTime
from iotax.records.cpu import TICK_NS
from iotax.study import Settings
from iotax.trial import TrialResult

_EDGE = 0.1
"""Share of the window at either end that the readings leave out: fio does not say when exactly it begins."""
_EDGE_MIN_NS = 250_000_000
"""And no less; a third of a short window: the guest checks twenty times a second whether fio has started."""
_STEP_S = 120.0
_SLOWDOWN = 30
"""Extra time that an emulated guest may take on a busy host beyond its own clock."""


@dataclass(frozen=True)
class _Edge:
    """The clocks at one instant."""

    load_guest: Reading
    processes: dict[str, tuple[int, int]]
    """FIO and DISK → time in user space and in the kernel, in ns."""


@dataclass(frozen=True)
class _Around:
    """Readings before fio, or after it."""

    target: Reading
    hypervisor: HypervisorClocks
    moved: int
    """Bytes that its kernel has read and written on the volume so far."""


@dataclass(frozen=True)
class Run:
    """A trial's load."""

    guests: Guests
    role: Role
    """The guest that it runs in."""
    path: str
    """Path of the volume in the guest."""
    daemon: int | None
    """The process there that serves it a virtual disk, if there is one."""
    both_ends: bool
    """The target stands in the same guest."""
    local: bool
    """There is none."""
    cpus: int
    """Processors of each guest."""
    idle: Idle

    def measure(self, settings: Settings, *, seed: int, endpoint: str) -> TrialResult:
        """Raises TrialFailed, StepFailed and VmFault."""
        load = settings.load
        # A file in memory takes no direct I/O.
        program = GENERATORS[load.generator]
        job = program.guest_job(settings, self.path, direct=not self.local, seed=seed)
        daemon = "" if self.daemon is None else str(self.daemon)
        started_unix_ns = time.time_ns() + load.warmup
        edge_ns = min(max(_EDGE * load.runtime, _EDGE_MIN_NS), load.runtime / 3)
        first_s = (load.warmup + edge_ns) / 1e9
        before = self._around()
        last_s = (load.runtime - 2 * edge_ns) / 1e9
        # Both in one step: between two, the guest's clock goes on while we are slow.
        step = f"fio_begin {self.path} {first_s:g} {last_s:g} '{daemon}' {shlex.quote(job)}"
        first, last = self._edges(self._run(step, first_s + last_s))
        said = self._run("fio_end", edge_ns / 1e9)
        after = self._around()
        result = program.guest_result(
            "\n".join(said),
            settings,
            endpoint=endpoint,
            cpu_window_ns=first.load_guest.wall_ns(last.load_guest),
            started_unix_ns=started_unix_ns,
        )
        return with_cpu(result, self._cpu(first, last, result) + self._beyond(before, after, result))

    def _edges(self, said: list[str]) -> list[_Edge]:
        found: list[_Edge] = []
        for line in said:
            name, *ticks = line.split()
            if name == "COUNTERS":
                found.append(_Edge(Reading.parse(line, self.cpus), {}))
            elif found and name in ("FIO", "DISK"):
                user, system = (int(each) * TICK_NS for each in ticks)
                found[-1].processes[name] = user, system
        if len(found) != len(("first", "last")) or any("FIO" not in each.processes for each in found):
            raise TrialFailed("fio ended before its window did", "\n".join(said))
        return found

    def _run(self, step: str, takes_s: float) -> list[str]:
        timeout_s = _STEP_S + _SLOWDOWN * takes_s
        return [line for line in self.guests[self.role].run(f". /lab/fio.sh; {step}", timeout_s=timeout_s) if line]

    def _around(self) -> _Around:
        return _Around(
            Reading.parse(self.guests["storage"].counters(), self.cpus),
            self.guests["initiator"].hypervisor(),
            self.guests[self.role].bytes(self.path),
        )

    def _cpu(self, first: _Edge, last: _Edge, result: TrialResult) -> list[CpuTime]:
        """CPU of its own guest, for the whole window."""
        window_ns = result.window.duration_ns
        stretch = window_ns / max(1, first.load_guest.wall_ns(last.load_guest))
        host = f"{self.role} guest"
        parts = [
            CpuTime(
                host=host,
                role="both" if self.both_ends else "initiator",
                layer="guest",
                busy_ns=round(first.load_guest.busy_ns(last.load_guest) * stretch),
                background_ns=round(self.idle.initiator * window_ns),
                window_ns=window_ns,
                processors=self.cpus,
            )
        ]
        for name, role in (("FIO", "initiator"), ("DISK", "disk")):
            if name in first.processes and name in last.processes:
                user_ns, system_ns = (
                    round((late - early) * stretch)
                    for early, late in zip(first.processes[name], last.processes[name], strict=True)
                )
                parts.append(
                    CpuTime(
                        host=host,
                        role=role,
                        layer="process",
                        busy_ns=user_ns + system_ns,
                        window_ns=window_ns,
                        processors=self.cpus,
                        resolution_ns=TICK_NS,
                        user_ns=user_ns,
                        system_ns=system_ns,
                    )
                )
        return parts

    def _beyond(self, before: _Around, after: _Around, result: TrialResult) -> list[CpuTime]:
        """CPU of the others: a share of the whole load's."""
        parts, moved = [], after.moved - before.moved
        target_ns = LoadCost(before.target, after.target, moved).cpu_ns(result.moved_bytes, self.idle.target)
        if target_ns is not None and not self.both_ends and not self.local:
            parts.append(target_part(target_ns, result.window.duration_ns, self.cpus))
        spent_ns = LoadCost(before.hypervisor, after.hypervisor, moved).cpu_ns(result.moved_bytes, self.idle.hypervisor)
        if spent_ns is not None:
            parts.append(hypervisor_part(spent_ns))
        return parts
