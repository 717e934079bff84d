"""Describes a design and what it can detect in lines for people, before anything runs."""

from __future__ import annotations

from iotax.design.conditioning import described
from iotax.design.doptimal import efficiency
from iotax.design.fraction import letters
from iotax.design.plan import Plan, conditions, steps_max
from iotax.design.power import BLOCKS_ENOUGH, block_reach, detectable_ratio, each_of, pairs_needed
from iotax.design.treatments import candidates, fraction_of, matrix, treatments
from iotax.study import Study
from iotax.study.events import StudyEvent
from iotax.units import counted, format_duration, show_minutes, show_rate, show_share, show_time

CVS = (0.01, 0.02, 0.03, 0.05, 0.1)
"""Run-to-run variations for which the detectable difference is printed; `iotax aa` measures that of a lab."""


def describe(study: Study, plan: Plan) -> list[str]:
    if study.search is not None:
        return [*described(study), *_treatments(study), *_order(study, plan), *searched(study, plan)]
    return [
        *described(study),
        *_treatments(study),
        *_order(study, plan),
        *_rounds(study),
        *happenings(study),
        *stops(study),
        *_detectable(study),
        *_blocks(plan),
    ]


def arranged(study: Study) -> str:
    """The kind of design and its number of treatments, without a full stop."""
    design, count = study.design, len(treatments(study))
    if design.fraction != "1":
        made = fraction_of(study)
        return (
            f"Fractional factorial 2^({made.factors}-{len(made.generators)}), resolution {_roman(made.resolution)}: "
            f"{count} of {2**made.factors} treatments"
        )
    if design.runs is not None:
        effects = "main effects" if design.effects == "main" else "main effects and two-factor interactions"
        return f"D-optimal: {count} of {len(candidates(study))} treatments estimate {effects}"
    cut = f" without {_full(study) - count} excluded" if design.exclude else ""
    return f"Full factorial{cut}: {counted(count, 'treatment')}"


def _treatments(study: Study) -> list[str]:
    design = study.design
    if design.fraction != "1":
        made = fraction_of(study)
        named = ", ".join(f"{letters([at])} = {name}" for at, name in enumerate(study.levels()))
        generators = ", ".join(
            f"{letters([made.base + at])} = {letters(word)}" for at, word in enumerate(made.generators)
        )
        return [
            f"{arranged(study)}. {named}.",
            f"Generators: {generators}. Defining relation: I = {' = '.join(map(letters, made.words))}.",
            *(
                f"  {letters(effect)}" + (f" = {' = '.join(map(letters, same))}" if same else " alone")
                for effect, same in made.aliases()
            ),
            "  Aliased effects are estimated as their sum. Only interactions of two factors are listed.",
        ]
    if design.runs is not None:
        whole = candidates(study)
        chosen = matrix(study, treatments(study))
        share = efficiency(chosen, matrix(study, whole))
        return [
            f"{arranged(study)} ({chosen.shape[1]} parameters); "
            f"each run gives {show_share(share, 0)} of the information of one in the whole factorial."
        ]
    return [f"{arranged(study)}."]


def _order(study: Study, plan: Plan) -> list[str]:
    found = []
    if hard := study.design.hard_to_change:
        plots = {
            (trial.replicate, *(trial.treatment[name] for name in hard)) for trial in plan.trials if trial.replicate
        }
        found.append(
            f"Split plot: {', '.join(hard)} change{'s'[: len(hard) == 1]} between {len(plots)} whole plots, and their "
            "effects are judged by the scatter between plots; the other factors change within plots."
        )
    if count := study.design.sentinels:
        at = [trial.order for trial in plan.trials if not trial.replicate]
        found.append(f"{counted(count, 'sentinel run')} of the baseline, at {', '.join(map(str, at))}, to see drift.")
    return found


def happenings(study: Study) -> list[str]:
    """When each event happens and how long the load continues after it, one line each; then what these events can
    tell."""
    told = [
        f"In each run's window, {_moment(event)}: {event.words} for {format_duration(event.lasts)}, then "
        f"{format_duration(study.load.runtime - event.at[1] - event.lasts)} of load at least, in which throughput may "
        "recover."
        for event in sorted(study.events, key=lambda event: event.at)
    ]
    return [*told, _recoveries_compared(study)] if "recovery_time" in study.responses else told


def _recoveries_compared(study: Study) -> str:
    base = dict(zip(study.levels(), study.baseline_levels(), strict=True))
    at = [number for number, name in enumerate(study.levels()) if name in study.compared]
    names = list(study.levels())
    others = sum(any(each[n].label != base[names[n]].label for n in at) for each in treatments(study))
    events = study.design.replicates * len(study.events)
    return (
        f"Recovery times are compared event by event: {counted(events, 'event')} of each treatment, and an interval "
        f"takes {pairs_needed(each_of(others))}."
    )


def _moment(event: StudyEvent) -> str:
    first, last = (format_duration(each) for each in event.at)
    return f"at {first}" if first == last else f"at a random moment from {first} to {last} (the same within a block)"


def _rounds(study: Study) -> list[str]:
    slices = study.design.slices
    if slices is None:
        return []
    some, names = treatments(study), list(study.levels())
    hard = [names.index(name) for name in study.design.hard_to_change]
    plots = len({tuple(levels[at] for at in hard) for levels in some})
    sessions = counted(study.design.replicates, "session") + (" of each whole plot" if hard else "")
    if study.lab.vm is not None or study.lab.hosts is not None:
        starts = "each with every path connected anew; every machine keeps the schedule by its own clock"
    else:
        starts = (
            "each with new processes, memory and connections; server and load exchange processors in every second one"
        )
    return [
        f"{sessions}, {starts}. A session is {counted(slices.rounds, 'round')} of "
        f"{counted(len(some) // plots, 'slice')}: each treatment once per round, for {show_time(slices.slice_ns)} "
        f"after {show_time(slices.settle_ns)} of load that is not measured. {_neighbours(study)} "
        "The sample of the intervals is the sessions."
    ]


def _neighbours(study: Study) -> str:
    compared = set(study.compared)
    if compared == set(study.levels()):
        return "Each treatment follows each other one equally often."
    return (
        f"Those that differ only in {' and '.join(study.compared)} run side by side, and of these each follows each "
        "other one equally often."
    )


def searched(study: Study, plan: Plan) -> list[str]:
    """The objective of a search, and how many trials it takes; empty without a search."""
    search = study.search
    if search is None:
        return []
    objective = f"p{search.percentile:g} within {show_time(search.latency_max)}"
    turns = _searched_in_turns(study)
    most = f"{counted(plan.trials_max, 'trial')} at most, about {show_minutes(plan.duration_max_ns / 1e9)}"
    if search.rate_max is None:
        return [
            f"Then, for each of {counted(len(conditions(study)), 'condition')}, the best load that meets {objective} "
            f"is chosen and measured in {search.confirm} fresh runs: {most}.{turns}"
        ]
    return [
        f"These are first probes. For each of {counted(len(plan.trials), 'treatment')} the highest rate from "
        f"{show_rate(search.rate_min)} to {show_rate(search.rate_max)} IOPS that meets {objective} is bisected to "
        f"{search.precision:g} %, in {steps_max(search)} probes at most, then measured in a fresh run, or two where "
        f"the first misses. The whole search is repeated {search.confirm} times, each in a block of its own: {most}."
        f"{turns}"
    ]


def _searched_in_turns(study: Study) -> str:
    """The rounds of a search."""
    slices, search = study.design.slices, study.search
    if slices is None or search is None:
        return ""
    turns = (
        f"in {counted(slices.rounds, 'round')} of slices of {show_time(slices.slice_ns)} after "
        f"{show_time(slices.settle_ns)} of load that is not measured"
    )
    if search.rate_max is None:
        return (
            f" Loads are measured in turns, {turns}: in {study.design.replicates} sessions all, then the winners alone."
        )
    return f" The rates of each step are measured in turns, one of each treatment, {turns}."


def stops(study: Study) -> list[str]:
    """When the study may end early; empty without a stopping rule."""
    stop = study.design.stop
    if stop is None:
        return []
    return [
        f"Stops after the first {study.design.unit}, from number {stop.at_least} on, with the interval of every ratio "
        f"to the baseline of {stop.response or study.responses[0]} within ±{stop.half_width:g} %; at most "
        f"{study.design.replicates}."
    ]


def detectable(study: Study, cv: float) -> list[tuple[str, float]]:
    """Each comparison and the smallest ratio that is detected with 90 % power if runs vary by `cv`; empty if the plan
    leaves nothing to estimate variation from."""
    replicates, cells = study.design.replicates, len(treatments(study))
    blocks = replicates if study.design.blocks == "replicate" else 1
    freedom = replicates * cells - cells - (blocks - 1)
    others = max(1, cells // max(1, _arms(study)))
    compared = [("two treatments", replicates)]
    if others > 1:
        compared.append(("two arms over all conditions", replicates * others))
    ratios = [(words, detectable_ratio(cv, runs, freedom)) for words, runs in compared]
    return [(words, ratio) for words, ratio in ratios if ratio is not None]


def _detectable(study: Study) -> list[str]:
    told: dict[str, list[str]] = {}
    for cv in CVS:
        for words, ratio in detectable(study, cv):
            told.setdefault(words, []).append(f"{show_share(ratio - 1)} at {show_share(cv, 0)}")
    if not told:
        return ["With one run of each treatment the run-to-run variation is unknown: no difference can be detected."]
    return [
        f"Minimum detectable difference between {words} (90 % power), by assumed run-to-run variation: "
        f"{', '.join(each)}."
        for words, each in told.items()
    ]


def _blocks(plan: Plan) -> list[str]:
    """The effect of few blocks on values that drift with them."""
    if not 1 < plan.blocks < BLOCKS_ENOUGH:
        return []
    return [
        f"Absolute values (µs, IOPS) include drift between blocks: over {plan.blocks} blocks their 95 % intervals "
        "reach "
        f"{block_reach(plan.blocks):.1f} standard errors to each side, over {BLOCKS_ENOUGH} only "
        f"{block_reach(BLOCKS_ENOUGH):.1f}. Ratios between treatments do not include it."
    ]


def _arms(study: Study) -> int:
    count = 1
    for name, levels in study.levels().items():
        count *= len(levels) if name in study.baseline else 1
    return count


def _full(study: Study) -> int:
    count = 1
    for levels in study.levels().values():
        count *= len(levels)
    return count


def _roman(number: int) -> str:
    return ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI"][number]
