"""CPU time by role: what each column contains, how it was measured, and why a role has none."""

from collections.abc import Sequence
from statistics import fmean

from iotax.analysis.responses import CPU, CPU_HYPERVISOR, CPU_INITIATOR, ROLE_OF, ROLES, Response, Run
from iotax.analysis.summary import CellSummary, Summary
from iotax.analysis.withheld import Unread, lack_of
from iotax.records import CpuRole, CpuTime, Lack
from iotax.study.imported import ImportedStudy
from iotax.trial import ControllerWork
from iotax.wording.figures import Finding, figure, listed, percent, title

COLUMNS: dict[CpuRole, str] = {
    "initiator": "Initiator",
    "target": "Target",
    "hypervisor": "Hypervisor",
    "machine": "Whole machine",
}


def contents(summary: Summary) -> list[str]:
    """For each column of CPU time its contents and how it was measured, or why it is empty, one sentence each."""
    runs = summary.data.runs
    said = [f"{COLUMNS[role]}: {_column(role, runs, summary)}." for role in ROLES if _is_asked(role, summary)]
    if any(run.result.cpu.part("both") is not None for run in runs):
        said.insert(2, "Both: all of the one guest that is initiator and target.")
    return said


def _is_asked(role: CpuRole, summary: Summary) -> bool:
    """A machine without a hypervisor reports none."""
    known = role != "hypervisor" or lack_of(role, summary.data.runs) is not Lack.NOT_READ
    return known or any(ROLE_OF.get(each.response.key) == role for each in summary.unread)


def _column(role: CpuRole, runs: Sequence[Run], summary: Summary) -> str:
    found = list(dict.fromkeys(_measured(role, run) for run in runs if run.result.role(role).parts))
    if found:
        return "; elsewhere ".join(found)
    return f"none: {_why(role, lack_of(role, runs), summary)}"


def _measured(role: CpuRole, run: Run) -> str:
    result = run.result
    parts = result.role(role).parts
    first, facts = parts[0], result.facts
    if facts.simulated:
        return _SIMULATED[role]
    if facts.lab == "elsewhere":
        return _recorded(role, parts)
    if facts.lab == "vm":
        return _VM[role]
    if role == "machine":
        return _machines(parts)
    if role == "hypervisor":
        return _of_host(first)
    if first.layer == "process":
        return f"the {'load' if role == 'initiator' else 'server'} process, by its own CPU clock in nanoseconds"
    what = f"the {role}’s {'virtual machine' if first.layer == 'guest' else 'machine'}"
    less = ", minus its background without load" if first.background_ns is not None else ""
    return (
        f"all busy time of {what} by /proc/stat (ticks of 10 ms), since kernel threads and interrupts do the work{less}"
    )


def _machines(parts: Sequence[CpuTime]) -> str:
    hosts = any(part.role == "hypervisor" for part in parts)
    guests = ", guests within their hosts and counted once" if hosts else ""
    ticks = "/proc/stat (ticks of 10 ms, which may miss shorter work)"
    meters = listed(list(dict.fromkeys(part.meter or ticks for part in parts)))
    return f"all busy time by {meters}, interrupts and background included{guests}"


def _of_host(part: CpuTime) -> str:
    if part.layer == "process":
        return "the QEMU processes of the guests, minus their guests’ own time"
    meter = "esxtop (Physical Cpu(_Total), % Util Time × processors)" if part.meter == "esxtop" else "/proc/stat"
    own = (
        "minus the guests’ own user and system time"
        if part.meter == "esxtop"
        else "minus the time of its guests as the kernel counts it (column `guest`)"
    )
    less = " and its background without load" if part.background_ns is not None else ""
    return f"all busy time of the host by {meter}, {own}{less}"


def _recorded(role: CpuRole, parts: Sequence[CpuTime]) -> str:
    first = parts[0]
    if first.layer == "process":
        return (
            f"the load program’s own threads, as {first.meter or 'it'} counted them, without the kernel’s threads and "
            "interrupts"
        )
    if role == "machine":
        hosts = ", guests within their hosts and counted once" if any(p.role == "hypervisor" for p in parts) else ""
        # Notebooks of earlier versions do not say which tool read the times.
        meters = listed([*dict.fromkeys(part.meter for part in parts if part.meter)] or ["their own monitors"])
        return f"all busy time during a run, by {meters}, including the machines’ background{hosts}"
    taken = ["minus its guests’ own time"] if first.guests_ns is not None else []
    without = "its background without load"
    idle = f"minus {without}" if first.background_ns is not None else f"including {without}"
    what = "the guest" if first.layer == "guest" else "the host" if role == "hypervisor" else "the machine"
    by = f" by {first.meter}" if first.meter else ""
    return f"all busy time of {what} during a run{by}, {', '.join([*taken, idle])}"


_SIMULATED: dict[CpuRole, str] = {
    "initiator": "the cost table’s CPU time of the simulated initiators, or of their guests if the table has costs of "
    "a hypervisor",
    "target": "the cost table’s CPU time of the simulated targets",
    "hypervisor": "the cost table’s CPU time of the hypervisor of the simulated initiators, without their guests",
    "machine": "all simulated machines, which do nothing else; guests and their hypervisor are counted once",
}
_VM: dict[CpuRole, str] = {
    "initiator": "the whole initiator guest by its own clock (wall time minus idle time) over the measured window, "
    "minus its idle background",
    "target": "the whole target guest by its own clock, from before the load to after it and for the I/Os of that "
    "interval, minus its idle background",
    "hypervisor": "the QEMU process of the initiator’s guest, without the guest itself, by this host’s clock, minus "
    "its idle background",
    "machine": "both guests by their own clocks, including their background; the host below them is not included",
}


def _why(role: CpuRole, lack: Lack | None, summary: Summary) -> str:
    imported = isinstance(summary.data.study, ImportedStudy)
    match lack:
        case Lack.GUESTS if imported:
            return (
                "its guests’ own time was not recorded, and a host’s monitor includes it: record sar or "
                "mpstat in "
                "each guest and import it with --cpu guest=FILE"
            )
        case Lack.GUESTS:
            return (
                "its guests’ own time was not read: name them under `guests:` of the hypervisor, by their names "
                "among the initiators and targets"
            )
        case Lack.BACKGROUND:
            return "its kernel provides the path, and the machine’s background without load was not measured"
        case Lack.TOGETHER:
            return "initiator and target share a machine, and only their sum is known"
        case Lack.NOBODY:
            return "no server: the volume is local"
        case Lack.NOT_READ if imported:
            said = "guest" if role == "hypervisor" else ""
            word = "hypervisor" if said else role if role != "machine" else "initiator"
            also = " and --cpu guest=FILE" if said else ""
            return (
                "it was not recorded: record sar, mpstat or esxtop beside the runs and import it with --cpu "
                f"{word}=FILE{also}"
            )
        case Lack.NOT_READ:
            return _NOT_READ[role]
        case None:
            return "the number of its processors is not known"


_NOT_READ: dict[CpuRole, str] = {
    "initiator": "its CPU was not measured",
    "target": "this lab does not measure the target’s machine",
    "hypervisor": "no hypervisor was measured: the hosts lab measures those under `hypervisors:`, the vm lab its own",
    "machine": "no whole machine was measured",
}


def not_measured(summary: Summary) -> list[Finding]:
    """CPU times that the study asks for and no run has, with the reason."""
    return [
        Finding("", f"{_asked(each)}: {_why(ROLE_OF[each.response.key], each.lack, summary)}")
        for each in summary.unread
    ]


def missing(summary: Summary) -> str:
    """The same in one line of a terminal: one role, and how many more; empty if none is missing."""
    lacks = {ROLE_OF[each.response.key]: each.lack for each in summary.unread}
    if not lacks:
        return ""
    role, lack = next(iter(lacks.items()))
    more = f" ({len(lacks) - 1} more)" if len(lacks) > 1 else ""
    return f"No CPU time of the {role}: {_briefly(role, lack, summary)}{more}, see --long."


def _briefly(role: CpuRole, lack: Lack | None, summary: Summary) -> str:
    match lack:
        case Lack.GUESTS:
            return "its guests were not measured"
        case Lack.BACKGROUND:
            return "its idle load is unknown"
        case Lack.TOGETHER:
            return "both ends share a machine"
        case Lack.NOBODY:
            return "no server: the volume is local"
        case Lack.NOT_READ if isinstance(summary.data.study, ImportedStudy):
            return "nobody recorded it"
        case Lack.NOT_READ:
            return {"target": "this lab does not measure it", "hypervisor": "none was read"}.get(
                role, "it was not read"
            )
        case None:
            return "its processors are unknown"


def _asked(unread: Unread) -> str:
    response: Response = unread.response
    return f"No {response.title[:1]}{response.title[1:]}"


def left_out(summary: Summary) -> list[Finding]:
    """One sentence over all loads of each arm, if CPU per I/O is judged and a hypervisor's process was read beside its
    guest; else none. `within` describes a simulated hypervisor's part."""
    if not {CPU, CPU_INITIATOR} & {*summary.responses} or CPU_HYPERVISOR in summary.responses:
        return []
    each = _spent(summary, simulated=False)
    if not each:
        return []
    return [
        Finding("", f"CPU per I/O is that of the guests; the hypervisor spends {each} on each I/O, by its own clock")
    ]


def within(summary: Summary) -> list[Finding]:
    """The same for simulations, where CPU per I/O includes the hypervisor."""
    if CPU not in summary.responses:
        return []
    each = _spent(summary, simulated=True)
    return [Finding("", f"Of CPU per I/O the hypervisor spends {each}")] if each else []


_FORWARDING = (
    "The interconnect’s rate, delay and CPU time come from the study; a forwarding controller is assumed to spend as "
    "much CPU on its ports as a target does on receiving and sending"
)


def controllers(summary: Summary) -> list[Finding]:
    """For each arm, over all loads: how busy each simulated controller was, what it forwarded, and which were lost.
    None if a study has neither partners nor takeovers."""
    shares: dict[str, list[dict[str, float]]] = {}
    for cell in summary.cells:
        if all(_controllers(run) for run in cell.runs):
            shares.setdefault(f"{title(cell.arm)}{_taken_over(cell.runs[0])}", []).append(_shares(cell))
    found = [Finding("", f"{state}: {_busy(each)}") for state, each in shares.items()]
    if any(_FORWARDED in share for each in shares.values() for share in each):
        found.append(Finding("", _FORWARDING))
    return found


def _taken_over(run: Run) -> str:
    """The lost controllers."""
    there = {each.controller for each in _controllers(run)}
    gone = sorted({_partner(each) for each in there} - there)
    return f", controller {gone[0]} taken over by controller {_partner(gone[0])}" if gone else ""


def _partner(controller: int) -> int:
    return ((controller - 1) ^ 1) + 1


def _controllers(run: Run) -> Sequence[ControllerWork]:
    simulated = run.result.simulated
    return (simulated.controllers or ()) if simulated is not None else ()


def _shares(cell: CellSummary) -> dict[str, float]:
    """Shares of the window, means over the runs; bytes forwarded in MB/s."""
    window_ns = fmean(run.result.window.duration_ns for run in cell.runs)
    works = [_controllers(run) for run in cell.runs]
    target = cell.runs[0].result.cpu.part("target")
    cores = (target.processors or 1) / len(works[0]) if target is not None else 1
    found = {
        f"controller {each.controller}": fmean(work[at].busy_ns for work in works) / (window_ns * cores)
        for at, each in enumerate(works[0])
    }
    forwarded = fmean(sum(each.forwarded_bytes for each in work) for work in works)
    if forwarded:
        found[_FORWARDED] = forwarded / window_ns * 1e3
        found["interconnect"] = fmean(max(each.interconnect_ns for each in work) for work in works) / window_ns
    return found


_FORWARDED = "forwarded"


def _busy(shares: Sequence[dict[str, float]]) -> str:
    said = []
    for name in dict.fromkeys(name for each in shares for name in each):
        values = [each[name] for each in shares if name in each]
        show = figure if name == _FORWARDED else percent
        low, high = show(min(values)), show(max(values))
        between = low if low == high else f"{low} to {high}"
        said.append(f"{between} MB/s forwarded" if name == _FORWARDED else f"{name} {between} busy")
    return ", ".join(said)


def _spent(summary: Summary, *, simulated: bool) -> str:
    """By arm, over all loads; empty if no hypervisor was read."""
    spent: dict[str, list[float]] = {}
    for cell in summary.cells:
        if (
            all(run.result.cpu.hypervisor is not None for run in cell.runs)
            and CPU_HYPERVISOR.key in cell.values
            and all(bool(run.result.hypervisor_within) == simulated for run in cell.runs)
        ):
            spent.setdefault(cell.arm, []).append(cell.values[CPU_HYPERVISOR.key].value)
    return listed([f"{_reach(us)} with {title(arm)}" for arm, us in spent.items()]) if spent else ""


def _reach(us: list[float]) -> str:
    low, high = figure(min(us)), figure(max(us))
    return f"{low} µs" if low == high else f"{low} to {high} µs"
