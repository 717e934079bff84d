"""What experts ask of a storage benchmark, and how this run answers."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from iotax.analysis import Level, Summary

Answer: TypeAlias = Literal["yes", "partly", "no"]


@dataclass(frozen=True)
class Item:
    ask: str
    answer: Answer
    because: str


def checklist(summary: Summary) -> list[Item]:
    return [
        _before(summary),
        Item(
            "Configuration in full, and every difference beside the protocol listed",
            "partly",
            "Study, machine, versions and what each connection agreed on are below; links' ceilings are not measured.",
        ),
        _shown(summary),
        Item(
            "What limits each cell is named with evidence",
            "partly",
            "The load generator's processor and Little's law are checked; the target's limits are not.",
        ),
        _sound(summary),
        _check(summary, "little", "Little's law holds in every cell", "|N − X·R|/N is at most 5 % in every run"),
        _generator(summary),
        Item("Open or closed loop is stated", "yes", "Closed loop: each completion starts the next I/O."),
        Item(
            "The full percentile curve to the maximum, from merged counts",
            "yes",
            "Counts of all runs of a treatment are added; no percentile is averaged.",
        ),
        Item(
            "Effect size with its interval before any p-value, and the ratio's direction",
            "yes",
            "Every ratio is treatment over baseline, with its 95 % interval; the baseline's own scatter is in it.",
        ),
        Item(
            "Variation by level: I/O, run, block",
            "yes",
            "I/Os in percentile curves, runs as points, blocks in the run-order chart.",
        ),
        _steady(summary),
        Item(
            "Interactions before averages",
            "yes",
            "Where the ratio depends on the condition it is given by condition, and no overall winner is named.",
        ),
        Item("Residuals and run order plotted, raw points on charts", "yes", "Every run is a point on every chart."),
        Item(
            "Relative charts carry absolute values, bars start at zero",
            "yes",
            "The table gives both; CPU bars start at zero.",
        ),
        Item(
            "Raw data, code version and a command that makes it again",
            "yes" if summary.data.environment else "partly",
            "The notebook holds every result; the command lines are at the end."
            if summary.data.environment
            else "The notebook does not say which machine and version made it.",
        ),
    ]


def _before(summary: Summary) -> Item:
    study = summary.data.study
    primary = summary.responses[0].title if summary.responses else study.responses[0]
    return Item(
        "Question, primary response, margin and stopping rule fixed before any data",
        "yes",
        f"They stand in the study: {primary.lower()} first, margin {study.margin:g} %, "
        f"{study.design.replicates} replicates and then the end.",
    )


def _shown(summary: Summary) -> Item:
    data = summary.data
    complete = len(data.runs) == (data.planned_count or len(data.runs))
    several = "attempts that did not end well are" if len(data.not_done) > 1 else "attempt that did not end well is"
    bad = f"{len(data.not_done)} {several} listed" if data.not_done else "no attempt failed"
    return Item(
        "Design, blocks, seed, actual order, failed and excluded runs shown",
        "yes" if complete else "partly",
        f"{bad}; no run is excluded by its value" + ("." if complete else "; trials are missing."),
    )


def _sound(summary: Summary) -> Item:
    levels = [c.level for checks in summary.run_checks.values() for c in checks if c.key in ("errors", "data")]
    if Level.INVALID in levels:
        return Item("No errors, right data", "no", "See the findings under Validity.")
    if Level.UNKNOWN in levels:
        return Item("No errors, right data", "partly", "No I/O failed; not all data read were checked.")
    return Item("No errors, right data", "yes", "No I/O failed, and every block read was what had been written.")


def _check(summary: Summary, key: str, ask: str, good: str) -> Item:
    levels = [c.level for checks in summary.run_checks.values() for c in checks if c.key == key]
    bad = sum(level >= Level.DOUBTFUL for level in levels)
    unknown = sum(level == Level.UNKNOWN for level in levels)
    if bad:
        return Item(ask, "no", f"{bad} of {len(levels)} runs fail it.")
    if unknown or not levels:
        return Item(ask, "partly", f"It cannot be said of {unknown} of {len(levels)} runs.")
    return Item(ask, "yes", f"{good}.")


def _generator(summary: Summary) -> Item:
    ask = "The load generator is not the bottleneck"
    levels = [c.level for checks in summary.run_checks.values() for c in checks if c.key == "generator"]
    busy = sum(level == Level.NOTE for level in levels)
    if busy:
        return Item(
            ask,
            "partly",
            f"In {busy} of {len(levels)} runs its processor was busy throughout: there the throughput is bounded by "
            "the initiator (protocol and generator), not by the target.",
        )
    return Item(ask, "yes" if levels else "partly", "Its processor had time to spare in every run.")


def _steady(summary: Summary) -> Item:
    ask = "Steady-state verdict of each run, warm-up discarded"
    levels = [c.level for checks in summary.run_checks.values() for c in checks if c.key == "steady"]
    unknown = sum(level == Level.UNKNOWN for level in levels)
    bad = sum(level == Level.DOUBTFUL for level in levels)
    if bad:
        return Item(ask, "partly", f"{bad} of {len(levels)} runs were not steady; they are marked.")
    if unknown or not levels:
        return Item(ask, "partly", f"{unknown} of {len(levels)} runs are too short to say.")
    return Item(ask, "yes", "Every run passes SNIA's window of five rounds.")
