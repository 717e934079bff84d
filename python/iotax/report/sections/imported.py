"""Imported results: where they come from, and which questions they cannot answer."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from iotax.analysis import Summary
from iotax.report.section import Bullets, Phrase, Section, Source, Text
from iotax.study.imported import ImportedStudy
from iotax.trial import LatencyKnown, TrialResult

_LATENCY: dict[LatencyKnown | Literal["apart"], str] = {
    "histogram": "histograms: percentiles of several runs are those of their counts together",
    "percentiles": "percentiles of each run only: they are shown as geometric means over runs, since percentiles of "
    "several runs cannot be merged; there are no percentile curves and no shift functions",
    "apart": "percentiles of reads and of writes separately, as in the files; none for both together",
    "mean": "means only, no percentiles",
    "none": "no latency",
}


def section(source: Source) -> Section | None:
    study, said = source.summary.data.study, notes(source.summary)
    if not said:
        return None
    of = study.source if isinstance(study, ImportedStudy) else ""
    lead = (
        f"iotax did not measure these results; they were imported from {of}. Anything that is not in the files is "
        "unknown."
    )
    return Section("imported", "What the files say", [Text(lead), Bullets([Phrase(each) for each in said])], "Files")


def notes(summary: Summary) -> list[str]:
    """The files' own descriptions in sentences; empty for iotax's own measurements."""
    origins = [run.result.origin for run in summary.data.measured if run.result.origin is not None]
    if not origins:
        return []
    known = Counter(_known(run.result) for run in summary.data.measured)
    found = [f"Latency: {_LATENCY[kind]}{_of(count, len(origins))}." for kind, count in known.most_common()]
    units = sorted({origin.unit for origin in origins} - {"I/O"})
    found += [f"One I/O here is one {unit}." for unit in units]
    if not any(run.result.cpu_ns("initiator") is not None for run in summary.data.measured):
        found.append(f"CPU per I/O: {_no_cpu(summary)}")
    found += summary.data.environment.get("import_notes", [])
    found += [f"Not imported: {each}" for each in summary.data.environment.get("not_imported", [])]
    return found


def _known(result: TrialResult) -> LatencyKnown | Literal["apart"]:
    apart = result.latency_known == "mean" and all(
        each.latency in ("percentiles", "histogram") for each in result.active
    )
    return "apart" if apart else result.latency_known


def _of(count: int, whole: int) -> str:
    return "" if count == whole else f" ({count} of {whole} results)"


def _no_cpu(summary: Summary) -> str:
    if any(run.result.cpu.initiator for run in summary.data.measured):
        return (
            "none. The files count only the load program's own time, without the kernel's threads and interrupts. "
            "Record sar, mpstat or esxtop beside the runs and import it with --cpu."
        )
    return "none. The files hold no CPU time; record sar, mpstat or esxtop beside the runs and import it with --cpu."
