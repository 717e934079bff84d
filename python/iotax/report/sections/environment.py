"""The machines, the versions, and what the connections negotiated."""

from __future__ import annotations

from iotax.analysis import Summary
from iotax.redaction import redact, redact_data
from iotax.report.section import Folded, Heading, Part, Section, Source, Text, facts
from iotax.study.imported import ImportedStudy
from iotax.wording import title
from iotax.wording.trust import preconditioned


def section(source: Source) -> Section:
    summary = source.summary
    found = _environment(summary)
    parts: list[Part] = [facts(found) if found else Text("Not recorded in the notebook.")]
    if connections := _connections(summary):
        parts.append(Folded("What the connections negotiated", connections, printed=True))
    return Section("environment", "Environment", parts, "Environment")


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


def _connections(summary: Summary) -> list[Part]:
    """The endpoint, facts and agreed settings of each arm's first connection."""
    found: dict[str, list[Part]] = {}
    for attempt in summary.data.attempts:
        arm = summary.grid.arm(summary.grid.cell(attempt.trial))
        if attempt.connected is None or attempt.status != "done" or arm in found:
            continue
        connected = attempt.connected
        rows = list(connected.words.items())
        if connected.max_io_bytes:
            rows.append(("largest I/O", f"{connected.max_io_bytes:,} bytes"))
        found[arm] = [Heading(title(arm)), Text(redact(connected.endpoint), "mono")]
        if rows:
            found[arm].append(facts((name, str(redact_data({name: value})[name])) for name, value in rows))
    return [part for parts in found.values() for part in parts]
