"""Where an I/O's CPU time goes: initiator, target, the rest of the machine."""

from iotax.analysis import CellSummary, Summary
from iotax.report.charts.base import Drawing, Scale, arm_titles, axis, file_name
from iotax.report.charts.vega import Spec, chosen, end, layer, number, picture, word
from iotax.report.palette import ref
from iotax.wording import figure

PARTS = (
    ("Initiator", "part-initiator"),
    ("Target", "part-target"),
    ("Rest of the machine", "part-rest"),
    ("Background without load", "part-background"),
)
_ROW_PX = 26


def cpu_split(summary: Summary, condition: str) -> Drawing | None:
    """Stacked bars from zero, one for each arm."""
    cells = [c for c in summary.cells if c.condition == condition and "cpu_initiator" in c.values]
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
        heading or "CPU time an I/O",
        f"CPU time an I/O by where it was spent. {said}.",
        lambda width: _draw(summary, split, width, heading),
    )


def parts_us(summary: Summary, cell: CellSummary) -> dict[str, float]:
    """µs an I/O, geometric means over the runs; what was not measured is missing."""
    parts = {"Initiator": cell.values["cpu_initiator"].value}
    if "cpu_target" in cell.values:
        parts["Target"] = cell.values["cpu_target"].value
    machine = cell.values.get("cpu_machine")
    if machine is not None:
        rest = max(0.0, machine.value - sum(parts.values()))
        background = min(rest, (summary.data.background_cores or 0.0) * 1e6 / cell.values["iops"].value)
        parts["Rest of the machine"] = rest - background
        parts["Background without load"] = background
    return parts


def _draw(summary: Summary, split: dict[str, dict[str, float]], width_px: int, heading: str) -> Spec:
    names = arm_titles(summary)
    rows: list[Spec] = []
    totals: list[Spec] = []
    for arm, parts in split.items():
        start = 0.0
        for part, us in parts.items():
            text = f"{names[arm]}, {part.lower()}: {figure(us)} µs"
            rows.append({"row": names[arm], "part": part, "x": start, "x2": start + us, "say": text})
            start += us
        named = parts["Initiator"] + parts.get("Target", 0.0)
        totals.append({"row": names[arm], "x": start, "text": figure(named)})
    scale = Scale([0.0, max(t["x"] for t in totals) * 1.2], zero=True, log=False)
    rows_axis = {"title": None, "domain": False, "labelColor": ref("ink"), "labelFontSize": 12, "labelLimit": 110}
    y = word("row", sort=[names[arm] for arm in split], axis=rows_axis)
    x = number("x", scale.vega, axis("µs an I/O", scale, grid=True, labelOverlap=True, titleAnchor="start"))
    fill = chosen("part", [part for part, _ in PARTS], [ref(name) for _, name in PARTS])
    bars = layer(
        "bar", rows, {"x": x, "x2": end("x2"), "y": y, "color": fill}, height=16, stroke=ref("page"), strokeWidth=0.7
    )
    text = layer("text", totals, {"x": x, "y": y, "text": word("text")}, align="left", dx=5)
    return picture([bars, text], width_px, 70 + _ROW_PX * len(split), heading)
