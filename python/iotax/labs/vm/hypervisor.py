"""CPU of the hypervisor: a QEMU process less its guest.

Under KVM the guest's share is what the kernel counts as guest time. Under emulation it is the thread that stands for
the processor, which does part of the devices' work too: the hypervisor's figure is then without that part. It is time
of this host, where a guest's figure is time by the guest's own clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iotax.labs.proc import process_clock_ns, stat_fields
from iotax.records.cpu import TICK_NS


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
