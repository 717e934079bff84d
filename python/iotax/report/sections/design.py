"""How the study was designed and run: its factors, the order of its runs, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from iotax.analysis import Summary
from iotax.analysis.responses import CPU, CPU_INITIATOR, IOPS, LATENCY
from iotax.redaction import redact
from iotax.report import charts
from iotax.report.section import (
    Facts,
    Folded,
    Heading,
    Listing,
    Panels,
    Part,
    Phrase,
    Section,
    Source,
    Text,
    facts,
    note,
)
from iotax.report.tables import Column
from iotax.study.imported import ImportedStudy
from iotax.trial import Attempt
from iotax.units import show_time
from iotax.wording import figure, measuring, title


def section(source: Source) -> Section:
    summary = source.summary
    parts: list[Part] = [_facts(summary), *_order(source), *_shares(summary), *_failed(summary), *_excluded(summary)]
    parts.append(Folded("Every run, in the order in which they ran", [_runs(summary)]))
    return Section("design", "Design", parts, "Design")


def _facts(summary: Summary) -> Facts:
    study = summary.data.study
    design, imported = study.design, isinstance(study, ImportedStudy)
    factors = " × ".join(
        f"{name.replace('_', ' ')} {{{', '.join(level.label for level in levels)}}}"
        for name, levels in summary.grid.factors.items()
    )
    rows = [("Factors", factors)]
    if design.slices:
        each = show_time(design.slice) if design.slice else ""
        rounds = f"{design.rounds} per session: each treatment for {each} per round"
        rows += [
            ("Sessions", f"{design.replicates}, each with new processes, memory and connections"),
            ("Rounds", f"{rounds}; what is compared runs side by side, each equally often after each other"),
        ]
    else:
        rows.append(("Replicates", f"{design.replicates}{' at most' if imported else ''}"))
        blocks = "each replicate is a complete block, in its own random order"
        if imported:
            rows.append(("Order", "as in the files; whether it was random is unknown"))
        else:
            whole = "none: all trials in one random order"
            rows.append(("Blocks", blocks if design.blocks == "replicate" else whole))
    if not imported:
        rows.append(("Seed", str(design.seed)))
    if time := measuring(summary.data):
        rows.append(("Time", time))
    unit = "a session: its slices and its I/Os"
    if not design.slices:
        unit = f"a run: its seconds and its {summary.counts}s"
    return facts([*rows, ("Unit of observation", f"{unit} are not counted as replicates")])


def _order(source: Source) -> list[Part]:
    summary, looks = source.summary, source.looks
    drawn = source.drawn(
        charts.rounds(summary, looks, r) or charts.run_order(summary, looks, r) for r in summary.responses[:1]
    )
    return [Panels([each], each.description, 0, source.legend()) for each in drawn]


def _shares(summary: Summary) -> list[Part]:
    """How much of the differences between runs each combination of factors explains."""
    shares = {r.short: summary.shares[r.key] for r in summary.responses if summary.shares[r.key]}
    # Ordered by how much of the primary response they explain; unexplained ones last.
    combinations = dict.fromkeys(s.factors for found in shares.values() for s in found if s.factors)
    if not combinations:
        return []

    def row(factors: tuple[str, ...]) -> list[Phrase]:
        name = " × ".join(factors).replace("_", " ") or "blocks and residual"
        found = ([s for s in each if s.factors == factors] for each in shares.values())
        return [Phrase(name), *(Phrase(" ".join(f"{100 * s.share:.1f} %" for s in each)) for each in found)]

    columns = [Column(""), *map(Column, shares)]
    rows = [row(factors) for factors in (*combinations, ())]
    numbers = range(1, len(columns))
    return [
        Heading("What explains the differences between runs"),
        Listing("Explained variation", columns, rows, numbers=numbers, look="shares"),
        note(f"Shares of the variation of the logarithms{', without local' if summary.grid.local else ''}."),
    ]


def _failed(summary: Summary) -> list[Part]:
    """Every failed or interrupted attempt, and what became of its trial."""
    heading = Heading("Failed or interrupted attempts")
    if not summary.data.not_done:
        return [heading, Text("None.")]
    done = {a.trial.id: a.number for a in summary.data.attempts if a.status == "done"}

    def row(attempt: Attempt) -> list[Phrase]:
        number = done.get(attempt.trial.id)
        after = f"measured by attempt {number}" if number else "not measured"
        reason = Phrase(redact(attempt.why), log=redact(attempt.log))
        words = (attempt.trial.id, str(attempt.number), attempt.status)
        return [*map(Phrase, words), reason, Phrase(after)]

    columns = [Column(name) for name in ("Trial", "Attempt", "Ending", "Reason", "Outcome")]
    return [heading, Listing("Failed attempts", columns, [row(each) for each in summary.data.not_done])]


def _excluded(summary: Summary) -> list[Part]:
    if not summary.data.excluded:
        return []
    rows = [
        [Phrase(each.run.trial.id), Phrase("; ".join(finding.text for finding in each.findings))]
        for each in summary.data.excluded
    ]
    by = ", ".join(summary.data.study.exclude)
    return [
        Heading("Runs excluded by rule"),
        note(
            f"The study excludes runs with findings of {by}, whatever they measured; the verdict shows the result "
            "with them."
        ),
        Listing("Runs left out", [Column("Trial"), Column("Finding")], rows),
    ]


def _runs(summary: Summary) -> Listing:
    per = f"CPU per {summary.counts}"
    columns = [
        Column("Run"),
        Column("Treatment"),
        Column("Block"),
        Column("Planned as"),
        Column("Started"),
        Column("Transactions/s" if summary.database else "IOPS"),
        Column("Mean latency", "µs"),
        Column(per, "µs, both"),
        Column(per, "µs, initiator"),
    ]
    rows: list[Sequence[Phrase]] = []
    for place, run in enumerate(summary.data.runs, start=1):
        cell = summary.grid.cell(run.trial)
        arm = summary.grid.arm(cell)
        values = [summary.counted(r).of(run) for r in (IOPS, LATENCY, CPU, CPU_INITIATOR)]
        started = datetime.fromtimestamp(run.result.window.start_unix_ns / 1e9, UTC).strftime("%H:%M:%S")
        words = (str(run.trial.block), str(run.trial.order), started)
        rows.append(
            [
                Phrase(str(place)),
                Phrase(title(arm), arm, summary.grid.condition(cell)),
                *map(Phrase, words),
                *(Phrase("–" if value is None else figure(value)) for value in values),
            ]
        )
    return Listing("Every run", columns, rows, heads=1, numbers=(0, 5, 6, 7, 8))
