"""Sentences about how far to trust the answer: planned, flagged and excluded runs, preconditioning, and differences
too small to detect."""

from collections.abc import Sequence

from iotax.analysis.carryover import CarryOver
from iotax.analysis.compare import Overall
from iotax.analysis.data import StudyData
from iotax.analysis.noise import Noise
from iotax.analysis.sessions import SessionScatter
from iotax.analysis.steady import progress_of
from iotax.analysis.summary import Summary
from iotax.analysis.validity import DISTURBANCES, TITLES, Severity, near_own_target
from iotax.records import Conditioning
from iotax.study.imported import ImportedStudy
from iotax.study.precondition import Precondition
from iotax.units import counted, format_size, show_minutes, show_rate
from iotax.wording.answer import effort
from iotax.wording.figures import ALIKE, PERCENT_RATIO_MAX, Finding, figure, inside, percent, signed, title
from iotax.wording.verdicts import under

_CARRIED_P = 0.05
_BINNED = (50, 99)
"""Percentiles whose bins are named."""
_NAMED_MAX = 8
"""Number of runs named in a sentence; the tables list all."""


SIMULATED = (
    "Simulated: nothing was measured on a machine. Processors, links and media are models in virtual time; CPU times "
    "come from a cost table."
)
"""Printed first wherever such results are shown."""
SIMULATED_BRIEF = "Simulated: nothing was measured on a machine; costs come from a table."
"""The same in one line of a terminal."""

_DRAWN = (
    "Each replicate drew its costs from the table’s intervals, so the intervals here include the uncertainty of the "
    "costs."
)

_SEEDS = (
    "Replicates differ only by random seed; the intervals leave out the uncertainty of the assumed costs. "
    "`iotax sim sensitivity` shows how much each one matters."
)


def trust(summary: Summary) -> list[Finding]:
    """Planned and measured runs, findings of the checks, excluded runs, and differences too small to detect."""
    data = summary.data
    planned = data.planned_count or len({a.trial.id for a in data.attempts})
    text = f"{len(data.measured)} of {planned} planned trials were measured"
    if data.simulated:
        text = f"{len(data.measured)} of {planned} planned trials were simulated"
    if isinstance(data.study, ImportedStudy):
        text = f"{counted(len(data.measured), 'result')} imported from {data.study.source}: iotax did not measure them"
    if data.not_done:
        are = "is" if len(data.not_done) == 1 else "are"
        text += f"; {counted(len(data.not_done), 'failed or interrupted attempt')} {are} listed"
    found = [Finding("", text + ".", "warning" if len(data.measured) < planned else "plain")]
    if text := disturbed_trials(summary):
        found.append(Finding("disturbed", text, "warning"))
    if data.looks:
        text = f"{looked(data)}. Ratios get no verdict: adding until something differs finds differences that are not "
        found.append(Finding("looks", f"{text}there. A new run with another `seed:` gets verdicts.", "warning"))
    if data.apart:
        found.append(_apart(data))
    if data.excluded:
        found.append(_left_out(data, summary.both_ways))
    if data.costs_drawn:
        found.append(Finding("costs", _DRAWN, "plain"))
    found += [*_flagged(summary), *_limited(summary), *_binned(summary)]
    # The scatter of simulated runs is not a machine's noise.
    found += [_noise(each) for each in summary.noise[:1] if not data.simulated]
    if data.simulated and not data.costs_drawn:
        found.append(Finding("seeds", _SEEDS))
    found += [_sessions(summary.session_scatter, effort(summary, 0.5))] if summary.session_scatter else []
    return [*found, *([_carried_over(summary.carry_over)] if summary.carry_over else [])]


def looked(data: StudyData) -> str:
    """ "3 replicates were planned; 3 more were added when 12 trials had results"."""
    unit, first = data.study.design.unit, data.looks[0]
    more = [
        f"{each.raised_to - each.replicates} more {'was' if each.raised_to - each.replicates == 1 else 'were'} added "
        f"when {counted(each.results, 'trial')} had results"
        for each in data.looks
    ]
    return f"{counted(first.replicates, unit)} {'was' if first.replicates == 1 else 'were'} planned; {', '.join(more)}"


def measuring(data: StudyData) -> str:
    """ "89 % of the 2 min 41 s was spent measuring"; empty if the notebook does not have the times."""
    share = data.measuring_share
    return "" if share is None else f"{100 * share:.0f} % of the {show_minutes(data.wall_ns / 1e9)} was spent measuring"


def _flagged(summary: Summary) -> list[Finding]:
    """Each check with findings, with an example."""
    found, runs = [], summary.run_checks
    for key, name in TITLES.items():
        bad = [c for checks in runs.values() for c in checks if c.key == key and c.level >= Severity.DOUBTFUL]
        if bad:
            cells = (c for cell in summary.cells for c in cell.checks if c.key == key and c.level >= Severity.DOUBTFUL)
            example = next(cells, bad[0]).text
            text = f"{name}: {len(bad)} of {counted(len(runs), 'run')} flagged, e.g. “{example}”."
            found.append(Finding(key, text, "warning"))
    return found


def limited(summary: Summary) -> int:
    """The number of runs that the initiator may have limited, by what it reaches on iotax's own target."""
    return sum(bool(near_own_target(run)) for run in summary.data.runs)


def _limited(summary: Summary) -> list[Finding]:
    hit = limited(summary)
    if not hit:
        return []
    text = (
        f"The initiator may be the bottleneck in {hit} of {counted(len(summary.run_checks), 'run')}: under the same "
        "load it reaches little or no more on iotax's own target on the same machine."
    )
    return [Finding("generator", text, "warning")]


def _binned(summary: Summary) -> list[Finding]:
    """Percentiles interpolated within wide bins, with the bounds between which they lie."""
    said = []
    for cell in summary.cells:
        parts = []
        for share in _BINNED:
            bounds = [found for run in cell.runs if (found := run.result.between_ns(share)) is not None]
            if bounds:
                low, high = min(low for low, _ in bounds) / 1e3, max(high for _, high in bounds) / 1e3
                parts.append(f"p{share:g} {figure(low)} to {figure(high)}")
        if parts:
            name = " ".join(filter(None, (title(cell.arm), under(cell.condition))))
            said.append(f"{name} {', '.join(parts)} µs")
    if not said:
        return []
    more = f"; and {len(said) - _NAMED_MAX} more" if len(said) > _NAMED_MAX else ""
    text = "The files count latency in wide bins. Percentiles are interpolated, and lie between a bin's bounds: "
    return [Finding("bins", f"{text}{'; '.join(said[:_NAMED_MAX])}{more}.")]


def _left_out(data: StudyData, both_ways: Sequence[tuple[Overall, Overall]]) -> Finding:
    """Always names the excluded runs, the rule, and the answer with them included."""
    names = [f"{each.run.trial.id} ({', '.join(f.key for f in each.findings)})" for each in data.excluded]
    few = ", ".join(names[:_NAMED_MAX]) + (f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else "")
    text = (
        f"{len(names)} of {len(data.measured)} measured runs are excluded by the rules that the study set beforehand "
        f"({', '.join(data.study.exclude)}): {few}."
    )
    details = [
        f"{title(kept.arm)}, {inside(kept.response.short)}: ratio {_bare(kept)} without them, {_bare(whole)} with them"
        for kept, whole in both_ways
    ]
    return Finding("excluded", text, "warning", tuple(details))


def disturbed_trials(summary: Summary) -> str:
    """Printed first if most trials were disturbed; else empty."""
    runs = summary.run_checks.values()
    bad = [[c.key for c in checks if c.key in DISTURBANCES and c.level >= Severity.DOUBTFUL] for checks in runs]
    hit = sum(map(bool, bad))
    if hit * 2 <= len(bad):
        return ""
    were = "was" if hit == 1 else "were"
    keys = {key for found in bad for key in found}
    by = " by other work" if keys & {"wait", "foreign"} else ""
    return f"{hit} of {counted(len(bad), 'trial')} {were} disturbed{by}; repeat on a quiet machine."


def _apart(data: StudyData) -> Finding:
    """Trials that ran with fewer hosts than planned, and how they are treated."""
    lost = sorted({host for run in data.apart for host in run.result.left_out})
    some = [
        f"{run.trial.id}, {len(run.result.clients)} of {len(run.result.clients) + len(run.result.left_out)} clients, "
        f"{show_rate(run.result.rate_iops)} {run.result.rate_unit}"
        for run in data.apart[:_NAMED_MAX]
    ]
    few = "; ".join(some) + (f"; and {len(data.apart) - _NAMED_MAX} more" if len(data.apart) > _NAMED_MAX else "")
    them = "it" if len(data.apart) == 1 else "them"
    text = (
        f"{counted(len(data.apart), 'trial')} ran with fewer clients, without {', '.join(lost)}, and no figure or "
        f"comparison counts {them}: {few}. `iotax run` measures {them} again once all of their clients answer."
    )
    return Finding("apart", text, "warning")


def _bare(overall: Overall) -> str:
    ratio = overall.comparison.ratio
    if ratio.low is None or ratio.high is None:
        return "not known"
    if ratio.alike:
        return f"{figure(ratio.value)} ({ALIKE})"
    return f"{figure(ratio.value)} [{figure(ratio.low)}, {figure(ratio.high)}]"


def _sessions(found: SessionScatter, for_half: str) -> Finding:
    """What would narrow the intervals, and the effort."""
    share, name = found.share_of_sessions, inside(found.response.short)
    if share > 0.5:
        text = (
            f"Most of the scatter of {name} ratios is between sessions ({100 * share:.0f} %): "
            "more sessions narrow the intervals, more rounds do not"
        )
    else:
        text = (
            f"Most of the scatter of {name} ratios is between slices of a session ({100 - 100 * share:.0f} %): "
            "more rounds narrow the intervals as well as more sessions"
        )
    return Finding("sessions", f"{text}. Intervals half as wide take {for_half}.")


def _carried_over(found: CarryOver) -> Finding:
    """Whether slices are affected by those that ran before them."""
    name, test = inside(found.response.short), f"Kruskal-Wallis, p = {found.p:.2g}"
    if found.p >= _CARRIED_P:
        return Finding("carry-over", f"No significant effect on {name} of the preceding slice ({test}).")
    return Finding(
        "carry-over",
        f"The preceding slice changes {name} ({test}): by {signed(found.percent / 100)} after "
        f"{title(found.after)}. Compared treatments follow each other equally often, so the "
        "comparison stays fair; a longer `settle:` under design reduces the effect.",
    )


def _noise(noise: Noise) -> Finding:
    scatter = percent(noise.cv) if noise.cv < 1 else "more than their mean"
    text = f"Noise floor: runs of one treatment scatter by {scatter} ({inside(noise.response.title)})"
    if noise.detectable_ratio is not None:
        ratio = noise.detectable_ratio
        seen = percent(ratio - 1) if ratio <= PERCENT_RATIO_MAX else f"a factor of {figure(ratio)}"
        text += f"; minimum detectable difference with {counted(noise.replicates, 'replicate')} (90 % power): {seen}"
    return Finding("noise", text + ".")


def preconditioned(asked: Precondition, steps: Sequence[Conditioning]) -> dict[str, str]:
    """Endpoint → how its volumes were preconditioned."""
    found = {}
    for endpoint in dict.fromkeys(each.endpoint for each in steps):
        done = progress_of(asked, endpoint, steps)
        fills = [each for each in steps if each.endpoint == endpoint and each.kind == "fill"]
        times = "once" if len(fills) == 1 else f"{len(fills)} times"
        said = f"filled {times} with {format_size(fills[0].bytes)}" if fills else "not filled"
        if done.rounds:
            state = "steady" if done.steady else "not in a steady state"
            rounds, rate = counted(done.rounds, "round"), show_rate(done.rate_iops or 0)
            said += f"; {state} after {rounds} of random writes, {rate} IOPS"
        if done.window is not None:
            said += f"; the last five lie within {percent(done.window.range_ratio)} of their mean (steady: "
            said += f"20 %), the line through them within {percent(done.window.excursion_ratio)} (10 %)"
        found[endpoint] = said
    return found
