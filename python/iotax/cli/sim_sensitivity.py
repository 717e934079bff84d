"""`iotax sim sensitivity`: shows how a simulated study's answers change if an assumption is smaller or larger."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from iotax.analysis import StudyData, Summary, summarise
from iotax.analysis.estimate import Estimate
from iotax.analysis.published import Beside, beside_published
from iotax.analysis.responses import Response
from iotax.cli.console import console, height, say, steps
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.loading import load
from iotax.cli.options import JsonFile, Long, StudyName
from iotax.cli.screen import LINES
from iotax.design import plan
from iotax.engine import EngineError, find_engine
from iotax.labs.base import TrialFailed
from iotax.labs.sim.assumptions import Assumption, assumptions
from iotax.labs.sim.lab import SimLab
from iotax.study import Study
from iotax.study.sim import Sim
from iotax.trial import Attempt, Trial
from iotax.wording import SIMULATED, inside
from iotax.wording.trust import SIMULATED_BRIEF

_LESS, _MORE = 0.5, 1.5

_Ratios: TypeAlias = Mapping[tuple[Response, str], float]
"""Response, treatment → the ratio to its baseline, in percent."""


@dataclass(frozen=True)
class _World:
    """The results of a study under one set of assumptions."""

    ratios: _Ratios
    met: int
    """Published figures that agree, of those that can be compared."""
    published: int


@dataclass(frozen=True)
class _Row:
    assumption: Assumption
    less: _World
    more: _World

    def farthest(self, now: _World) -> tuple[Response, str] | None:
        """The ratio that moves most; None if none moves by half a percent."""

        found = max(now.ratios, key=lambda key: self._moved(key, now), default=None)
        return found if found is not None and self._moved(found, now) >= _SEEN else None

    def effect(self, now: _World) -> float:
        """The largest change of a ratio, as a share of it."""
        return max((self._moved(key, now) for key in now.ratios), default=0.0)

    def _moved(self, key: tuple[Response, str], now: _World) -> float:
        return max(abs(world.ratios.get(key, now.ratios[key]) / now.ratios[key] - 1) for world in self.both)

    @property
    def both(self) -> tuple[_World, _World]:
        return self.less, self.more


_SEEN = 0.005


def sensitivity(name: StudyName, long: Long = False, document: JsonFile = None) -> None:
    """Show how sensitive simulated ratios are to each assumption.

    Multiplies costs, media times and link delays, one after another, by 0.5 and by 1.5, and simulates each treatment
    once for each. If the study has published figures, it also shows how many agree. Keeps nothing.
    """
    judged(document, Path(name))
    study, _ = load(name)
    if reason := _reason_against(study):
        leave(Exit.USAGE, reason)
    # Replicates differ only by random seed unless costs are drawn.
    study = study.model_copy(update={"design": study.design.model_copy(update={"replicates": 1, "stop": None})})
    heading = f"{study.name}: {study.question}"
    if document != STDOUT:
        say(heading)
        sys.stdout.flush()
    asked = assumptions(study)
    count = 1 + 2 * len(asked)
    try:
        program = find_engine()
        with steps(count) as step:
            step("as it is")
            now = _world(study, program, Assumption("", ""), 1)
            rows = []
            for each in asked:
                worlds = []
                for times in (_LESS, _MORE):
                    step(f"{each.name} ×{times:g}")
                    worlds.append(_world(study, program, each, times))
                rows.append(_Row(each, *worlds))
    except (EngineError, TrialFailed) as error:
        leave(Exit.LAB, f"a treatment could not be simulated: {error}")
    if document != STDOUT:
        if long:
            _print_all(now, rows)
        else:
            _print_screen(now, rows, LINES - height(heading))
    if document is not None:
        write_document(document, _document(study, now, rows), Path(name))


def _reason_against(study: Study) -> str:
    if study.lab.sim is None:
        return f"{study.name} runs in the {study.lab.name} lab; sensitivity is of studies with `lab: sim`"
    if study.search is not None:
        return f"{study.name} searches for a load; sensitivity is of a study whose loads are given"
    return ""


def _world(study: Study, program: Path, assumption: Assumption, times: float) -> _World:
    """Simulates every treatment once with the assumption multiplied by this factor. Raises EngineError, TrialFailed."""

    def costs_of(changed: Study, protocol: str, trial: Trial) -> dict[str, dict[str, int]]:
        return assumption.of_costs(changed.settings(trial.treatment).sim or Sim(), protocol, times)

    changed = assumption.in_study(study, times)
    planned = plan(changed)
    lab = SimLab(changed, program, costs_of)
    attempts = []
    try:
        lab.expect(planned.trials)
        for trial in planned.trials:
            result = lab.run(trial, lambda _: None).result
            attempts.append(
                Attempt(
                    trial=trial, number=1, status="done", reason="", started_unix_ns=0, ended_unix_ns=0, result=result
                )
            )
    finally:
        lab.close()
    summary = summarise(StudyData(changed, attempts, planned.trials, environment=lab.environment()))
    figures = [each for source in beside_published(changed, summary.models) for each in source.figures]
    known = [met for figure in figures if (met := _met(figure)) is not None]
    return _World(_ratios(summary), sum(known), len(known))


def _met(figure: Beside) -> bool | None:
    """Whether the simulated value lies within the published range; None if one is missing or not comparable."""
    if figure.carrier.emulated or not figure.at_equal_rates:
        return None
    published, found = figure.published, figure.measured
    if published is None:
        published, found = figure.published_absolute, figure.measured_absolute
    return None if published is None or found is None else published[0] <= found.value <= published[1]


def _ratios(summary: Summary) -> _Ratios:
    grid = summary.grid
    found = {}
    for response in summary.responses:
        model = summary.models[response.key]
        for cell in grid.cells():
            base = grid.baseline_of(cell)
            if cell != base and cell in model and base in model:
                contrast = model.model.contrast({cell: 1.0, base: -1.0})
                found[response, "/".join(cell)] = 100 * Estimate.ratio(contrast).value
    return found


def _print_screen(now: _World, rows: list[_Row], lines: int) -> None:
    """At most this many lines: the assumptions with the largest effects, each with the ratio that it moves most."""
    common = Counter(row.assumption.name.partition(": ")[2] for row in rows if row.assumption.costs).most_common(1)
    protocols = f": {common[0][0]}" if common and common[0][0] else ""
    below = [
        *([f"Costs of {protocols.removeprefix(': ')} unless the line names others."] if protocols else []),
        "Ratios to the baseline in percent, with each assumption as it is and multiplied by 0.5 and 1.5; for each "
        "assumption, the ratio that moves most.",
        *_published(now, rows),
    ]
    more = "Assumptions with smaller effects, left out here: {:,}. See --long."
    room = lines - sum(map(height, (SIMULATED_BRIEF, *below, more))) - 1
    ranked = sorted(rows, key=lambda row: row.effect(now), reverse=True)
    shown = ranked[:room] if len(ranked) > room else ranked
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("assumption")
    table.add_column("ratio that moves most")
    for title in ("as it is", "×0.5", "×1.5"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in shown:
        name = escape(row.assumption.name.removesuffix(protocols))
        if (key := row.farthest(now)) is None:
            table.add_row(name, "none by 0.5 %", "", "", "")
        else:
            response, treatment = key
            cells = [f"{world.ratios[key]:.0f}" if key in world.ratios else "–" for world in row.both]
            table.add_row(
                name,
                f"{escape(treatment)} {inside(response.short)}",
                f"{now.ratios[key]:.0f}",
                *cells,
            )
    out = console()
    out.print(Text(SIMULATED_BRIEF, style="yellow"), soft_wrap=True)
    out.print(table)
    if len(shown) < len(ranked):
        say(more.format(len(ranked) - len(shown)))
    for sentence in below:
        say(sentence)


def _print_all(now: _World, rows: list[_Row]) -> None:
    out = console()
    out.print(Text(SIMULATED, style="yellow"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    titles = ["assumption", "as it is", "ratio that moves most", "as it is", "×0.5", "×1.5"]
    if now.published:
        titles += ["published met", "×0.5", "×1.5"]
    for title in titles:
        table.add_column(title)
    for row in rows:
        cells = [escape(row.assumption.name), row.assumption.value]
        if (key := row.farthest(now)) is None:
            cells += ["none by 0.5 %", "", "", ""]
        else:
            response, treatment = key
            cells += [f"{response.title}, {escape(treatment)}", f"{now.ratios[key]:.0f}"]
            cells += [f"{world.ratios[key]:.0f}" if key in world.ratios else "–" for world in row.both]
        if now.published:
            cells += [f"{world.met} of {world.published}" for world in (now, *row.both)]
        table.add_row(*cells)
    out.print(table)
    for sentence in _sentences(now, rows):
        say(sentence)


def _sentences(now: _World, rows: list[_Row]) -> Iterator[str]:
    yield (
        "Each assumption is multiplied by 0.5 and by 1.5 while the others stay as they are; costs of one source change "
        "together. Moves most: the ratio to the baseline, in percent, with the largest change."
    )
    yield from _published(now, rows)
    yield "One replicate of each treatment, with the costs as in their tables."


def _published(now: _World, rows: list[_Row]) -> Iterator[str]:
    if now.published:
        met = [world.met for row in rows for world in row.both]
        yield (
            f"Simulated values within the published ranges: {now.met} of {now.published} as it is, {min(met)} to "
            f"{max(met)} with one assumption changed."
        )


def _document(study: Study, now: _World, rows: list[_Row]) -> dict[str, Any]:
    return {
        "simulated": True,
        "study": study.name,
        "as_it_is": _world_document(now),
        "assumptions": [
            {
                "name": row.assumption.name,
                "value": row.assumption.value,
                "source": row.assumption.source,
                "half": _world_document(row.less),
                "half_more": _world_document(row.more),
            }
            for row in rows
        ],
    }


def _world_document(world: _World) -> dict[str, Any]:
    return {
        "published_met": world.met,
        "published": world.published,
        "ratios": [
            {"response": response.key, "treatment": treatment, "percent": percent}
            for (response, treatment), percent in world.ratios.items()
        ],
    }
