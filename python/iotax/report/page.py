"""The page: one file that loads nothing."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from iotax.analysis import Summary
from iotax.analysis.capacity import REPORT_CORES, REPORT_RATE_IOPS
from iotax.analysis.data import LOAD_FACTORS, PROTOCOL
from iotax.analysis.effects import Share
from iotax.analysis.responses import LATENCY, P99
from iotax.analysis.validity import TITLES
from iotax.outputs import GENERATOR, csp_hash
from iotax.records import CPU_ROLES
from iotax.redaction import redact, redact_data
from iotax.report import (
    charts,
    clients,
    cost,
    font,
    generators,
    imported,
    link,
    palette,
    profile,
    published,
    renderer,
    search,
    tables,
)
from iotax.report.charts import Drawing
from iotax.report.checklist import checklist
from iotax.report.forest import forest
from iotax.study.imported import ImportedStudy
from iotax.units import show_share, show_time
from iotax.version import __version__
from iotax.wording import SIMULATED, answer, brief, cost_cautions, figure, inside, measuring, not_sized, title, trust
from iotax.wording import clients as wording_of_clients
from iotax.wording.conditions import encrypted
from iotax.wording.processors import contents
from iotax.wording.published import agreement
from iotax.wording.trust import preconditioned

_TEMPLATES = Path(__file__).with_name("templates")
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[KMGT]i?B|B|ns|µs|ms|s|min)\b|%)|(?<=min) (?=\d)")
_CODE = re.compile(r"`([^`\n]+)`")
FIRST_PANELS = 6
"""A section's further panels are folded."""
MOST_PANELS = 12
"""Panels beyond this are written as files only: few readers would look through them, and each takes time."""


@dataclass(frozen=True)
class Charts:
    """All drawings of a report, by section."""

    ratios: list[Drawing]
    ratio_levels: list[Drawing]
    search: list[Drawing]
    published: list[Drawing]
    levels: list[Drawing]
    hockey: list[Drawing]
    open_loop: list[Drawing]
    kept_up: list[Drawing]
    effects: list[Drawing]
    residuals: list[Drawing]
    percentiles: list[Drawing]
    apart: list[Drawing]
    shifts: list[Drawing]
    cpu: list[Drawing]
    layers: list[Drawing]
    instructions: list[Drawing]
    calls: list[Drawing]
    around_events: list[Drawing]
    latency_around_events: list[Drawing]
    cpu_time: list[Drawing]
    cost: list[Drawing]
    cost_by_factor: list[Drawing]
    cost_half_normal: list[Drawing]
    cost_residuals: list[Drawing]
    sizing: list[Drawing]
    order: list[Drawing]

    def all(self) -> list[Drawing]:
        return [drawing for name in Charts.__dataclass_fields__ for drawing in getattr(self, name)]

    def marked(self, mark: str) -> "Charts":
        """The drawings with a word in the corner of each chart and before its caption."""
        return Charts(
            **{
                name: [
                    replace(drawing, mark=mark, description=f"{mark[:1].upper()}{mark[1:]}. {drawing.description}")
                    for drawing in getattr(self, name)
                ]
                for name in Charts.__dataclass_fields__
            }
        )


def draw(summary: Summary) -> Charts:
    drawn = _draw(summary)
    return drawn.marked("simulated") if summary.data.simulated else drawn


def _draw(summary: Summary) -> Charts:
    looks = _looks(summary)
    grid = summary.grid
    facets = list(dict.fromkeys(grid.facet(c.cell) for c in summary.cells))
    conditions = list(dict.fromkeys(c.condition for c in summary.cells))
    costs = summary.costs
    sized = summary.report_sizing.costs
    open_loop = [d for f in facets for d in charts.responses_over_rate(summary, looks, f)]
    over = [r for r in summary.responses if not (open_loop and r is LATENCY)]  # drawn with its service time there
    ratios = _some(charts.ratio_forest(summary, looks, r) for r in summary.responses)
    ratio_levels = (
        []
        if ratios and not charts.is_sweep(summary)
        else _some(charts.ratio_over_levels(summary, looks, r, f) for f in facets for r in summary.responses)
    )
    return Charts(
        ratios=ratios,
        ratio_levels=ratio_levels,
        search=_some([charts.probes(summary, looks)]),
        published=charts.published_figures(summary.sources, looks, published.gained(summary.data), grid.compared),
        levels=_some(charts.over_levels(summary, looks, r, f) for f in facets for r in summary.responses if r in over),
        hockey=_some(charts.hockey_stick(summary, looks, r, f) for f in facets for r in (LATENCY, P99)),
        open_loop=open_loop,
        kept_up=_some([charts.achieved_rate(summary, looks), charts.backlog(summary, looks)]),
        effects=_some(charts.factor_effects(summary, looks, r) for r in summary.responses),
        residuals=[d for r in summary.responses[:1] for d in charts.model_residuals(summary, looks, r)],
        percentiles=_some(charts.percentile_curves(summary, looks, c) for c in conditions),
        apart=_some(charts.percentile_curves(summary, looks, c, part) for c in conditions for part in charts.PARTS),
        shifts=charts.shift_functions(summary, looks),
        cpu=_some(charts.cpu_split(summary, c) for c in conditions),
        layers=_some(charts.layers(summary, c) for c in conditions),
        instructions=charts.instructions(summary),
        calls=charts.flame_graphs(summary),
        around_events=charts.around_events(summary, looks),
        latency_around_events=charts.latency_around_events(summary, looks),
        cpu_time=_some(charts.cpu_over_time(summary, looks, c, role) for c in conditions for role in CPU_ROLES),
        cost=_some([charts.cost_lines(costs, looks), charts.cost_effects(costs, looks)]) if costs else [],
        cost_by_factor=charts.cost_interactions(costs, looks) if costs else [],
        cost_half_normal=_some([charts.cost_half_normal(costs, looks, grid.baseline_arm)]) if costs else [],
        cost_residuals=charts.cost_residuals(costs, looks) if costs else [],
        sizing=charts.response_curves(sized, looks, REPORT_CORES) if sized else [],
        order=_some(
            charts.rounds(summary, looks, r) or charts.run_order(summary, looks, r) for r in summary.responses[:1]
        ),
    )


def render(summary: Summary, drawings: Charts, notebook_name: str) -> str:
    """The report as HTML."""
    data, study = summary.data, summary.data.study
    limits = tables.limits_of(summary)
    shares = {r.short: summary.shares[r.key] for r in summary.responses if summary.shares[r.key]}
    context: dict[str, Any] = {
        "policy": _POLICY,
        "palette_css": Markup(palette.css()),  # noqa: S704 - our own constants
        "font_css": Markup(font.css()),  # noqa: S704 - our own fonts
        "style": Markup("".join(_own(name) for name in ("style.css", "print.css"))),  # noqa: S704 - our own files
        "script": Markup(_own("hover.js")),  # noqa: S704 - our own file
        "summary": summary,
        "data": data,
        "study": study,
        "base": title(summary.grid.baseline_arm),
        "looks": _looks(summary),
        "names": {arm: title(arm) for arm in summary.grid.arms},
        "no_charts": "" if renderer.available() else renderer.MISSING,
        "imported": study.source if isinstance(study, ImportedStudy) else "",
        "import_notes": imported.notes(summary),
        "measuring": measuring(data),
        "slice_time": show_time(study.design.slice) if study.design.slice else "",
        "measured": _measured(summary),
        "answer": answer(summary) if data.runs else [],
        "forest": forest(summary) if data.runs else None,
        "validity": brief.validity(summary).removeprefix("Validity: "),
        "primary": summary.responses[0].key if summary.responses else "",
        "clients": clients,
        "client_groups": clients.groups(summary),
        "client_lines": wording_of_clients.took_part(summary),
        "simulated": SIMULATED if data.simulated else "",
        "trust": trust(summary),
        "cards": tables.cards(summary),
        "panels": {name: Panels(getattr(drawings, name)) for name in Charts.__dataclass_fields__},
        "first_panels": FIRST_PANELS,
        "parts": charts.parts_used(summary),
        "cpu_caption": charts.cpu_caption(summary) if drawings.cpu else "",
        "cpu_counted": encrypted(summary),
        "layers": charts.layers_used(summary),
        "layers_said": charts.layers_said(summary),
        "families": charts.families_used(summary),
        "profile": profile,
        "profile_tables": profile.tables_of(summary),
        "generators": generators,
        "generator_groups": generators.groups(summary),
        "link": link,
        "link_groups": link.groups(summary),
        "search": search,
        "search_lead": search.lead(summary),
        "sources": summary.sources,
        "published": published,
        "agreement": agreement(summary.sources, published.gained(data)),
        "published_doubt": summary.doubt_of(summary.cells),
        "cost": cost,
        "costs": summary.costs,
        "cpu_contents": contents(summary),
        "cost_lead": cost.cost_lead(summary),
        "size_reasons": not_sized(summary.report_sizing) if summary.data.runs else [],
        "size_sources": list(dict.fromkeys(f"{title(c.arm)}: {c.source}" for c in summary.report_sizing.costs)),
        "size_rate": REPORT_RATE_IOPS,
        "size_cautions": cost_cautions(summary.report_sizing.costs),
        "size_groups": cost.size_groups(summary) if summary.report_sizing.costs else [],
        "size_arms": [each.arm for each in summary.report_sizing.costs],
        "size_cores": REPORT_CORES,
        "size_note": cost.size_note(summary),
        "sized_by_sources": cost.sized_by_sources(summary),
        "tables": tables,
        "checks": [TITLES[key] for key in tables.checked(summary)],
        "symbols": list(tables.SYMBOLS.values()),
        "items": checklist(summary, limits),
        "limits": tables.limit_rows(summary, limits),
        "how_local": _how_local(summary),
        "how_cpu": _how_cpu(summary),
        "environment": _environment(summary),
        "connections": _connections(summary),
        "study_yaml": redact(
            yaml.safe_dump(
                redact_data(study.model_dump(mode="json", exclude_defaults=True)), sort_keys=False, allow_unicode=True
            )
        ),
        "command": redact(_command(summary)),
        "notebook": notebook_name,
        "shares": shares,
        "judged": list(dict.fromkeys(o.arm for o in summary.overalls)),
        "open_loop": any(run.result.open for run in data.runs),
        "sweep": charts.is_sweep(summary),
        "load_title": _load_title(summary),
        "share_rows": _share_rows(list(shares.values())),
        "version": __version__,
        "generator": Markup(GENERATOR),  # noqa: S704 - our own constant
        "bin_error": max((c.latency.bin_error for c in summary.cells), default=0.001),
    }
    return _with_policy(_templates().get_template("report.html").render(context), context)


@cache
def _templates() -> Environment:
    """One for all reports of a process: it keeps the templates that it has compiled."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["tight"] = _tight
    environment.filters["lower_first"] = inside
    return environment


_POLICY = "the policy of this page"
"""Replaced by the policy once the page is known."""
_STYLES = re.compile(r' style="((?:--n:\d+|--arm:var\(--[a-z0-9-]+\)|background:var\(--[a-z0-9-]+\)))"')
"""The attributes that our templates write."""


def _with_policy(page: str, context: Mapping[str, Any]) -> str:
    """A policy that allows only our own script and styles, by their hashes (Content Security Policy Level
    3, §2.3.1)."""
    style = f"{context['font_css']}{context['palette_css']}{context['style']}"
    styles = " ".join(sorted(csp_hash(each) for each in {style, *_STYLES.findall(page)}))
    policy = (
        f"default-src 'none'; script-src {csp_hash(str(context['script']))}; style-src 'unsafe-hashes' {styles}; "
        "img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    return page.replace(_POLICY, policy, 1)


def _own(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _load_title(summary: Summary) -> str:
    factor = summary.grid.x_factor
    if factor is None:
        return "Every run"
    return "Over the load" if factor in LOAD_FACTORS else f"Over {charts.factor_title(factor).lower()}"


def _tight(text: str) -> Markup:
    """A sentence as HTML: text in backticks becomes code, and no line breaks between a number and its unit."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(_UNIT.sub("\u00a0", text)))))  # noqa: S704 - escaped before


def _share_rows(shares: list[list[Share]]) -> list[tuple[str, ...]]:
    """Combinations of factors, ordered by how much of the primary response they explain; unexplained ones last."""
    rows = list(dict.fromkeys(s.factors for found in shares for s in found if s.factors))
    return [*rows, ()] if rows else []


class Panels(list[dict[str, Any]]):
    """The panels of a figure that the page has room for."""

    def __init__(self, drawings: Sequence[Drawing]) -> None:
        super().__init__(_panel(drawing) for drawing in drawings[:MOST_PANELS])
        self.left_out = max(0, len(drawings) - MOST_PANELS)


def _panel(drawing: Drawing) -> dict[str, Any]:
    """The SVG comes from us and the chart library, which escapes text. Without the library the page shows words."""
    return {
        "name": drawing.name,
        "title": drawing.title,
        "description": drawing.description,
        "svgs": [(kind, Markup(svg)) for kind, svg in drawing.inline()] if renderer.available() else [],  # noqa: S704
    }


def _measured(summary: Summary) -> str:
    """The header's date; simulations have none."""
    runs = summary.data.runs
    if summary.data.simulated:
        return "simulated, not measured"
    return tables.day(runs[0].result.window.start_unix_ns) if runs else ""


def _some(found: Any) -> list[Drawing]:
    return [drawing for drawing in found if drawing is not None]


def _looks(summary: Summary) -> dict[str, palette.Look]:
    endpoints = summary.data.study.endpoints() if PROTOCOL in summary.grid.compared else {}
    return palette.looks(summary.grid.arms, {label: each.protocol for label, each in endpoints.items()})


def _how_local(summary: Summary) -> str:
    run = next((r for r in summary.data.runs if r.local), None)
    if run is None:
        return ""
    if run.result.facts.stack == "user":
        return (
            "The load process maps the memory of the server's own volume and copies blocks: the same bytes, without "
            "protocol, socket or system call. It is the lower bound for every protocol here, not a disk."
        )
    return (
        f"The load process opens {redact(run.result.endpoint.partition(':')[2])} itself and reads and writes it "
        "without a protocol."
    )


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


def _how_cpu(summary: Summary) -> list[str]:
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


_ENVIRONMENT = {
    "cpu_model": "Processor",
    "cpus": "Processors",
    "cpus_usable": "Processors usable",
    "memory_bytes": "Memory",
    "kernel": "Kernel",
    "system": "System",
    "architecture": "Architecture",
    "governor": "Frequency governor",
    "turbo_off": "Turbo off",
    "hypervisor": "Hypervisor",
    "commit": "Commit",
    "python": "Python",
    "packages": "Packages",
    "engine": "Engine",
}


def _environment(summary: Summary) -> list[tuple[str, str]]:
    """The notebook's record of machine and versions, without secrets. Paths and the command line are listed
    elsewhere."""
    found = redact_data(dict(summary.data.environment))
    flat = {**found.pop("machine", {}), **found}
    rows = []
    for key, value in flat.items():
        if key in ("command_line", "engine_path", "import_notes", "not_imported"):
            continue
        if isinstance(value, dict):
            text = ", ".join(f"{name} {_words(each)}" for name, each in value.items())
        elif key.endswith("_bytes") and isinstance(value, int | float):
            text = f"{value / (1 << 30):.1f} GiB"
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        rows.append((_ENVIRONMENT.get(key, key.removesuffix("_bytes").replace("_", " ")), text))
    asked = summary.data.study.precondition
    said = preconditioned(asked, summary.data.preconditionings) if asked is not None else {}
    rows += [(f"Before the first trial, {redact(endpoint)}", text) for endpoint, text in said.items()]
    drivers = sorted({run.result.driver for run in summary.data.runs} - {""})
    engines = sorted({run.result.engine_version for run in summary.data.runs})
    if drivers:
        rows.append(("I/O driver of the load", ", ".join(drivers)))
    imported = isinstance(summary.data.study, ImportedStudy)
    if engines and "engine" not in flat and not imported:
        rows.append(("Engine", ", ".join(engines)))
    made_by = set() if imported else {(run.result.generator, run.result.engine_version) for run in summary.data.runs}
    others = [(name, version.removeprefix(f"{name}-")) for name, version in sorted(made_by) if name != "iotax"]
    if named := [f"{name} {version}".strip() for name, version in others]:
        rows.append(("Load generator", ", ".join(named)))
    return rows


def _words(value: object) -> str:
    """A host's facts: (kernel 6.1, cores 2)."""
    if not isinstance(value, dict):
        return str(value)
    return f"({', '.join(f'{name} {each}' for name, each in value.items())})"


def _connections(summary: Summary) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(arm, endpoint, facts and agreed settings) of each arm's first connection."""
    found: dict[str, tuple[str, str, list[tuple[str, str]]]] = {}
    for attempt in summary.data.attempts:
        arm = summary.grid.arm(summary.grid.cell(attempt.trial))
        if attempt.connected is None or attempt.status != "done" or arm in found:
            continue
        connected = attempt.connected
        rows = list(connected.words.items())
        if connected.max_io_bytes:
            rows.append(("largest I/O", f"{connected.max_io_bytes:,} bytes"))
        found[arm] = (title(arm), redact(connected.endpoint), [(k, str(redact_data({k: v})[k])) for k, v in rows])
    return list(found.values())


def _command(summary: Summary) -> str:
    words = summary.data.environment.get("command_line")
    if not words:
        return f"iotax run {summary.data.study.name}"
    return " ".join(["iotax", *map(str, words[1:])])
