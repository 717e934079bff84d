"""The results of a run as a table and as JSON: each treatment, absolute and relative to the baseline; what connections
found and agreed on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rich.markup import escape
from rich.text import Text

from iotax.analysis import RESPONSES, CellSummary, Severity, StudyData, Summary, summarise
from iotax.analysis.interruptions import delays, interruptions
from iotax.analysis.precision import half_width_percent, precisions
from iotax.cli.console import console
from iotax.cli.document import interval
from iotax.cli.profile import print_profiles, profile_documents
from iotax.cli.treatments import tables
from iotax.collected import study_data
from iotax.notebook import Notebook
from iotax.trial import Attempt
from iotax.wording import (
    SIMULATED,
    answer,
    clients,
    conditions,
    inside,
    measuring,
    precision,
    recovery,
    search,
    trust,
    verdicts,
)
from iotax.wording.published import agreement, agreement_document

_RESPONSES = {response.key: response for response in RESPONSES}


def print_summary(data: StudyData) -> None:
    """Geometric means over the runs of each treatment; the baseline is 100, with the 95 % interval of the ratio."""
    out, found = console(), search.sentences(data.study, data.attempts)
    if wrong := recovery.wrong_data(data):
        out.print(Text(wrong, style="bold red"), soft_wrap=True)
    if not data.measured:
        for line in found:
            out.print(Text(line), soft_wrap=True)
        return
    summary = summarise(data)
    if data.simulated:
        out.print(Text(SIMULATED, style="yellow"), soft_wrap=True)
    if not data.runs:
        _print_warnings(summary)
        return
    primary = summary.responses[0] if summary.responses else _RESPONSES["iops"]
    for table in tables(out, summary, primary):
        out.print(table)
    out.print(
        f"Relative: {inside(primary.title)}, {escape(summary.grid.baseline_arm)} = 100, with 95 % intervals. "
        f"Within {data.study.margin:g} % counts as equivalent.",
        style="dim",
        soft_wrap=True,
    )
    for line in found:
        out.print(Text(line), soft_wrap=True)
    for part in answer(summary):
        out.print(Text(f"{part.title}:", style="bold"))
        for finding in part.findings:
            out.print(Text(finding.sentence), soft_wrap=True)
    print_profiles(out, summary)
    recoveries = (recovery.sentence(summary), recovery.compared(summary))
    for line in (*clients.sentences(summary), *conditions.of_links(data), *recoveries):
        if line:
            out.print(Text(line), soft_wrap=True)
    for line in agreement(summary.sources, "simulated" if data.simulated else "measured"):
        out.print(Text(line), soft_wrap=True)
    _print_warnings(summary)
    for note in (precision(summary), *(each for each in trust(summary) if each.subject in ("sessions", "bins"))):
        if note is not None:
            out.print(Text(note.text, style="dim"), soft_wrap=True)
    if said := measuring(data):
        out.print(f"{said}.", style="dim", soft_wrap=True)


def run_document(notebook: Notebook, run: int | None) -> dict[str, Any]:
    """A run in the form of `iotax show --json`; docs/reference/json.md. Raises NotebookError."""
    chosen = notebook.run(run)
    data = study_data(notebook, chosen.id)
    summary = summarise(data) if data.measured else None
    return {
        "notebook": str(notebook.path),
        "run": chosen.id,
        "study": chosen.name,
        "question": data.study.question,
        "simulated": data.simulated,
        "wrong_data": recovery.wrong_data(data) or None,
        "label": chosen.label,
        "started_unix_ns": chosen.started_unix_ns,
        "runs": [
            {"run": each.id, "study": each.name, "label": each.label, "started_unix_ns": each.started_unix_ns}
            for each in notebook.runs()
        ],
        "trials_planned": len(data.planned),
        "trials_left": len(notebook.left(chosen.id)),
        "looks": [each.model_dump() for each in data.looks],
        "trials_excluded": len(data.excluded),
        "trials_with_fewer_hosts": len(data.apart),
        "attempts_not_done": [
            {
                "trial": each.trial.id,
                "attempt": each.number,
                "status": each.status,
                "reason": each.reason,
                "kept_slices": each.kept_slices,
            }
            for each in data.attempts
            if each.status != "done"
        ],
        "closings": notebook.closings(chosen.id),
        "agreed": agreed(data.attempts),
        "margin_percent": data.study.margin,
        "baseline": summary.grid.baseline_arm if summary else None,
        "responses": [each.key for each in summary.responses] if summary else [],
        "wall_s": data.wall_ns / 1e9 if data.wall_ns else None,
        "measured_percent": None if data.measuring_share is None else 100 * data.measuring_share,
        "half_widths": _half_widths(summary) if summary and data.runs else {},
        "treatments": [_treatment_document(each, summary) for each in summary.cells] if summary and data.runs else [],
        "recoveries": _recoveries(summary) if summary and data.runs else [],
        "profiles": profile_documents(summary) if summary and data.runs else [],
        "findings": [
            {"response": each.response_key or None, "sentence": each.sentence}
            for each in (verdicts(summary) if summary else [])
        ],
        "answer": [
            {"title": part.title, "sentences": [each.sentence for each in part.findings]}
            for part in (answer(summary) if summary else [])
        ],
        "published": agreement_document(summary.sources) if summary else None,
        "trust": [
            {"tone": each.tone, "text": each.text, "details": list(each.details)}
            for each in (trust(summary) if summary else [])
        ],
    }


def _treatment_document(cell: CellSummary, summary: Summary) -> dict[str, Any]:
    return {
        "levels": dict(zip(summary.grid.factors, cell.cell, strict=True)),
        "arm": cell.arm,
        "runs": len(cell.runs),
        "validity": cell.level.name.lower(),
        "doubts": [{"check": each.key, "text": each.text} for each in cell.checks if each.level >= Severity.NOTE],
        "values": {
            key: {"unit": _RESPONSES[key].unit, "value": each.value, "low": each.low, "high": each.high}
            for key, each in cell.values.items()
        },
        "relative": {
            key: {
                **interval(each.ratio),
                "half_width_percent": half_width_percent(each.ratio),
                "verdict": each.verdict.value if each.verdict else None,
                "withheld": each.withheld.cause.value if each.withheld else None,
            }
            for key, each in cell.ratios.items()
        },
    }


def _recoveries(summary: Summary) -> list[dict[str, Any]]:
    """Of each treatment with events; what is not known, or has no end, is null."""
    later = {each.cell.cell: each.seconds for each in delays(summary)}
    found = []
    for cell in summary.cells:
        if (own := interruptions(cell.runs).recovery) is None:
            continue
        shift = later.get(cell.cell)
        ends = None if shift is None else {"low": _finite(shift.low), "high": _finite(shift.high)}
        found.append(
            {
                "levels": dict(zip(summary.grid.factors, cell.cell, strict=True)),
                "events": own.events,
                "recovered": own.events - own.unrecovered,
                "median_s": own.seconds,
                "more_than_s": own.more_than_s,
                "later_s": ends,
            }
        )
    return found


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


def _half_widths(summary: Summary) -> dict[str, dict[str, float | None]]:
    """Response → half-width of the intervals of its ratios to the baseline, in percent."""
    return {
        each.response.key: {
            "all_loads_percent": each.overall_percent,
            "one_load_median_percent": each.cell_median_percent,
            "one_load_worst_percent": each.cell_worst_percent,
        }
        for each in precisions(summary)
    }


def _print_warnings(summary: Summary) -> None:
    for finding in trust(summary):
        if finding.tone == "warning":
            for line in (finding.text, *finding.details):
                console().print(Text(line, style="yellow"), soft_wrap=True)


def agreed(attempts: Iterable[Attempt]) -> dict[str, dict[str, str]]:
    """Protocol → what its first connection found and agreed on; by level if levels of one protocol differ."""
    levels: dict[str, dict[str, dict[str, str]]] = {}
    for attempt in attempts:
        if attempt.result is None or attempt.connected is None or not attempt.connected.words:
            continue
        protocol = attempt.result.facts.protocol
        level = str(attempt.trial.treatment.get("protocol", protocol))
        levels.setdefault(protocol, {}).setdefault(level, attempt.connected.words)
    found: dict[str, dict[str, str]] = {}
    for protocol, said in levels.items():
        alike = all(words == next(iter(said.values())) for words in said.values())
        found |= {protocol: next(iter(said.values()))} if alike else said
    return found
