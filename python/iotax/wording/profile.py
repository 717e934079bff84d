"""Profiles of instructions as rows that a terminal and a page print alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iotax.analysis.profile import CellProfile, Difference, MemoryCounts, ProfileChange
from iotax.wording.figures import title

STRINGS = (
    "The emulator counts each step of a string instruction (rep movsb, rep stosb: memcpy, memset, clear_page) as an "
    "instruction, so copies weigh more than on a processor."
)
CALLS = (
    "A function below half a percent, with all that it calls, is counted with its caller. Each program is one box, "
    "whatever it calls."
)
MEMORY = (
    "The kernel copied these bytes, by copying functions (memcpy, memmove, to and from user space) or by rep movs; the "
    "function is the one that asked for the copy. Copies within programs, and small ones that the compiler made simple "
    "moves, are not counted. Cache lines have 64 bytes. They are those that a modelled data cache (32 KiB, 8 ways, by "
    "virtual address) had to fetch. A real processor prefetches and has larger caches behind."
)
MEMORY_COUNTS: Mapping[str, MemoryCounts] = {"Bytes copied": "copied_bytes", "Cache lines": "cache_lines"}
"""Heading → its name in a profile."""
MEMORY_MAX = 8
"""Number of functions named."""
COPIES_WEIGH = "Copies count more than on a processor; this and functions: see --long."
COPIES_DIFFER = "Kernels that copy with different instructions differ for that reason alone."
OWN_INTERVALS = "Each 95 % interval stands alone: of 100 unchanged functions, about 5 seem to change."
_SIDES = {"initiator": "initiator", "target": "target", "both": "initiator and target together"}
FAMILIES = {
    "Load, files, system calls": ("load generator", "system calls, io_uring", "VFS, page cache", "file systems"),
    "Block, SCSI, NVMe": ("block layer", "SCSI", "NVMe", "virtual disk"),
    "Storage protocol and target": (
        "transport", "NFS, RPC", "SCSI target", "NVMe target", "NFS server", "target program",
    ),
    "TCP/IP, network": ("TCP/IP", "network core, softirq"),
    "Copies, checksums, crypto": ("copies", "checksums, crypto", "encryption"),
    "Memory management": ("memory management", "data structures"),
    "Scheduling, locks, interrupts": ("scheduling, wake-ups", "locks, RCU", "interrupts, timers"),
    "Not named": ("lab", "unnamed"),
}  # fmt: skip
"""Families: layers that a chart draws as one, in the order of an I/O's path."""
_LEAD_MAX = 2
FUNCTIONS_MAX = 5
"""Functions named for each treatment on a terminal; the JSON has all."""


@dataclass(frozen=True)
class LayerTable:
    """One side's layers by arm, under one condition."""

    condition: str
    side: str
    profiles: tuple[CellProfile, ...]
    """One profile for each column."""
    layers: tuple[str, ...]
    """The largest layers first; less than one instruction per I/O is left out."""

    @property
    def arms(self) -> list[str]:
        return [title(each.arm) for each in self.profiles]

    def figures(self, layer: str) -> list[float]:
        """Instructions per I/O, by column."""
        return [each.layers.get(layer, 0.0) for each in self.profiles]


def families(profile: CellProfile) -> dict[str, float]:
    """Family → instructions per I/O, in the order of `FAMILIES`; only families with instructions."""
    layers = profile.layers
    spent = {family: sum(layers.get(each, 0.0) for each in own) for family, own in FAMILIES.items()}
    return {family: instructions for family, instructions in spent.items() if instructions > 0}


def layer_tables(profiles: Sequence[CellProfile]) -> list[LayerTable]:
    groups: dict[tuple[str, str], list[CellProfile]] = {}
    together = any(each.role == "both" for each in profiles)
    for each in profiles:
        # A local volume has no target, so its profile stands with those of one machine.
        role = "both" if together and each.role == "initiator" else each.role
        groups.setdefault((each.condition, _SIDES.get(role, role)), []).append(each)
    return [LayerTable(condition, side, tuple(own), _ordered(own)) for (condition, side), own in groups.items()]


def most_memory(table: LayerTable, counts: str) -> list[tuple[str, str]]:
    """The functions with the highest of one of `MEMORY_COUNTS`; none if it was not counted."""
    total: Counter[tuple[str, str]] = Counter()
    for each in table.profiles:
        total.update(getattr(each, counts))
    return [key for key, count in total.most_common(MEMORY_MAX) if count >= 1]


def largest(profile: CellProfile) -> str:
    """The profile's largest functions, in a line."""
    shown = list(profile.functions.items())[:FUNCTIONS_MAX]
    return ", ".join(f"{name} {instructions:,.0f}" for (_, name), instructions in shown)


def change_lead(change: ProfileChange) -> str:
    """ "NVMe/TCP: 43,000 → 52,400 instructions per I/O, +9,400 [+9,100, +9,700]"; names the machine if there are
    several."""
    before, after, more = difference_cells(change.total)
    where = title(change.treatment) or "all"
    side = "" if change.role == "both" else f", {_SIDES.get(change.role, change.role)}"
    return f"{where}{side}: {before} → {after} instructions per I/O, {more}"


def largest_changes(change: ProfileChange) -> str:
    """The layers that changed most, in a line."""
    return "; ".join(f"{each.layer} {_more(each.more)}" for each in change.layers[:_LEAD_MAX])


def difference_cells(each: Difference) -> tuple[str, str, str]:
    """Before, after, and the difference with its interval."""
    span = "" if each.low is None or each.high is None else f" [{_more(each.low)}, {_more(each.high)}]"
    return f"{each.before:,.0f}", f"{each.after:,.0f}", f"{_more(each.more)}{span}"


def change_rows(change: ProfileChange) -> list[tuple[str, str, str, str]]:
    """Layers, bytes copied and cache lines, with their differences."""
    named = [(each.layer, each) for each in change.layers if not_zero(each)]
    named += [(heading, change.memory[counts]) for heading, counts in MEMORY_COUNTS.items() if counts in change.memory]
    return [(name, *difference_cells(each)) for name, each in named]


def not_zero(each: Difference) -> bool:
    """Whether it would show a figure."""
    return bool(round(each.before) or round(each.after))


def change_note(changes: Sequence[ProfileChange]) -> str:
    """What the reader of differences must know."""
    memory = [MEMORY] if any(each.memory for each in changes) else []
    return " ".join([OWN_INTERVALS, STRINGS, COPIES_DIFFER, *memory])


def _more(instructions: float) -> str:
    rounded = round(instructions)
    return f"{'−' if rounded < 0 else '+' if rounded else ''}{abs(rounded):,}"


def _ordered(profiles: Sequence[CellProfile]) -> tuple[str, ...]:
    total: Counter[str] = Counter()
    for each in profiles:
        total.update(each.layers)
    return tuple(layer for layer, instructions in total.most_common() if instructions >= 1)
