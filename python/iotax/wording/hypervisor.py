"""What CPU per I/O leaves out where machines are virtual: the work of the hypervisor below them."""

from iotax.analysis.responses import CPU, CPU_HYPERVISOR, CPU_INITIATOR
from iotax.analysis.summary import Summary
from iotax.wording.figures import figure, listed
from iotax.wording.names import title
from iotax.wording.verdicts import Finding


def left_out(summary: Summary) -> list[Finding]:
    """One sentence, of each arm over all loads, where CPU per I/O is judged and a hypervisor's process was read beside
    its guest; else none."""
    if not {CPU, CPU_INITIATOR} & {*summary.responses}:
        return []
    spent: dict[str, list[float]] = {}
    for cell in summary.cells:
        parts = [run.result.cpu.hypervisor for run in cell.runs]
        if all(part is not None and part.layer == "process" for part in parts) and CPU_HYPERVISOR.key in cell.values:
            spent.setdefault(cell.arm, []).append(cell.values[CPU_HYPERVISOR.key].value)
    if not spent:
        return []
    each = listed([f"{_reach(us)} with {title(arm)}" for arm, us in spent.items()])
    return [
        Finding("", f"CPU per I/O is that of the guests; the hypervisor spends {each} on each I/O, by its own clock")
    ]


def _reach(us: list[float]) -> str:
    low, high = figure(min(us)), figure(max(us))
    return f"{low} µs" if low == high else f"{low} to {high} µs"
