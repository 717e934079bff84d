"""CPU time and waits of processes and of the machine, as the kernel reports them."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from bench.sample import Usage

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PROCESS_FIELDS = 3
"""Fields of a `cpu` line: user, nice, system. Interrupts are left out: if the kernel accounts for them separately, they
belong to no process, and those of our own traffic would count as foreign load."""


@dataclass(frozen=True)
class ThreadTimes:
    cpu_s: float
    wait_s: float
    sleeps: int = 0
    """Voluntary context switches."""


@dataclass(frozen=True)
class Reading:
    """All clocks at one instant. Threads are kept by id, so the difference includes threads that started in between."""

    at_s: float
    initiator: dict[int, ThreadTimes]
    target: dict[int, ThreadTimes] | None
    ourselves: dict[int, ThreadTimes]
    busy_s: float


def read(initiator: int, target: int | None) -> Reading:
    """`initiator` and `target` are process ids; their descendants are included."""
    return Reading(
        at_s=time.monotonic(),
        initiator=_family_times(initiator),
        target=None if target is None else _family_times(target),
        ourselves=_times(os.getpid()),
        busy_s=machine_busy_s(Path("/proc/stat").read_text()),
    )


def usage(before: Reading, after: Reading) -> Usage:
    """Usage between two readings."""
    window_s = after.at_s - before.at_s
    initiator = _spent(before.initiator, after.initiator)
    target = None
    if before.target is not None and after.target is not None:
        target = _spent(before.target, after.target)
    known_s = initiator.cpu_s + (target.cpu_s if target else 0.0) + _spent(before.ourselves, after.ourselves).cpu_s
    return Usage(
        window_s=window_s,
        initiator_cpu_s=initiator.cpu_s,
        target_cpu_s=target.cpu_s if target else None,
        run_queue_wait=max(initiator.wait_s, target.wait_s if target else 0.0) / window_s,
        foreign_load=max(0.0, after.busy_s - before.busy_s - known_s) / window_s,
        initiator_sleeps=initiator.sleeps,
        target_sleeps=target.sleeps if target else None,
    )


def machine_busy_s(stat: str) -> float:
    """CPU time of processes on all processors, from /proc/stat."""
    fields = [int(field) for field in stat.splitlines()[0].split()[1:]]
    return sum(fields[:_PROCESS_FIELDS]) * _TICK_S


def _spent(before: dict[int, ThreadTimes], after: dict[int, ThreadTimes]) -> ThreadTimes:
    """CPU time and sleeps of all threads of a side, and the longest wait of one of its threads for other processes.

    A side is pinned to its cores, so its threads also wait for each other, but at most for as long as the other threads
    ran.
    """
    zero = ThreadTimes(0.0, 0.0)
    pairs = [(before.get(thread, zero), times) for thread, times in after.items()]
    spent = [(late.cpu_s - early.cpu_s, late.wait_s - early.wait_s) for early, late in pairs]
    cpu_s = sum(own_s for own_s, _ in spent)
    wait_s = max((max(0.0, wait_s - (cpu_s - own_s)) for own_s, wait_s in spent), default=0.0)
    return ThreadTimes(cpu_s, wait_s, sum(late.sleeps - early.sleeps for early, late in pairs))


def _family_times(root: int) -> dict[int, ThreadTimes]:
    found = {}
    for process in [root, *descendants(root)]:
        found.update(_times(process))
    return found


def _times(process: int) -> dict[int, ThreadTimes]:
    found = {}
    for thread in Path(f"/proc/{process}/task").glob("*"):
        try:
            cpu_ns, wait_ns, _ = (thread / "schedstat").read_text().split()
            sleeps = voluntary_switches((thread / "status").read_text(errors="replace"))
        except (OSError, ValueError):
            continue  # a thread that ended between the listing and the reading
        found[int(thread.name)] = ThreadTimes(int(cpu_ns) * 1e-9, int(wait_ns) * 1e-9, sleeps)
    return found


def voluntary_switches(status: str) -> int:
    """Voluntary context switches of a thread, from /proc/PID/task/TID/status."""
    told = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)
    if told is None:
        raise ValueError("the kernel does not count context switches")
    return int(told[1])


def descendants(root: int) -> list[int]:
    """Process ids of all descendants of a process."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name is in parentheses, and may contain any character.
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
