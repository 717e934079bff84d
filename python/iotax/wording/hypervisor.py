"""What CPU per I/O leaves out, or holds, where machines are virtual: the work of the hypervisor below them."""

from iotax.analysis.responses import CPU, CPU_HYPERVISOR, CPU_INITIATOR
from iotax.analysis.summary import Summary
from iotax.wording.figures import figure, listed
from iotax.wording.names import title
from iotax.wording.verdicts import Finding


def left_out(summary: Summary) -> list[Finding]:
    """One sentence, of each arm over all loads, where CPU per I/O is judged and a hypervisor's process was read beside
    its guest; else none. A simulated hypervisor's part is told by `within`."""
    if not {CPU, CPU_INITIATOR} & {*summary.responses}:
        return []
    each = _spent(summary, simulated=False)
    if not each:
        return []
    return [
        Finding("", f"CPU per I/O is that of the guests; the hypervisor spends {each} on each I/O, by its own clock")
    ]


def within(summary: Summary) -> list[Finding]:
    """The same where the hypervisor's part is in CPU per I/O, as simulated."""
    if CPU not in summary.responses:
        return []
    each = _spent(summary, simulated=True)
    return [Finding("", f"Of CPU per I/O the hypervisor spends {each}")] if each else []


def _spent(summary: Summary, *, simulated: bool) -> str:
    """By each arm, over all loads; empty where no hypervisor was read."""
    spent: dict[str, list[float]] = {}
    for cell in summary.cells:
        parts = [run.result.cpu.hypervisor for run in cell.runs]
        known = all(part is not None and part.layer == "process" for part in parts)
        if (
            known
            and CPU_HYPERVISOR.key in cell.values
            and all(bool(run.result.hypervisor_within) == simulated for run in cell.runs)
        ):
            spent.setdefault(cell.arm, []).append(cell.values[CPU_HYPERVISOR.key].value)
    return listed([f"{_reach(us)} with {title(arm)}" for arm, us in spent.items()]) if spent else ""


def _reach(us: list[float]) -> str:
    low, high = figure(min(us)), figure(max(us))
    return f"{low} µs" if low == high else f"{low} to {high} µs"
