"""Answers, for this run, what experts ask of a storage benchmark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from iotax.analysis import Severity, Summary
from iotax.analysis.limits import Limit
from iotax.analysis.precision import precise_enough
from iotax.analysis.validity import near_own_target
from iotax.report.charts import is_sweep
from iotax.report.section import Section, Source, Text
from iotax.report.sections.links import beyond, is_known
from iotax.report.sections.validity import limits_of
from iotax.study.imported import ImportedStudy
from iotax.wording import inside, looked, not_sized
from iotax.wording.recovery import wrong_data

_CLOCK_ERROR = 0.01
"""Tolerance: clocks of processes and of the window are not read at the same instant."""
_PREDICTION_MAX_PERCENT = 10.0
"""A model with a larger prediction error answers no question of sizing."""
_DEPTHS_MAX = 4
"""Numbers of I/Os listed in a sentence."""

Answer: TypeAlias = Literal["yes", "partly", "no", "none"]
"""`none`: not applicable to this study."""


@dataclass(frozen=True)
class Item:
    ask: str
    answer: Answer
    because: str


@dataclass(frozen=True)
class Checklist:
    kind: ClassVar[str] = "checklist"
    items: Sequence[Item]


def section(source: Source) -> Section:
    lead = Text("Questions that experts ask about a storage benchmark, answered for this run.")
    items = checklist(source.summary, limits_of(source.summary))
    return Section("checklist", "Checklist", [lead, Checklist(items)], "Checklist")


def checklist(summary: Summary, limits: list[Limit]) -> list[Item]:
    """In an expert's reading order. `limits` are those of the summary's cells."""
    return [
        _before(summary),
        _configuration(summary),
        _shown(summary),
        _limiter(limits),
        _sound(summary),
        _repeats(summary),
        _check(summary, "little", "Little’s law holds in every run", "|N − X·R|/N is at most 5 % in every run"),
        _generator(summary),
        _loop(summary),
        _percentiles(summary),
        _effect(summary),
        _levels(summary),
        _steady(summary),
        _interactions(summary),
        _residuals(summary),
        _index(summary),
        _log_log(summary),
        _models(summary),
        _sizing(summary),
        _again(summary),
    ]


def _before(summary: Summary) -> Item:
    study = summary.data.study
    primary = summary.responses[0].title if summary.responses else study.responses[0]
    stop = study.design.stop
    ending = (
        f"at least {stop.at_least} replicates, then until the interval of every ratio is within ±{stop.half_width:g} "
        "%, "
        f"{study.design.replicates} at most"
        if stop
        else f"{study.design.replicates} replicates, no early stop"
    )
    rules = f"; runs with findings of {', '.join(study.exclude)} are left out" if study.exclude else ""
    ask = "Question, primary response, margin and stopping rule fixed before any data"
    if isinstance(study, ImportedStudy):
        return Item(ask, "no", "The results were imported: it is unknown what was fixed before the data.")
    if not summary.data.planned_count:
        return Item(ask, "no", "The notebook holds no plan: it is unknown what was fixed before the data.")
    if summary.data.looks:
        return Item(ask, "no", f"{looked(summary.data)}: no verdict is given.")
    beyond = len(summary.data.measured) - summary.data.planned_count
    if beyond > 0:
        return Item(ask, "no", f"{beyond} more trials were measured than the plan holds.")
    text = f"The study fixes them: {inside(primary)} first, margin {study.margin:g} %, {ending}{rules}"
    if summary.data.earlier_runs:
        number = summary.data.earlier_runs + 1
        text += f". It is run {number} of this study in the notebook: each has its own 5 % of false alarms"
    if (untried := summary.data.untried) and not _ended_by_rule(summary):
        text += f". {len(untried)} of {summary.data.planned_count} trials have not run: results of a partial study are "
        return Item(ask, "partly", f"{text}no reason to stop.")
    return Item(ask, "yes", f"{text}.")


def _ended_by_rule(summary: Summary) -> bool:
    """Whether the missing trials were made unnecessary by the study's own rule."""
    return precise_enough(summary.data, max((run.trial.block for run in summary.data.runs), default=0))


def _configuration(summary: Summary) -> Item:
    ask = "Full configuration, link ceilings, and every difference other than the protocol listed as a confounder"
    study = summary.data.study
    known = "Study, machine, versions and what each connection negotiated are printed"
    if isinstance(study, ImportedStudy):
        return Item(ask, "no", "The files do not describe machines, links and targets; see what they say.")
    if not summary.data.environment:
        return Item(ask, "no", "The notebook does not record machine and versions.")
    links = {run.result.facts.link.kind for run in summary.data.runs if not run.local}
    if links == {"loopback"}:
        return Item(
            ask,
            "partly",
            f"{known}; both sides share a machine over loopback, so no link has a ceiling, and the implementations "
            "differ as well as the protocols.",
        )
    if is_known(summary):
        return Item(ask, "yes", f"{known}; the study names each link, and its ceiling is shown beside the throughput.")
    if study.links:
        return Item(ask, "partly", f"{known}; links are named, but not for every protocol compared.")
    return Item(ask, "partly", f"{known}; the study names no links, so no throughput is compared with a ceiling.")


def _shown(summary: Summary) -> Item:
    data = summary.data
    ask = "Design, blocks, seed, actual order, failed and excluded runs shown"
    if isinstance(data.study, ImportedStudy):
        return Item(ask, "no", "Imported files show what was measured, not what was planned, failed or left out.")
    if not data.planned_count:
        return Item(ask, "no", "The notebook holds no plan to compare the runs with.")
    complete = len(data.measured) == data.planned_count
    several = "failed or interrupted attempts are" if len(data.not_done) > 1 else "failed or interrupted attempt is"
    bad = f"{len(data.not_done)} {several} listed" if data.not_done else "no attempt failed"
    out = f"{len(data.excluded)} runs are excluded by rule and listed" if data.excluded else "no run is excluded"
    return Item(
        ask,
        "yes" if complete else "partly",
        f"{bad[:1].upper()}{bad[1:]}; {out}" + ("." if complete else "; trials are missing."),
    )


def _limiter(limits: list[Limit]) -> Item:
    ask = "The bottleneck of each treatment named, with evidence"
    unknown = sum(limit.limiter == "unknown" for limit in limits)
    if not limits or unknown == len(limits):
        return Item(ask, "no", "Processor time was not measured, so no bottleneck can be named.")
    if unknown:
        return Item(ask, "partly", f"Named under Validity, except for {unknown} of {len(limits)} treatments.")
    return Item(ask, "yes", "Named under Validity, from processor time, offered rate and outstanding I/O.")


def _sound(summary: Summary) -> Item:
    ask = "Nothing above a physical limit, no errors, correct data, no reads of blocks never written"
    if beyond := _beyond(summary):
        return Item(ask, "no", beyond)
    if wrong_data(summary.data):
        return Item(ask, "no", "An attempt read wrong data; see the first line.")
    levels = [level for key in ("errors", "data", "unwritten") for level in _of(summary, key)]
    if Severity.INVALID in levels or Severity.DOUBTFUL in levels:
        return Item(ask, "no", "See the findings under Validity.")
    if Severity.UNKNOWN in _of(summary, "errors"):
        return Item(ask, "partly", "For some runs it was not recorded whether I/Os failed or data were correct.")
    if Severity.UNKNOWN in levels or not levels:
        return Item(ask, "partly", "No I/O failed; not all data read were checked.")
    return Item(ask, "yes", "No I/O failed, and all data read were correct.")


def _beyond(summary: Summary) -> str:
    """Impossible results: more than a link can carry, more processor time than there are processors. Empty if there are
    none."""
    if beyond(summary):
        return "A treatment carried more than its link can."
    for run in summary.data.runs:
        for part in run.result.cpu:
            cores, window_ns = part.processors, part.window_ns or run.result.window.duration_ns
            # A process may have helpers beside its threads, but all processors of a machine are known. Either end of
            # the window may be off by a tick.
            most_ns = (cores or 0) * (window_ns + 2 * part.resolution_ns) * (1 + _CLOCK_ERROR)
            if part.layer == "machine" and cores and part.busy_ns > most_ns:
                return f"{run.trial.id} used more processor time than {cores} processors have."
    return ""


def _repeats(summary: Summary) -> Item:
    ask = "Replicated, and the noise floor is known"
    if summary.data.simulated:
        return Item(ask, "none", "Simulated runs have no machine noise.")
    if not summary.noise:
        return Item(ask, "no", "Without replicates the scatter of runs is unknown.")
    noise = summary.noise[0]
    scatter = f"{100 * noise.cv:.1f} %" if noise.cv < 1 else "more than their mean"
    text = f"Runs of one treatment scatter by {scatter} ({inside(noise.response.short)})"
    if noise.detectable_ratio is None:
        return Item(ask, "partly", f"{text}; the minimum detectable difference cannot be computed.")
    hidden = 100 * (noise.detectable_ratio - 1)
    shown = f"a difference of {hidden:.1f} %" if hidden < 100 else f"a factor of {noise.detectable_ratio:.1f}"
    enough = hidden <= 2 * summary.data.study.margin
    return Item(
        ask,
        "yes" if enough else "partly",
        f"{text}; {noise.replicates} replicates detect {shown} with 90 % power; the margin "
        f"is {summary.data.study.margin:g} %. It was not repeated on another day or machine.",
    )


def _check(summary: Summary, key: str, ask: str, good: str) -> Item:
    levels = _of(summary, key)
    bad = sum(level >= Severity.DOUBTFUL for level in levels)
    unknown = sum(level == Severity.UNKNOWN for level in levels)
    if bad:
        return Item(ask, "no", f"{bad} of {len(levels)} runs fail it.")
    if unknown or not levels:
        return Item(ask, "partly", f"Unknown for {unknown} of {len(levels)} runs.")
    return Item(ask, "yes", f"{good}.")


def _generator(summary: Summary) -> Item:
    ask = "The load generator is not the bottleneck"
    levels = _of(summary, "generator")
    late = sum(level == Severity.DOUBTFUL for level in _of(summary, "lateness"))
    if late:
        return Item(ask, "no", f"In {late} of {len(levels)} runs it issued I/Os so late that response times show it.")
    waited = sum(level >= Severity.DOUBTFUL for level in _of(summary, "wait"))
    if waited:
        return Item(ask, "no", f"In {waited} of {len(levels)} runs it was ready to work but waited for a processor.")
    near = [near_own_target(run) for run in summary.data.runs]
    noted = sum(level >= Severity.NOTE for level in levels)
    if noted and any(near):
        return Item(
            ask,
            "partly",
            f"In {noted} of {len(levels)} runs its processor was busy throughout, or it reaches little or no more on "
            "iotax’s own target: there the initiator (protocol and generator) may limit the throughput.",
        )
    if noted:
        return Item(
            ask,
            "partly",
            f"In {noted} of {len(levels)} runs its processor was busy throughout: there the initiator (protocol and "
            f"generator) limits the throughput, not the target.",
        )
    unknown = sum(level == Severity.UNKNOWN for level in levels)
    if unknown or not levels:
        return Item(ask, "partly", f"Its utilisation is unknown for {unknown} of {len(levels)} runs.")
    if unwaited := sum(level == Severity.UNKNOWN for level in _of(summary, "wait")):
        return Item(
            ask,
            "partly",
            "Its threads left processor time unused in every run; whether they waited for a processor is unknown for "
            f"{unwaited} of {len(levels)} runs.",
        )
    more = "" if all(each is None for each in near) else ", or it reaches clearly more on iotax’s own target"
    return Item(ask, "yes", f"Its processor had time to spare in every run{more}.")


def _loop(summary: Summary) -> Item:
    ask = "Open or closed loop is stated"
    count = len(summary.data.runs)
    held = sum(run.result.open is not None for run in summary.data.runs)
    if not count:
        return Item(ask, "no", "There is no run.")
    if not held and Severity.UNKNOWN in _of(summary, "achieved"):
        return Item(ask, "no", "The files do not say whether a rate was set.")
    if not held and _of_commands(summary):
        return Item(ask, "no", "Only the command itself knows whether it keeps a number of I/Os outstanding or a rate.")
    if not held:
        depths = sorted({each for run in summary.data.runs if (each := run.total_outstanding) is not None})
        kept = ", ".join(map(str, depths)) if len(depths) <= _DEPTHS_MAX else f"{depths[0]} to {depths[-1]}"
        text = (
            f"Closed loop of {kept or 'an unknown number of'} {summary.counts}s: each completion "
            "starts the next, so the load follows the target."
        )
        return Item(ask, "yes", text)
    if submitted := [run for run in summary.data.runs if run.result.open and run.result.open.lateness is None]:
        text = (
            f"In {len(submitted)} of {held} open loops latency is counted from submission: time waiting before it is "
            "missing."
        )
        return Item(ask, "partly", text)
    arrivals = " and ".join(sorted({run.result.open.arrivals for run in summary.data.runs if run.result.open}))
    text = (
        f"Open loop, {arrivals} arrivals: latency is counted from when an I/O was due, service time from its "
        "submission."
    )
    return Item(ask, "yes", text if held == count else f"{text} Closed loops: {count - held} of {count} runs.")


def _of_commands(summary: Summary) -> bool:
    """Whether a command of the user's made the load of any run."""
    study = summary.data.study
    if isinstance(study, ImportedStudy):
        return False
    return any(study.settings(run.trial.treatment).load.generator == "command" for run in summary.data.runs)


def _percentiles(summary: Summary) -> Item:
    ask = "The full percentile curve to the maximum, from merged counts"
    if not any(cell.latency.total for cell in summary.cells):
        known = any(run.result.own_percentiles for run in summary.data.runs)
        return Item(ask, "no", "Percentiles of single runs only." if known else "No latency was recorded.")
    return Item(ask, "yes", "Counts of all runs of a treatment are added; no percentile is averaged.")


def _effect(summary: Summary) -> Item:
    ask = "Effect size with its interval before any p-value, and the direction of the ratio"
    ratios = [comparison.ratio for comparison in summary.comparisons]
    if any(ratio.low is None for ratio in ratios) or not ratios:
        return Item(ask, "partly", "Ratios are treatment over baseline; too few runs for an interval of each.")
    return Item(
        ask, "yes", "Every ratio is treatment over baseline, with its 95 % interval; no p-value is printed alone."
    )


def _levels(summary: Summary) -> Item:
    ask = "Variation by level: I/O, run, block"
    if not any(len(cell.runs) > 1 for cell in summary.cells):
        return Item(ask, "partly", "One run of each treatment: variation between runs and blocks is unknown.")
    return Item(ask, "yes", "I/Os in percentile curves, runs as points and intervals, blocks in the run-order chart.")


def _steady(summary: Summary) -> Item:
    ask = "Steady-state verdict and discarded warm-up of each run"
    levels = _of(summary, "steady")
    known = sorted({run.result.facts.warmup_ns for run in summary.data.runs if run.result.facts.warmup_ns is not None})
    times = " to ".join(f"{ns / 1e9:g}" for ns in dict.fromkeys(known[:1] + known[-1:]))
    warmup = f"Warm-up discarded: {times} s." if known else "The discarded warm-up is unknown."
    bad = sum(level >= Severity.DOUBTFUL for level in levels)
    unknown = sum(level == Severity.UNKNOWN for level in levels)
    if bad:
        return Item(ask, "partly", f"{warmup} {bad} of {len(levels)} runs were not in steady state; they are marked.")
    if unknown or not levels:
        return Item(ask, "partly", f"{warmup} {unknown} of {len(levels)} runs are too short to say.")
    return Item(ask, "yes", f"{warmup} Every run passes SNIA’s window of five rounds.")


def _interactions(summary: Summary) -> Item:
    ask = "Interactions before averages"
    if len(summary.grid.conditions) < 2:
        return Item(ask, "none", "Only one condition: no interaction is possible.")
    if all(overall.interaction_p is None for overall in summary.overalls):
        return Item(ask, "no", "Averages over conditions are not tested: too few runs.")
    depends = sum(overall.depends for overall in summary.overalls)
    text = f"{depends} of {len(summary.overalls)} results depend on the condition and are given by condition."
    if not depends:
        text = "Tested first: no result depends significantly on the condition."
    return Item(ask, "yes", text)


def _residuals(summary: Summary) -> Item:
    ask = "Residual and run-order plots, raw points on charts"
    if not summary.data.runs:
        return Item(ask, "no", "There is no run to draw.")
    free = summary.responses and summary.models[summary.responses[0].key].model.layout.residual_df > 0
    if not free:
        return Item(ask, "partly", "Every run is a point, in run order too; too few runs for residuals.")
    return Item(ask, "yes", "Every run is a point; residuals over fitted values, run order and normal quantiles.")


def _index(summary: Summary) -> Item:
    ask = "Index-100 charts carry absolute values and the baseline’s own uncertainty; bars start at zero"
    if not summary.comparisons:
        return Item(ask, "none", "Only the baseline was measured.")
    lacking = sum(comparison.ratio.low is None for comparison in summary.comparisons)
    if lacking:
        text = f"{lacking} of {len(summary.comparisons)} ratios have no interval: too few runs."
        return Item(ask, "no" if lacking == len(summary.comparisons) else "partly", text)
    return Item(
        ask,
        "yes",
        "Absolute values stand beside or above the ratios, intervals of ratios include the baseline’s scatter, "
        "bars of CPU time start at zero.",
    )


def _log_log(summary: Summary) -> Item:
    ask = "Log-log plots with a ratio panel"
    if not is_sweep(summary):
        return Item(ask, "none", "No sweep of block sizes in this study.")
    if any(comparison.ratio.low is None for comparison in summary.comparisons):
        return Item(
            ask, "partly", "Absolute values on two logarithmic axes; too few runs for an interval of each ratio."
        )
    return Item(ask, "yes", "Absolute values on two logarithmic axes, ratios with intervals beneath.")


def _models(summary: Summary) -> Item:
    ask = "Each model names its assumptions and validation error"
    if summary.costs is None:
        return Item(
            ask,
            "partly",
            "Method lists those of the blocked model; its error is shown as residuals, not as prediction error.",
        )
    error = 100 * summary.costs.model.prediction_share
    if error > _PREDICTION_MAX_PERCENT:
        return Item(ask, "no", f"The prediction error of the CPU model is {error:.1f} % (PRESS): too large.")
    return Item(
        ask,
        "yes",
        f"The CPU model’s facts stand beside it; its prediction error is {error:.1f} % (PRESS). The assumptions of the "
        "queue are stated, not validated here.",
    )


def _sizing(summary: Summary) -> Item:
    ask = "Sizing states utilisation, response-time target and both ends of the interval"
    if not summary.report_sizing.costs:
        return Item(ask, "none", f"Nothing is sized: {'; '.join(not_sized(summary.report_sizing))}.")
    if any(cost.cost_us.low is None for cost in summary.report_sizing.costs):
        return Item(ask, "partly", "Targets are stated; some costs have no interval.")
    return Item(
        ask, "yes", "Cores under a cap and two response targets, with the cores at both ends where they differ."
    )


def _again(summary: Summary) -> Item:
    ask = "Raw data and code version available; one command reproduces the run"
    if not summary.data.environment:
        return Item(ask, "partly", "The notebook does not record machine and version.")
    return Item(ask, "yes", "The notebook holds every result and version; the commands are at the end.")


def _of(summary: Summary, key: str) -> list[Severity]:
    return [check.level for found in summary.run_checks.values() for check in found if check.key == key]
