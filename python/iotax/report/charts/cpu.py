"""CPU time per I/O by where it was spent: initiator, hypervisor, target, rest of the machine."""

from collections.abc import Mapping, Sequence

from iotax.analysis import CellSummary, Run, Summary
from iotax.analysis.responses import CPU, CPU_HYPERVISOR, CPU_INITIATOR, CPU_TARGET
from iotax.report.charts.base import Drawing, Scale, arm_titles, axis, file_name
from iotax.report.charts.vega import Spec, chosen, end, layer, number, picture, word
from iotax.report.palette import ref
from iotax.wording import figure, inside

TOGETHER = "Initiator and target"
"""A guest that is both initiator and target."""
HYPERVISOR = "Hypervisor"
"""The hypervisor of the initiator's guest, without the guest."""
BACKGROUND = "Background without load"
PARTS = (
    ("Initiator", "part-initiator"),
    (TOGETHER, "part-both"),
    ("Target", "part-target"),
    (HYPERVISOR, "part-hypervisor"),
    ("Rest of the machine", "part-rest"),
    (BACKGROUND, "part-background"),
)
ENDS = ("Initiator", TOGETHER, "Target")
_ROW_PX = 26
_SEEN_MIN = 0.005
"""Height of a bar."""


def cpu_split(summary: Summary, condition: str) -> Drawing | None:
    """Stacked bars from zero, one for each arm."""
    cells = [c for c in _drawn(summary) if c.condition == condition]
    if not cells:
        return None
    names = arm_titles(summary)
    heading = condition[:1].upper() + condition[1:]
    split = {c.arm: parts_us(summary, c) for c in cells}
    said = "; ".join(
        f"{names[arm]}: " + ", ".join(f"{name.lower()} {figure(us)} µs" for name, us in parts.items())
        for arm, parts in split.items()
    )
    return Drawing(
        file_name("cpu an io", condition),
        heading or f"CPU time per {summary.counts}",
        f"CPU time per {summary.counts} by where it was spent. {said}.",
        lambda width: _draw(summary, split, width, heading),
    )


def parts_us(summary: Summary, cell: CellSummary) -> dict[str, float]:
    """µs per I/O or transaction, geometric means over the runs; unmeasured parts are missing. For guests, the machine
    is the guest without the hypervisor, unless they are simulated."""
    initiator, target, both = (cell.values.get(summary.counted(each).key) for each in (CPU_INITIATOR, CPU_TARGET, CPU))
    parts: dict[str, float] = {}
    if initiator is not None:
        parts["Initiator"] = initiator.value
    elif both is not None:
        parts[TOGETHER] = both.value
    if target is not None:
        parts["Target"] = target.value
    within = all(run.result.hypervisor_within for run in cell.runs)
    hypervisor = cell.values.get(summary.counted(CPU_HYPERVISOR).key)
    # A host's own part is a part of its total time; so is a simulated hypervisor's.
    in_machine = within or all(_is_of_host(run) for run in cell.runs)
    named = sum(parts.values()) + (hypervisor.value if hypervisor is not None and in_machine else 0.0)
    if hypervisor is not None and (within or all(is_one_clock(run) for run in cell.runs)):
        parts[HYPERVISOR] = hypervisor.value
    machine = cell.values.get("cpu_machine")
    if machine is not None:
        rest = max(0.0, machine.value - named)
        background = min(rest, (summary.data.background_cores or 0.0) * 1e6 / cell.values["iops"].value)
        parts["Rest of the machine"] = rest - background
        parts[BACKGROUND] = background
    return parts


def parts_used(summary: Summary) -> list[tuple[str, str]]:
    """Parts of `PARTS` that are wide enough to see in some bar."""
    used: set[str] = set()
    for parts in (parts_us(summary, cell) for cell in _drawn(summary)):
        used |= {part for part, us in parts.items() if us > _SEEN_MIN * sum(parts.values())}
    return [(name, colour) for name, colour in PARTS if name in used]


def is_one_clock(run: Run) -> bool:
    """Whether guest and hypervisor have the same clock and neither includes the other."""
    initiator, hypervisor = run.result.cpu_initiator, run.result.cpu.hypervisor
    if _is_of_host(run):
        return True
    layers = (initiator.layer if initiator else "", hypervisor.layer if hypervisor else "")
    return run.result.facts.clock == "time" and layers == ("guest", "process")


def _is_of_host(run: Run) -> bool:
    """The hypervisor's part is all of a host's time minus its guests', by the same clock."""
    hypervisor = run.result.cpu.hypervisor
    return hypervisor is not None and hypervisor.layer == "machine"


def caption(summary: Summary) -> str:
    """The parts summed in the number at a bar; not the same for all bars if some targets could not be measured."""
    cells = _drawn(summary)
    cpu, hypervisor = summary.counted(CPU).key, summary.counted(CPU_HYPERVISOR).key
    alone = _arms(summary, [c for c in cells if cpu not in c.values])
    local = _arms(summary, [c for c in cells if cpu in c.values and all(run.local for run in c.runs)])
    whole = _arms(summary, [c for c in cells if any(_is_whole_machine(run) for run in c.runs)])
    within = any(run.result.hypervisor_within for c in cells for run in c.runs)
    said = []
    if any(cpu in c.values and not all(run.local for run in c.runs) for c in cells):
        ends = "initiator, hypervisor and target" if within else "initiator and target"
        said.append(f"The number at a bar is {ends} together")
        said += [f"for {alone} only the initiator: its target was not measured"] if alone else []
        said += [f"{local} has no target"] if local else []
    else:
        said.append("The number at a bar is the initiator" + (": no target was read" if alone else ""))
    if any(HYPERVISOR in parts_us(summary, c) for c in cells) and not within:
        said.append("the hypervisor’s part is drawn, and not in that number")
    elif any(hypervisor in c.values for c in cells) and not within:
        said.append("the hypervisor’s part is in the table only: its clock differs from the guests’")
    if whole:
        said.append(f"of {whole} it is the whole machine’s time minus its background, since kernel threads do the work")
    return "; ".join(said) + "."


def _drawn(summary: Summary) -> list[CellSummary]:
    known = {summary.counted(each).key for each in (CPU, CPU_INITIATOR)}
    return [c for c in summary.cells if known & c.values.keys()]


def _arms(summary: Summary, cells: list[CellSummary]) -> str:
    names = arm_titles(summary)
    return ", ".join(dict.fromkeys(names[cell.arm] for cell in cells))


def _is_whole_machine(run: Run) -> bool:
    read = run.result.cpu_initiator
    return read is not None and read.layer == "machine"


def _draw(summary: Summary, split: dict[str, dict[str, float]], width_px: int, heading: str) -> Spec:
    return stacked(summary, split, PARTS, width_px, heading, summed=ENDS)


def stacked(
    summary: Summary,
    split: Mapping[str, Mapping[str, float]],
    kinds: Sequence[tuple[str, str]],
    width_px: int,
    heading: str,
    *,
    unit: str = "µs",
    summed: Sequence[str] | None = None,
    most: float = 0.0,
) -> Spec:
    """Bars from zero, one for each arm. `split` has values per I/O in `unit`; `kinds` are the parts with their colours;
    the number at a bar is the sum of the parts in `summed`, or of all parts if it is None. The axis has room for a bar
    of length `most`."""
    names = arm_titles(summary)
    rows: list[Spec] = []
    totals: list[Spec] = []
    for arm, parts in split.items():
        start = 0.0
        for part, spent in parts.items():
            text = f"{names[arm]}, {inside(part)}: {figure(spent)} {unit}"
            rows.append({"row": names[arm], "part": part, "x": start, "x2": start + spent, "say": text})
            start += spent
        named = sum(spent for part, spent in parts.items() if summed is None or part in summed)
        totals.append({"row": names[arm], "x": start, "text": figure(named)})
    scale = Scale([0.0, max(most, *(t["x"] for t in totals)) * 1.2], zero=True, log=False)
    rows_axis = {"title": None, "domain": False, "labelColor": ref("ink"), "labelFontSize": 12, "labelLimit": 110}
    y = word("row", sort=[names[arm] for arm in split], axis=rows_axis)
    x = number(
        "x", scale.vega, axis(f"{unit} per {summary.counts}", scale, grid=True, labelOverlap=True, titleAnchor="start")
    )
    fill = chosen("part", [part for part, _ in kinds], [ref(name) for _, name in kinds])
    bars = layer(
        "bar", rows, {"x": x, "x2": end("x2"), "y": y, "color": fill}, height=16, stroke=ref("page"), strokeWidth=0.7
    )
    text = layer("text", totals, {"x": x, "y": y, "text": word("text")}, align="left", dx=5)
    return picture([bars, text], width_px, 70 + _ROW_PX * len(split), heading)
