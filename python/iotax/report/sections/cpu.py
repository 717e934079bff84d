"""CPU time per I/O: where it was spent, layer by layer, and function by function."""

from __future__ import annotations

from iotax.analysis import CellSummary, Response, Summary
from iotax.analysis.responses import (
    CPU,
    CPU_HOST_REST,
    CPU_HYPERVISOR,
    CPU_INITIATOR,
    CPU_IO_THREADS,
    CPU_MACHINE,
    CPU_QEMU,
    CPU_TARGET,
    CPU_VHOST,
    EVENTS,
    IOPS,
    UTILISATION,
)
from iotax.records import CPU_ROLES
from iotax.report import charts
from iotax.report.charts.cpu import BACKGROUND, parts_us
from iotax.report.section import Folded, Heading, Legend, Panels, Part, Section, Source, Table, note
from iotax.report.sections import profile
from iotax.report.tables import Column, Figure, Group, absolute, both, by_condition
from iotax.study.imported import ImportedStudy
from iotax.units import show_share
from iotax.wording import figure
from iotax.wording.conditions import encrypted
from iotax.wording.processors import contents


def section(source: Source) -> Section | None:
    summary = source.summary
    groups = cpu_groups(summary)
    if not groups:
        return None
    heading = f"CPU time per {summary.counts}"
    parts = [
        *_split(source),
        *_layers(source),
        *profile.parts(source),
        Table(cpu_columns(summary), groups, heading),
        note(" ".join(_how(summary)), "What the columns contain."),
        *_over_time(source),
        *_utilisation(source),
    ]
    return Section("cpu", heading, parts, "CPU")


def _split(source: Source) -> list[Part]:
    summary = source.summary
    split = source.drawn(charts.cpu_split(summary, each) for each in source.conditions)
    if not split:
        return []
    caption = " ".join(filter(None, (charts.cpu_caption(summary), encrypted(summary))))
    return [Panels(split, caption, legend=Legend(charts.parts_used(summary)))]


def _layers(source: Source) -> list[Part]:
    summary = source.summary
    drawn = source.drawn(charts.layers(summary, each) for each in source.conditions)
    said = charts.layers_said(summary)
    if drawn:
        caption = "\n".join(filter(None, (*said, encrypted(summary))))
        legend = Legend(charts.layers_used(summary))
        return [Heading("Layer by layer"), Panels(drawn, caption, legend=legend)]
    return [note(" ".join(said))] if said else []


def _over_time(source: Source) -> list[Part]:
    summary = source.summary
    drawn = source.drawn(
        charts.cpu_over_time(summary, source.looks, condition, role)
        for condition in source.conditions
        for role in CPU_ROLES
    )
    if not drawn:
        return []
    caption = (
        "Busy processors of each role within each run, a line for each run; including their background without load."
    )
    return [Folded("CPU over time by role", [Panels(drawn, caption, legend=source.legend())])]


def _utilisation(source: Source) -> list[Part]:
    """Utilisation by role, of the role's own processors; nothing if their number is unknown."""
    summary = source.summary
    responses = [each for each in UTILISATION if _has(summary, each)]
    if not responses:
        return []
    columns = []
    for response in responses:
        role = response.title.partition(", ")[2]
        columns += [Column(role[:1].upper() + role[1:], "% busy"), Column("relative", f"{source.base} = 100")]
    known = {each.key for each in responses}
    cells = [cell for cell in summary.cells if known & cell.values.keys()]
    groups = by_condition(cells, lambda cell: [f for each in responses for f in both(summary, cell, each)])
    text = (
        "Percent of the role’s own processors, including their background. It compares costs only at equal rates; name "
        "`cpu_utilisation` under `responses` for charts and verdicts."
    )
    label = "CPU utilisation by role"
    return [Folded(label, [Table(columns, groups, label), note(text)])]


_OF_HYPERVISOR = (
    ("of it QEMU", CPU_QEMU),
    ("of it I/O threads", CPU_IO_THREADS),
    ("of it vhost", CPU_VHOST),
    ("of it the rest", CPU_HOST_REST),
)
"""CPU time of a KVM host besides its guests, if their processes were read too."""


def cpu_columns(summary: Summary) -> list[Column]:
    each = f"µs per {summary.counts}"
    hypervisor = [Column("Hypervisor", each)] if _has_hypervisor(summary) else []
    hypervisor += [Column(name, each) for name, response in _OF_HYPERVISOR if _has(summary, response)]
    return [
        Column("Initiator", each),
        Column("Target", each),
        Column("Both", each),
        *hypervisor,
        Column("Whole machine", each),
        Column(BACKGROUND, each),
        Column("Busy", "processors"),
        *(Column(response.title.replace(" per I/O", ""), f"{response.unit} per I/O") for response in _counted(summary)),
    ]


def cpu_groups(summary: Summary) -> list[Group]:
    """Empty if no CPU time is known."""
    hypervisor = [CPU_HYPERVISOR] if _has_hypervisor(summary) else []
    hypervisor += [response for _, response in _OF_HYPERVISOR if _has(summary, response)]
    shown = [summary.counted(each) for each in (CPU_INITIATOR, CPU_TARGET, CPU, *hypervisor, CPU_MACHINE)]
    known = {each.key for each in shown}

    def figures(cell: CellSummary) -> list[Figure]:
        background = parts_us(summary, cell).get(BACKGROUND)
        own = [absolute(cell.values.get(response.key)) for response in shown]
        machine, iops = cell.values.get(CPU_MACHINE.key), cell.values.get(IOPS.key)
        busy = figure(machine.value * iops.value / 1e6) if machine and iops else "–"
        counted = [absolute(cell.values.get(response.key)) for response in _counted(summary)]
        return [*own, Figure("–" if background is None else figure(background)), Figure(busy), *counted]

    return by_condition([c for c in summary.cells if known & c.values.keys()], figures)


def _counted(summary: Summary) -> list[Response]:
    """Processor counters that some run has."""
    return [response for response in EVENTS if _has(summary, response)]


def _has_hypervisor(summary: Summary) -> bool:
    return _has(summary, summary.counted(CPU_HYPERVISOR))


def _has(summary: Summary, response: Response) -> bool:
    return any(response.key in cell.values for cell in summary.cells)


_HOW_CPU_SIMULATED = (
    "Nothing was measured: the cost table assigns CPU time to the work that the stacks did in the measured window; it "
    "is divided by the I/Os that completed in the window."
)
_HOW_CPU_DATABASE = (
    "The initiator's guest also runs PostgreSQL and pgbench; CPU is divided by the transactions that ended in the "
    "window."
)
_HOW_CPU_VM = (
    "Under emulation the hypervisor's figure leaves out the thread of the guest's processor, and with it the device "
    "emulation in that thread. If guests count instructions, a guest's microsecond is 250 instructions and the "
    "hypervisor's is real time: do not add the two."
)
_HOW_CPU_DISK = (
    "With a virtual disk (VDUSE), the initiator's figure includes everything between load and initiator, as on a "
    "hypervisor's host: the virtio driver, VDUSE with its copy of the data, and QEMU's storage daemon. It includes no "
    "guest entries or exits."
)


def _how_events(summary: Summary) -> list[str]:
    parts = [part for run in summary.data.runs for part in run.result.cpu]
    if any(part.events is not None for part in parts):
        return ["The processor counted instructions and cycles in the threads of both processes."]
    reason = next((part.no_events for part in parts if part.no_events), None)
    return [] if reason is None else [f"Instructions and cycles were not counted: {reason}."]


def _how_workers(summary: Summary) -> list[str]:
    """Hosts that Dask workers reach."""
    shares = [
        part.busy_ns / part.window_ns
        for run in summary.data.runs
        for part in run.result.cpu
        if (part.role, part.layer) == ("other", "process") and part.window_ns
    ]
    if not shares:
        return []
    return [
        "A Dask worker runs on each host beside the load; it took up to "
        f"{show_share(max(shares))} of a core over a window. It is part of the machines' figures, not of the "
        "processes'."
    ]


def _how(summary: Summary) -> list[str]:
    """The contents of each column of CPU time, with further remarks."""
    data = summary.data
    text = contents(summary)
    if isinstance(data.study, ImportedStudy):
        return text
    if data.simulated:
        return [_HOW_CPU_SIMULATED, *text]
    if any(run.result.facts.lab == "vm" for run in data.runs):
        disks = any(part.role == "disk" for run in data.runs for part in run.result.cpu)
        return [
            *text,
            *([_HOW_CPU_DATABASE] if summary.database else []),
            _HOW_CPU_VM,
            *([_HOW_CPU_DISK] if disks else []),
        ]
    text += ["Each is measured over the window and divided by the I/Os that completed in it."]
    text += _how_events(summary)
    text += _how_workers(summary)
    cores = data.background_cores
    if cores is not None:
        text.append(
            f"Without load the machine kept {figure(cores)} processors busy. This background is shown as its share of "
            "the rest of the machine."
        )
    else:
        text.append("The machine's background without load was not measured.")
    return text
