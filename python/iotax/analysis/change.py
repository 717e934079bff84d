"""Compares two runs of a study, or two levels of a factor within one run.

Two runs compare what no single run can vary, such as firmware. They were measured at different times, so they share no
block: cells are compared as independent samples of runs (Welch, on logarithms). Drift between the two runs is part of
the change; only alternating repetitions could separate it. Levels of one run share its blocks and are compared like any
arms of a study.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from iotax.analysis.compare import Comparison, LayoutCache, Model
from iotax.analysis.data import Cell, Grid, StudyData
from iotax.analysis.estimate import Contrast, Estimate, combined, mean_of
from iotax.analysis.multiplicity import at_five, sidak, sidak_confidence
from iotax.analysis.profile import ProfileChange, profile_changes
from iotax.analysis.quantiles import Shift, unpaired_shift
from iotax.analysis.responses import Response, Run
from iotax.analysis.summary import CellSummary, Summary, summarise
from iotax.analysis.validity import Doubt, doubt
from iotax.analysis.verdict import Cause, Verdict, Withheld, judge, log_margin, two_sided_p
from iotax.analysis.withheld import chosen
from iotax.study import Level, Study
from iotax.trial import Trial
from iotax.units import format_size


@dataclass(frozen=True)
class Change:
    """One response of one treatment, after over before; `treatment` is empty for all treatments together."""

    response: Response
    treatment: str
    before: float
    after: float
    """Geometric means."""
    ratio: Estimate
    """With one of the intervals of this response that hold at once with 95 %; the verdict follows from it."""
    runs: tuple[int, int]
    doubt: Doubt
    """About the runs of both sides."""
    p_difference: float | None = None
    """Adjusted for all treatments of the response (Sidak; Dunnett for levels of one run)."""
    verdict: Verdict | None = None
    """None if there is no interval."""
    withheld: Withheld | None = None
    """Why there is no verdict, if the reason is not too few runs."""
    mixed: bool = False
    """Whether, among all treatments, some are better and some worse, so that their mean answers nothing."""

    def regressed(self, margin_percent: float) -> bool:
        """Surely worse, and by more than the margin."""
        beyond = abs(math.log(self.ratio.value)) > log_margin(margin_percent)
        return self.verdict is Verdict.WORSE and beyond and not self.mixed

    def may_have_regressed(self, margin_percent: float) -> bool:
        """Neither certainly worse by more than the margin, nor certainly not. For a mixed mean, the
        treatments decide."""
        if self.mixed or self.regressed(margin_percent):
            return False
        worst = self.ratio.low if self.response.more_is_better else self.ratio.high
        if not worst:
            return True
        return abs(math.log(worst)) >= log_margin(margin_percent) and (worst < 1) == self.response.more_is_better


@dataclass(frozen=True)
class Changes:
    """The changes between two runs, or between two levels of a factor in one run."""

    found: list[Change]
    shifts: list[Shift]
    """Latency by quantile, of each treatment."""
    profiles: list[ProfileChange] = field(default_factory=list)
    """Instructions by layer and function, of each treatment, where they were counted."""


def changes(before: StudyData, after: StudyData, margin_percent: float) -> Changes:
    """For each response of the study: all treatments together, then each that both runs measured. Empty if they share
    none; `obstacles` gives the reason."""
    grid, other = Grid(before.study), Grid(after.study)
    olds, news = _by_cell(before, grid), _by_cell(after, other)
    shared = [cell for cell in grid.cells() if cell in olds and cell in news]
    if list(grid.factors) != list(other.factors) or not shared:
        return Changes([], [])
    found: list[Change] = []
    confidence = max(before.confidence, after.confidence)
    checks = {
        cell: [data.checks[run.trial.id] for data, runs in ((before, olds[cell]), (after, news[cell])) for run in runs]
        for cell in shared
    }
    for response in chosen(before.study.responses, [*before.runs, *after.runs]):
        pairs = {cell: (_logs(response, olds[cell]), _logs(response, news[cell])) for cell in shared}
        pairs = {cell: pair for cell, pair in pairs.items() if len(pair[0]) and len(pair[1])}
        samples = {_label(cell): pair for cell, pair in pairs.items()}
        contrasts = {name: welch(*pair) for name, pair in samples.items()}
        doubts = {_label(cell): doubt(checks[cell]) for cell in pairs}
        each = _judge(response, contrasts, samples, doubts, margin_percent, confidence)
        if len(samples) > 1:
            everything = tuple(np.concatenate([pair[i] for pair in samples.values()]) for i in (0, 1))
            old, new = (
                Model(response, of, data, LayoutCache()).model.level(list(pairs))
                for of, data in ((grid, before), (other, after))
            )
            whole = {"": combined([(1.0, new), (-1.0, old)])}
            of_all = doubt([one for cell in pairs for one in checks[cell]])
            (together,) = _judge(response, whole, {"": everything}, {"": of_all}, margin_percent, confidence)
            mixed = {Verdict.BETTER, Verdict.WORSE} <= {c.verdict for c in each}
            means = {"before": math.exp(old.estimate), "after": math.exp(new.estimate)}
            found.append(replace(together, **means, mixed=mixed))
        found += each
    if before.looks or after.looks:
        found = [replace(each, verdict=None, withheld=Withheld(Cause.LOOKED), mixed=False) for each in found]
    shifts = [unpaired_shift(_label(cell), "", news[cell], olds[cell], confidence) for cell in shared]
    profiles = [each for cell in shared for each in profile_changes(_label(cell), olds[cell], news[cell])]
    return Changes(found, shifts, profiles)


def level_changes(data: StudyData, factor: str, before: Level, after: Level, margin_percent: float) -> Changes:
    """One level of a factor against another, in the same blocks of one run, under all conditions that both have
    : a mean over conditions that only one of them has would compare conditions."""
    measured = [
        {_others(run.trial, factor) for run in data.runs if run.trial.treatment.get(factor) == level.value}
        for level in (before, after)
    ]
    both, shared = {before.value, after.value}, measured[0] & measured[1]
    if not shared:
        return Changes([], [])
    attempts = [
        each
        for each in data.attempts
        if each.trial.treatment.get(factor) in both and _others(each.trial, factor) in shared
    ]
    study = data.study.model_copy(update={"baseline": {factor: before.label}, "margin": margin_percent})
    summary = summarise(replace(data, study=study, attempts=attempts))
    cells = {(cell.arm, cell.condition): cell for cell in summary.cells}
    found: list[Change] = []
    for response in summary.responses:
        each = []
        for comparison in summary.comparisons:
            if comparison.response is response and comparison.condition is not None:
                sides = [cells[arm, comparison.condition] for arm in (summary.grid.baseline_arm, comparison.arm)]
                each.append(_of_comparison(summary, comparison, comparison.condition, [[side] for side in sides]))
        overall = next((o for o in summary.overalls if o.response is response), None)
        if overall is not None and len(each) > 1:
            arms = [
                [cell for (arm, _), cell in cells.items() if arm == wanted and response.key in cell.values]
                for wanted in (summary.grid.baseline_arm, overall.arm)
            ]
            found.append(replace(_of_comparison(summary, overall.comparison, "", arms), mixed=overall.flips))
        found += each
    profiles = [
        each
        for arm, condition in cells
        if arm != summary.grid.baseline_arm and (old := cells.get((summary.grid.baseline_arm, condition)))
        for each in profile_changes(condition, old.runs, cells[arm, condition].runs)
    ]
    return Changes(found, [replace(shift, arm=shift.condition, condition="") for shift in summary.shifts], profiles)


def _others(trial: Trial, factor: str) -> tuple[tuple[str, object], ...]:
    """The levels of all other factors."""
    return tuple((name, value) for name, value in sorted(trial.treatment.items()) if name != factor)


def obstacles(before: StudyData, after: StudyData) -> list[str]:
    """Why two runs share no treatment, in words."""
    one, other = before.study.levels(), after.study.levels()
    if list(one) != list(other):
        return [f"the first varies {', '.join(one)}; the second varies {', '.join(other)}"]
    found = []
    for name in one:
        labels = [[level.label for level in levels[name]] for levels in (one, other)]
        if not set(labels[0]) & set(labels[1]):
            found.append(f"{name} is {', '.join(labels[0])} in the first and {', '.join(labels[1])} in the second")
    return found or ["the treatments that the first has measured are not those that the second has"]


def differences(before: StudyData, after: StudyData) -> list[str]:
    """Other differences between two runs, each of which may cause a change."""
    sides = [_settings(data) for data in (before, after)]
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    return [
        f"{name}: {sides[0].get(name, 'not said')} → {sides[1].get(name, 'not said')}"
        for name in names
        if sides[0].get(name) != sides[1].get(name)
    ]


def settings(study: Study) -> dict[str, str]:
    """The settings of the treatments, by dotted name: studies with equal settings run the same treatments."""
    dumped = study.model_dump(mode="json")
    sections = ("factors", "lab", "volume", "load", "connection", "topology")
    found = {name: text for section in sections for name, text in _flat(section, dumped.get(section)).items()}
    slices = {name: dumped["design"][name] for name in ("rounds", "slice", "settle")}
    return found | _flat("design", slices)


def _settings(data: StudyData) -> dict[str, str]:
    """Settings of the study and facts of the machine by dotted name."""
    found = {name: value for name, value in settings(data.study).items() if not name.startswith("factors.")}
    for name in ("machine", "iotax"):
        found |= _flat(name, data.environment.get(name))
    found["driver"] = ", ".join(sorted({run.result.driver for run in data.runs}))
    found["engine"] = ", ".join(sorted({run.result.engine_version for run in data.runs}))
    return found


def _flat(name: str, value: object) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {key: text for part, each in value.items() for key, text in _flat(f"{name}.{part}", each).items()}
    if isinstance(value, int) and name.endswith("_bytes"):
        return {name.removesuffix("_bytes"): format_size(value)}
    return {} if value is None else {name: _words(value)}


def _words(value: object) -> str:
    """The value as a study would write it: "on", "a, b"."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(each)}" for name, each in value.items() if each is not None)
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value)) or "none"
    return str(value)


def _label(cell: Cell) -> str:
    return " · ".join(cell)


def _of_comparison(
    summary: Summary, comparison: Comparison, treatment: str, sides: Sequence[Sequence[CellSummary]]
) -> Change:
    key = comparison.response.key
    means = [math.exp(float(np.mean([math.log(cell.values[key].value) for cell in side]))) for side in sides]
    return Change(
        comparison.response,
        treatment,
        *means,
        ratio=comparison.ratio,
        runs=(sum(len(cell.runs) for cell in sides[0]), sum(len(cell.runs) for cell in sides[1])),
        doubt=summary.doubt_of([cell for side in sides for cell in side]),
        p_difference=comparison.p_difference,
        verdict=comparison.verdict,
        withheld=comparison.withheld,
    )


def welch(old: np.ndarray, new: np.ndarray) -> Contrast:
    """Mean of `new` minus mean of `old`; without error where either has a single run."""
    return combined([(1.0, mean_of(new)), (-1.0, mean_of(old))])


def _judge(
    response: Response,
    contrasts: Mapping[str, Contrast],
    samples: Mapping[str, tuple[np.ndarray, ...]],
    doubts: Mapping[str, Doubt],
    margin_percent: float,
    together: float,
) -> list[Change]:
    """`together`: the confidence with which all of these hold at once."""
    confidence = sidak_confidence(sum(c.standard_error is not None for c in contrasts.values()), together)
    found = [
        Change(
            response,
            treatment,
            *(math.exp(float(logs.mean())) for logs in samples[treatment]),
            ratio=Estimate.ratio(contrast, confidence),
            runs=(len(samples[treatment][0]), len(samples[treatment][1])),
            doubt=doubts[treatment],
        )
        for treatment, contrast in contrasts.items()
    ]
    margin = log_margin(margin_percent)
    sure = [(i, c) for i, c in enumerate(contrasts.values()) if c.standard_error is not None]
    alone = [two_sided_p(c.estimate, c.standard_error or 0.0, c.df or 1.0) for _, c in sure]
    for (i, contrast), p_difference in zip(sure, at_five(sidak(alone), together), strict=True):
        interval = contrast.interval(confidence)
        assert interval is not None
        verdict = judge(interval, margin, response.more_is_better)
        found[i] = replace(found[i], p_difference=p_difference, verdict=verdict)
    return found


def _by_cell(data: StudyData, grid: Grid) -> dict[Cell, list[Run]]:
    found: dict[Cell, list[Run]] = {}
    for run in data.runs:
        found.setdefault(grid.cell(run.trial), []).append(run)
    return found


def _logs(response: Response, runs: Sequence[Run]) -> np.ndarray:
    values = [value for value in map(response.of, runs) if value is not None and value > 0]
    return np.log(values)
