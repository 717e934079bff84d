"""CPU time, or instructions, per I/O by layer: one stacked bar for each arm."""

from __future__ import annotations

from iotax.analysis import CellSummary, Run, Summary
from iotax.analysis.profile import cell_profiles
from iotax.analysis.responses import (
    CPU,
    CPU_DISK,
    CPU_GENERATOR,
    CPU_HYPERVISOR,
    CPU_INITIATOR_KERNEL,
    CPU_TARGET,
    CPU_TARGET_KERNEL,
)
from iotax.report.charts.base import Drawing, arm_titles, file_name
from iotax.report.charts.cpu import is_one_clock, stacked
from iotax.wording import figure
from iotax.wording.profile import FAMILIES, LayerTable, families, layer_tables

GENERATOR = "Load generator"
DISK = "Virtual disk"
INITIATOR = "Initiator’s kernel"
BOTH = "Both kernels"
HYPERVISOR = "Hypervisor"
TARGET = "Target’s kernel"
MACHINE = "Target’s machine"
LAYERS = (
    (GENERATOR, "part-rest"),
    (DISK, "part-disk"),
    (INITIATOR, "part-initiator"),
    (BOTH, "part-both"),
    (HYPERVISOR, "part-hypervisor"),
    (TARGET, "part-target"),
    (MACHINE, "part-target"),
)
"""Layers from the load down to the target."""
_INCLUDES = {
    GENERATOR: "the load process in user space, sampled by the kernel’s tick",
    DISK: (
        "QEMU’s storage daemon in user space, sampled in the same way; its system calls, VDUSE and the virtio driver "
        "above it are in the kernel’s part"
    ),
    INITIATOR: (
        "everything else in the initiator’s machine: system calls, file system or block layer, the protocol’s "
        "initiator, "
        "TCP/IP or Fibre Channel, the network card’s driver, interrupts"
    ),
    BOTH: "everything else in the guest, initiator and target together, which cannot be separated there",
    HYPERVISOR: "the QEMU process below the initiator, without its guest: the emulated network card and the link",
    TARGET: (
        "the whole target machine: the network card’s driver, TCP/IP or Fibre Channel, the kernel’s target, the "
        "volume’s file in memory"
    ),
    MACHINE: "everything: the server and the kernel below",
}


def layers(summary: Summary, condition: str) -> Drawing | None:
    """None if no lab separated a generator from the kernel below it."""
    split = {
        cell.arm: parts
        for cell in summary.cells
        if cell.condition == condition and (parts := layers_us(cell)) is not None
    }
    if not split:
        return None
    names = arm_titles(summary)
    heading = condition[:1].upper() + condition[1:]
    said = "; ".join(
        f"{names[arm]}: " + ", ".join(f"{name.lower()} {figure(us)} µs" for name, us in parts.items())
        for arm, parts in split.items()
    )
    return Drawing(
        file_name("cpu layers", condition),
        heading or "CPU time per I/O, layer by layer",
        f"CPU time per I/O by layer. {said}.",
        lambda width: stacked(summary, split, LAYERS, width, heading),
    )


def layers_us(cell: CellSummary) -> dict[str, float] | None:
    """µs per I/O, geometric means over the runs; None if they cannot be separated."""
    values = {key: estimate.value for key, estimate in cell.values.items()}
    generator = values.get(CPU_GENERATOR.key)
    if generator is None:
        return None
    parts = {GENERATOR: generator}
    if (disk := values.get(CPU_DISK.key)) is not None:
        parts[DISK] = disk
    if (kernel := values.get(CPU_INITIATOR_KERNEL.key)) is not None:
        parts[INITIATOR] = kernel
    elif (both := values.get(CPU.key)) is not None:
        parts[BOTH] = max(0.0, both - generator - parts.get(DISK, 0.0))
    if CPU_HYPERVISOR.key in values and all(is_one_clock(run) for run in cell.runs):
        parts[HYPERVISOR] = values[CPU_HYPERVISOR.key]
    if (target := values.get(CPU_TARGET_KERNEL.key)) is not None:
        parts[TARGET] = target
    elif (target := values.get(CPU_TARGET.key)) is not None:
        parts[MACHINE] = target
    return parts


def layers_used(summary: Summary) -> list[tuple[str, str]]:
    """Layers that some bar has, with their colours."""
    used = {name for cell in summary.cells for name in layers_us(cell) or ()}
    return [(name, colour) for name, colour in LAYERS if name in used]


def layers_said(summary: Summary) -> list[str]:
    """What each layer includes, one sentence each, and why the hypervisor is not drawn. If layers were not separated in
    a study with CPU times, the reason."""
    used = [name for name, _ in layers_used(summary)]
    if not used:
        reason = _reason(summary)
        return [f"Layers are not separated: {reason}."] if reason else []
    said = [f"{name}: {_INCLUDES[name]}." for name in used]
    if HYPERVISOR not in used and any(CPU_HYPERVISOR.key in cell.values for cell in summary.cells):
        said.append(
            "The hypervisor is not drawn: its microseconds are this host’s time, the guests’ are instructions they "
            "executed, 4 ns each. Its figure is in the table below."
        )
    return said


def _reason(summary: Summary) -> str:
    runs = [run for cell in summary.cells for run in cell.runs]
    if not any(run.result.cpu_initiator is not None for run in runs):
        return ""
    if any(part.layer == "guest" for run in runs for part in run.result.cpu) and summary.database:
        return "database and pgbench share their guest with its kernel, and only the whole guest was measured"
    if summary.data.simulated:
        return "simulated costs exist only for initiator and target as a whole"
    if any(_is_process(run) for run in runs):
        return (
            "initiator and target are processes in user space, each including this kernel’s work for it; `lab: vm` "
            "measures kernel paths"
        )
    return "the load process’s user time was not measured"


def _is_process(run: Run) -> bool:
    read = run.result.cpu_initiator
    return read is not None and read.layer == "process"


_COLOURS = (
    "part-rest", "part-disk", "part-initiator", "part-target",
    "part-copies", "part-memory", "part-hypervisor", "part-background",
)  # fmt: skip
FAMILY_COLOURS = tuple(zip(FAMILIES, _COLOURS, strict=True))


def instructions(summary: Summary) -> list[Drawing]:
    """One chart for each side and condition, all on one scale; none if no run has a profile."""
    profiles = cell_profiles(summary.cells)
    most = max((each.instructions for each in profiles), default=0.0)
    return [_drawing(summary, each, most) for each in layer_tables(profiles)]


def families_used(summary: Summary) -> list[tuple[str, str]]:
    """Families that some bar has, with their colours."""
    used = {family for profile in cell_profiles(summary.cells) for family in families(profile)}
    return [(family, colour) for family, colour in FAMILY_COLOURS if family in used]


def _drawing(summary: Summary, table: LayerTable, most: float) -> Drawing:
    names = arm_titles(summary)
    split = {each.arm: families(each) for each in table.profiles}
    heading = table.side[:1].upper() + table.side[1:] + (f", {table.condition}" if table.condition else "")
    said = "; ".join(
        f"{names[arm]}: " + ", ".join(f"{family} {figure(count)}" for family, count in parts.items())
        for arm, parts in split.items()
    )
    return Drawing(
        file_name("instructions", table.side, table.condition),
        heading,
        f"Instructions per {summary.counts} by layer. {said}.",
        lambda width: stacked(summary, split, FAMILY_COLOURS, width, heading, unit="instructions", most=most),
    )
