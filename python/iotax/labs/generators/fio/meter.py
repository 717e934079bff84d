"""CPU of other processes and of the machine over a window, for a generator that does not measure it itself.

Process times are the kernel's precise clocks; the machine's are /proc/stat, in ticks, as the engine reads them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from iotax.labs.proc import process_clock_ns, stat_fields
from iotax.records import Core, CpuTime, CpuUse, Role
from iotax.records.cpu import TICK_NS

_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_BUSY = ("user", "nice", "system", "irq", "softirq")


@dataclass(frozen=True)
class _Process:
    total_ns: int
    user_ticks: int
    system_ticks: int
    wait_ns: int
    max_rss_bytes: int


@dataclass(frozen=True)
class Reading:
    """CPU time of all live watched processes and of every core, at one instant."""

    at_ns: int
    processes: dict[str, _Process]
    cores: dict[int, tuple[int, ...]]


def read(pids: Mapping[str, int]) -> Reading:
    """A process that has ended is left out."""
    at_ns = time.monotonic_ns()
    processes = {}
    for name, pid in pids.items():
        with contextlib.suppress(OSError):
            processes[name] = _process(pid)
    return Reading(at_ns, processes, _cores())


def between(first: Reading, last: Reading, pids: Mapping[str, int], *, window_ns: int) -> CpuUse:
    """Cost of a window of `window_ns` at the rate between the readings."""
    stretch = window_ns / max(1, last.at_ns - first.at_ns)
    roles: tuple[Role, ...] = ("initiator", "target")
    parts = [
        _used(role, pids[role], first.processes[role], last.processes[role], stretch, window_ns)
        for role in roles
        if role in first.processes and role in last.processes
    ]
    cores = [_core(cpu, first.cores[cpu], last.cores[cpu], stretch) for cpu in sorted(last.cores) if cpu in first.cores]
    busy_ns = sum(getattr(core, f"{field}_ns") for core in cores for field in _BUSY)
    machine = CpuTime(
        role="other",
        layer="machine",
        busy_ns=busy_ns,
        window_ns=window_ns,
        processors=len(cores) or None,
        resolution_ns=TICK_NS,
        cores=cores,
    )
    return CpuUse([*parts, machine])


def _process(pid: int) -> _Process:
    total_ns = process_clock_ns(pid)
    folder = Path(f"/proc/{pid}")
    fields = stat_fields((folder / "stat").read_text(encoding="ascii", errors="replace"))
    wait_ns = 0
    for task in (folder / "task").iterdir():
        with contextlib.suppress(OSError, IndexError, ValueError):
            wait_ns += int((task / "schedstat").read_text(encoding="ascii").split()[1])
    return _Process(total_ns, int(fields[11]), int(fields[12]), wait_ns, _peak_bytes(folder))


def _peak_bytes(folder: Path) -> int:
    for line in (folder / "status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def _used(role: Role, pid: int, first: _Process, last: _Process, stretch: float, window_ns: int) -> CpuTime:
    total_ns = round((last.total_ns - first.total_ns) * stretch)
    user, system = last.user_ticks - first.user_ticks, last.system_ticks - first.system_ticks
    user_ns = round(total_ns * user / (user + system)) if user + system else 0
    return CpuTime(
        role=role,
        layer="process",
        busy_ns=total_ns,
        window_ns=window_ns,
        pid=pid,
        user_ns=user_ns,
        system_ns=total_ns - user_ns,
        run_queue_wait_ns=max(0, round((last.wait_ns - first.wait_ns) * stretch)),
        max_rss_bytes=last.max_rss_bytes,
    )


def _cores() -> dict[int, tuple[int, ...]]:
    found = {}
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *ticks = line.split()
        if name.startswith("cpu") and name != "cpu":
            found[int(name.removeprefix("cpu"))] = tuple(map(int, ticks[: len(_FIELDS)]))
    return found


def _core(cpu: int, first: tuple[int, ...], last: tuple[int, ...], stretch: float) -> Core:
    spent = {
        f"{name}_ns": max(0, round((after - before) * TICK_NS * stretch))
        for name, before, after in zip(_FIELDS, first, last, strict=True)
    }
    return Core(cpu=cpu, **spent)
