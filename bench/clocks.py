"""CPU time and waits of processes, and of the machine, as the kernel tells them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from bench.sample import Usage

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PROCESS_FIELDS = 3
"""Of a `cpu` line: user, nice, system. Interrupts are not charged to a process where the kernel times them apart:
our own traffic's would count as somebody else's."""


@dataclass(frozen=True)
class ThreadTimes:
    cpu_s: float
    wait_s: float


@dataclass(frozen=True)
class Reading:
    """Everything at one instant; threads by id, so that the sum counts those that began meanwhile."""

    at_s: float
    initiator: dict[int, ThreadTimes]
    target: dict[int, ThreadTimes] | None
    ourselves: dict[int, ThreadTimes]
    busy_s: float


def read(initiator: int, target: int | None) -> Reading:
    """`initiator` and `target` are process ids; their descendants count with them."""
    return Reading(
        at_s=time.monotonic(),
        initiator=_family_times(initiator),
        target=None if target is None else _family_times(target),
        ourselves=_times(os.getpid()),
        busy_s=machine_busy_s(Path("/proc/stat").read_text()),
    )


def usage(before: Reading, after: Reading) -> Usage:
    """What was spent between two readings."""
    window_s = after.at_s - before.at_s
    initiator_cpu_s, initiator_wait_s = _spent(before.initiator, after.initiator)
    target_cpu_s, target_wait_s = (None, 0.0)
    if before.target is not None and after.target is not None:
        target_cpu_s, target_wait_s = _spent(before.target, after.target)
    own_cpu_s, _ = _spent(before.ourselves, after.ourselves)
    known_s = initiator_cpu_s + (target_cpu_s or 0.0) + own_cpu_s
    return Usage(
        window_s=window_s,
        initiator_cpu_s=initiator_cpu_s,
        target_cpu_s=target_cpu_s,
        run_queue_wait=max(initiator_wait_s, target_wait_s) / window_s,
        foreign_load=max(0.0, after.busy_s - before.busy_s - known_s) / window_s,
    )


def machine_busy_s(stat: str) -> float:
    """Time of processes on all processors, from /proc/stat."""
    fields = [int(field) for field in stat.splitlines()[0].split()[1:]]
    return sum(fields[:_PROCESS_FIELDS]) * _TICK_S


def _spent(before: dict[int, ThreadTimes], after: dict[int, ThreadTimes]) -> tuple[float, float]:
    """CPU seconds of all threads of a side, and the most that a thread of it waited for others than its siblings.

    A side is pinned to its cores, so its threads wait for each other there: no longer than those others ran.
    """
    zero = ThreadTimes(0.0, 0.0)
    pairs = [(before.get(thread, zero), times) for thread, times in after.items()]
    spent = [(late.cpu_s - early.cpu_s, late.wait_s - early.wait_s) for early, late in pairs]
    cpu_s = sum(own_s for own_s, _ in spent)
    return cpu_s, max((max(0.0, wait_s - (cpu_s - own_s)) for own_s, wait_s in spent), default=0.0)


def _family_times(root: int) -> dict[int, ThreadTimes]:
    found = {}
    for process in [root, *_descendants(root)]:
        found.update(_times(process))
    return found


def _times(process: int) -> dict[int, ThreadTimes]:
    found = {}
    for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
        try:
            cpu_ns, wait_ns, _ = path.read_text().split()
        except (OSError, ValueError):
            continue  # a thread that ended between the listing and the reading
        found[int(path.parent.name)] = ThreadTimes(int(cpu_ns) * 1e-9, int(wait_ns) * 1e-9)
    return found


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold anything.
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found: list[int] = []
    new = children.get(root, [])
    while new:
        found += new
        new = [grandchild for child in new for grandchild in children.get(child, [])]
    return found
