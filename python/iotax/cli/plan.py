"""`iotax plan`: what a study will do and what it can detect; on one screen, or with `--long` trial by trial."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from iotax.cli.console import console
from iotax.cli.document import STDOUT, judged, plan_document, write_document
from iotax.cli.loading import load, within_time
from iotax.cli.options import JsonFile, OtherLab, OwnTargets, StudyName, TimeBudget
from iotax.cli.screen import LINES, height
from iotax.cli.study import planned
from iotax.design import Plan
from iotax.design import plan as make_plan
from iotax.design.describe import CVS, arranged, describe, detectable, happenings, searched, stops
from iotax.notebook import Notebook, NotebookError
from iotax.outputs import OUT
from iotax.study import Study
from iotax.study.asked import asked
from iotax.study.model import format_level
from iotax.trial import Trial
from iotax.units import counted, show_minutes, show_share

_LEFT_OUT_FIRST = ("Links", "Preconditioning", "Topology", "Connection", "Lab", "Endpoints", "Volume", "Mix", "Load")
"""Settings that a screen with too many lines leaves to `--long`, the first one first."""


def plan(
    name: StudyName,
    time_s: TimeBudget = None,
    long: Annotated[
        bool, typer.Option("--long", help="List the trials in run order and explain the design, instead of the screen.")
    ] = False,
    lab: OtherLab = None,
    targets: OwnTargets = None,
    document: JsonFile = None,
) -> None:
    """Show what a study will do and what it can detect; run nothing."""
    study, source = load(name, simulated=lab is not None, targets=targets or ())
    if time_s is not None:
        study, _ = within_time(study, source, time_s)
    judged(document, Path(name))
    made = planned(study)
    earlier = _by_earlier_scatter(study, OUT / f"{study.name}.iotax")
    remarks = [*describe(study, made), *earlier]
    if document != STDOUT:
        if long:
            _print_long(study, made, remarks)
        else:
            _print_screen(study, made, earlier)
    if document is not None:
        write_document(document, plan_document(study, made, remarks), Path(name))


def _print_screen(study: Study, made: Plan, earlier: list[str]) -> None:
    """At most `LINES` lines on a terminal of 80 columns, if the study has few factors with short names."""
    out = console()
    settings = dict(line.split(": ", 1) for line in asked(study))
    every, left_out = len(settings), iter(title for title in _LEFT_OUT_FIRST if title in settings)
    while True:
        parts = _screen(study, made, settings, earlier, cut=len(settings) < every)
        if sum(height(out, part) for part in parts) <= LINES or (title := next(left_out, None)) is None:
            break
        del settings[title]
    for part in parts:
        out.print(part, soft_wrap=True if isinstance(part, Text) else None)


def _screen(
    study: Study, made: Plan, settings: dict[str, str], earlier: list[str], *, cut: bool
) -> list[RenderableType]:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    for factor, levels in study.levels().items():
        table.add_row("Factor", escape(f"{factor}: {', '.join(level.label for level in levels)}."))
    table.add_row("Design", escape(f"{arranged(study)}."))
    table.add_row("Takes", escape(f"{_amount(study, made)}; seed {study.design.seed}."))
    for title, lines in (("Event", happenings(study)), ("Search", searched(study, made)), ("Stops", stops(study))):
        for line in lines:
            table.add_row(title, escape(line))
    for title, words in settings.items():
        table.add_row(title, escape(words))
    whole = f"--long lists {_listed(study)}{', all settings' * cut} and explains the design."
    detects = [*_detects(study), *(Text(line) for line in earlier)]
    return [Text.assemble((study.name, "bold"), f": {study.question}"), table, *detects, Text(whole, style="dim")]


def _amount(study: Study, made: Plan) -> str:
    return made.amount if made.further else f"{_extent(study, made)}, about {show_minutes(made.duration_ns / 1e9)}"


def _listed(study: Study) -> str:
    return "the trials in order" if study.design.slices is None else "the treatments"


def _detects(study: Study) -> list[RenderableType]:
    """The smallest differences that the study finds, by how much runs may vary."""
    if study.search is not None:
        return []
    ratios = [detectable(study, cv) for cv in CVS]
    if not ratios[0]:
        return [Text("With one run of each treatment, no difference can be detected: run-to-run variation is unknown.")]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Detects with 90 % power, if runs vary by")
    for cv in CVS:
        table.add_column(show_share(cv, 0), justify="right")
    for at, (words, _) in enumerate(ratios[0]):
        table.add_row(f"between {words}", *(_difference(each[at][1]) if at < len(each) else "–" for each in ratios))
    return [table]


def _print_long(study: Study, made: Plan, remarks: list[str]) -> None:
    out = console()
    out.print(f"[bold]{study.name}[/]: {escape(study.question)}", soft_wrap=True)
    out.print(_order(study, made) if study.design.slices is None else _turns(study, made))
    for line in asked(study):
        out.print(escape(line), soft_wrap=True, highlight=False)
    out.print(f"{_amount(study, made)}; seed {study.design.seed}.", soft_wrap=True)
    for line in remarks:
        out.print(escape(line), soft_wrap=True, highlight=False)


def _order(study: Study, made: Plan) -> Table:
    """One row for each trial."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("order", "block", "replicate"):
        table.add_column(title, justify="right")
    for factor in study.levels():
        table.add_column(factor)
    for trial in made.trials:
        replicate = str(trial.replicate) if trial.compared else trial.role
        table.add_row(str(trial.order), str(trial.block), replicate, *_levels(study, trial))
    return table


def _turns(study: Study, made: Plan) -> Table:
    """One row for each treatment, without its position, since each round has another order."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("treatment", justify="right")
    for factor in study.levels():
        table.add_column(factor)
    rows = sorted(_places(study, trial) for trial in made.trials if trial.block == 1)
    for number, places in enumerate(rows, start=1):
        levels = [level[at].label for level, at in zip(study.levels().values(), places, strict=True)]
        table.add_row(str(number), *map(escape, levels))
    return table


def _places(study: Study, trial: Trial) -> tuple[int, ...]:
    """Positions of the trial's levels in the study."""
    return tuple(
        [level.value for level in levels].index(trial.treatment[factor]) for factor, levels in study.levels().items()
    )


def _levels(study: Study, trial: Trial) -> list[str]:
    return [escape(format_level(factor, trial.treatment[factor])) for factor in study.levels()]


def _extent(study: Study, made: Plan) -> str:
    slices = study.design.slices
    if slices is None:
        return f"{counted(len(made.trials), 'trial')} in {counted(made.blocks, 'block')}"
    treatments = len(made.trials) // study.design.replicates
    sessions, rounds = counted(study.design.replicates, "session"), counted(slices.rounds, "round")
    return f"{sessions} of {rounds} of {counted(treatments, 'treatment')}, each once per round"


def _by_earlier_scatter(study: Study, earlier: Path) -> list[str]:
    """What this plan can detect in each response, one line each, given the scatter of the study's latest run here.

    Only a run of the same treatments under the same settings counts: others scatter differently.
    """
    if study.search is not None or not earlier.is_file():
        return []
    # This import is slow, and a plan without measurements does not need it.
    from iotax.analysis import summarise
    from iotax.analysis.change import settings
    from iotax.collected import study_data
    from iotax.design.shape import advice

    try:
        with Notebook(earlier) as notebook:
            data, began_ns = study_data(notebook), notebook.run().started_unix_ns
    except NotebookError:
        return []
    date = datetime.fromtimestamp(began_ns / 1e9).strftime("%Y-%m-%d %H:%M")
    old, new = settings(data.study), settings(study)
    if different := [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]:
        return [
            f"The scatter of the run of {date} in {earlier} does not apply to this plan: it differs in "
            f"{', '.join(different)}."
        ]
    found = []
    summary = summarise(data)
    for each in summary.noise:
        told = ", ".join(f"{_difference(ratio)} between {words}" for words, ratio in detectable(study, each.cv))
        if told:
            found.append(
                f"{each.response.title}, by the scatter of {show_share(each.cv)} in {earlier} (run of {date}): {told}."
            )
    if (slices := study.design.slices) is not None and (scatter := summary.session_scatter) is not None:
        made = make_plan(study)
        treatments = len(made.trials) // made.blocks
        said = advice(
            treatments,
            slices,
            study.design.replicates,
            made.duration_ns,
            scatter.share_of_sessions,
            hosts=study.lab.hosts is not None,
        )
        found += [said] if said else []
    return found


def _difference(ratio: float) -> str:
    from iotax.wording import PERCENT_RATIO_MAX, figure

    return show_share(ratio - 1) if ratio <= PERCENT_RATIO_MAX else f"a factor of {figure(ratio)}"
