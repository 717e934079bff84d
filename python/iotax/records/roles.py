"""CPU time by role: the one definition that every lab and every import fills, and every response follows.

- initiator: what the path needs where the load runs. A path in user space: the load process. A path in the kernel: the
  machine less its background. A virtual machine: all of the guest, by its own clock.
- target: the server's process, or its machine less its background.
- hypervisor: what runs the initiators, less what these spent themselves, in user space and in the kernel. A host that
  esxtop reads: `Physical Cpu(_Total)\\% Util Time` times its processors, less its guests' own time. A host with KVM:
  its
  busy time less the `guest` column of /proc/stat. The lab of virtual machines: the QEMU process less its guest.
- machine: all that was busy, background included. A guest is counted within the host that runs it, never twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from iotax.records.cpu import CpuTime, CpuUse
from iotax.records.facts import Facts

CpuRole: TypeAlias = Literal["initiator", "target", "hypervisor", "machine"]
CPU_ROLES: tuple[CpuRole, ...] = ("initiator", "target", "hypervisor", "machine")


class Lack(StrEnum):
    """Why a result has no CPU time of a role."""

    NOT_READ = "not read"
    GUESTS = "guests"
    """The host was read and its guests were not, so that its own part is not known."""
    BACKGROUND = "background"
    """A machine counts for a path in its kernel only minus its background, which was not measured."""
    TOGETHER = "together"
    """Initiator and target are one machine."""
    NOBODY = "nobody"
    """There is no server of the volume."""


@dataclass(frozen=True)
class RoleCpu:
    """The readings of one role of one result; without `parts` if one is missing."""

    parts: tuple[CpuTime, ...] = ()
    lack: Lack | None = None
    gross: bool = False
    """The background counts."""

    @property
    def net_ns(self) -> int | None:
        """The cost of the load."""
        if self.gross:
            return sum(part.busy_ns for part in self.parts) if self.parts else None
        return sum(part.net_ns for part in self.parts) if self.parts else None

    @property
    def own_ns(self) -> int | None:
        """Busy time, guests aside and background included, as a utilisation is read."""
        return sum(part.busy_ns if self.gross else part.own_ns for part in self.parts) if self.parts else None

    @property
    def share(self) -> float | None:
        """`own_ns` as a share of these parts' processors; None if their number or the window is unknown."""
        could_ns = [(part.window_ns or 0) * (part.processors or 0) for part in self.parts]
        return (self.own_ns or 0) / sum(could_ns) if could_ns and all(could_ns) else None


def cpu_of(cpu: CpuUse, facts: Facts, role: CpuRole) -> RoleCpu:
    """The readings of a role in a result, or why there are none."""
    match role:
        case "initiator":
            return _initiator(cpu, facts)
        case "target":
            if facts.served == "nobody":
                return RoleCpu(lack=Lack.NOBODY)
            return _only(cpu.part("target", "guest", "process", "machine"), cpu)
        case "hypervisor":
            whole = cpu.part("hypervisor", "machine")
            if whole is not None and whole.guests_ns is None:
                return RoleCpu(lack=Lack.GUESTS)
            return RoleCpu((part,)) if (part := cpu.hypervisor) is not None else RoleCpu(lack=Lack.NOT_READ)
        case "machine":
            parts = tuple(cpu.machines)
            return RoleCpu(parts, gross=True) if parts else RoleCpu(lack=Lack.NOT_READ)


def _initiator(cpu: CpuUse, facts: Facts) -> RoleCpu:
    if (own := cpu.part("initiator", "machine")) is not None:
        # A machine that does nothing but initiate, as stated when its figures were imported, is taken whole.
        return RoleCpu((own,))
    if facts.stack == "kernel" and cpu.part("initiator", "guest") is None:
        machine = cpu.part("other", "machine", "guest")
        if machine is not None:
            return RoleCpu((machine,)) if machine.background_ns is not None else RoleCpu(lack=Lack.BACKGROUND)
        return RoleCpu(lack=Lack.TOGETHER if cpu.part("both") is not None else Lack.NOT_READ)
    return _only(cpu.initiator, cpu)


def _only(part: CpuTime | None, cpu: CpuUse) -> RoleCpu:
    if part is not None:
        return RoleCpu((part,))
    return RoleCpu(lack=Lack.TOGETHER if cpu.part("both") is not None else Lack.NOT_READ)
