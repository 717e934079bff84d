"""Processes and memory of this machine's Linux (proc(5)), and programs that must not outlive us (prctl(2))."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path


def process_clock_ns(pid: int) -> int:
    """CPU time of another process, by its clock as clock_getcpuclockid(3) names it. Raises OSError once it is gone."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def stat_fields(stat: str) -> list[str]:
    """The fields of a `stat` file from field 3 on: the name in parentheses before them may hold anything."""
    return stat.rpartition(")")[2].split()


def memory_free_bytes() -> int:
    """Memory available to a new program without swapping (MemAvailable, since Linux 3.14)."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/meminfo has no MemAvailable")


SETPRIV = "setpriv"
"""A program of util-linux."""


def ending_with_us(command: Sequence[str | Path]) -> list[str | Path]:
    """The command, wrapped so that the kernel kills it when the thread that started it ends."""
    return [SETPRIV, "--pdeathsig", "KILL", "--", *command]
