"""`iotax compare`: before against after."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from iotax.analysis import Estimate, Shift, StudyData
from iotax.analysis.change import Change, Changes, changes, differences, level_changes, obstacles
from iotax.analysis.verdict import Cause, Verdict
from iotax.cli import change_page, options
from iotax.cli.console import console, fitting
from iotax.cli.document import STDOUT, interval, judged, write_document, write_output
from iotax.cli.exits import Exit, leave
from iotax.cli.loading import open_notebook
from iotax.cli.options import JsonFile, Long, NotebookOption, NotebookPath, one_notebook
from iotax.cli.profile import change_documents, print_changes, print_leads
from iotax.cli.treatments import COLORS
from iotax.collected import study_data
from iotax.notebook import Notebook, NotebookError
from iotax.study import Level, Study
from iotax.units import counted
from iotax.wording import SIMULATED, because, figure, title
from iotax.wording import changes as wording

_NAME_COLUMNS = 12
"""Columns kept for a treatment's name, however narrow the terminal."""
_CHANGES_MAX = 14
"""Rows that fit one screen."""
_NOTES_MAX = 2
SHOWN_PERCENT = (50.0, 90.0, 99.0, 99.9)


def compare(
    before: Annotated[
        str,
        typer.Argument(metavar="A", help="A notebook, a run of it (its label, or run=1), or a level of a factor."),
    ],
    after: Annotated[str, typer.Argument(metavar="B", help="The same, after the change.")],
    notebook: NotebookPath = None,
    notebook_option: NotebookOption = None,
    margin: Annotated[
        float | None,
        typer.Option(
            parser=options.percent,
            metavar="PERCENT",
            help="Differences that count as equivalent, such as 5%; default: the margin of A.",
            show_default=False,
        ),
    ] = None,
    fail: Annotated[
        bool,
        typer.Option(
            "--fail-on-regression", help="Exit with code 6 if B is significantly worse, by more than the margin."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Also write the comparison as Markdown for a pull request (.md), or as a page (.html).",
            show_default=False,
        ),
    ] = None,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Compare two runs of a study, or two levels of a factor.

    Two runs show a change of firmware, kernel or release, before and after. Levels of one run, such as `nfs3 iscsi`
    or `block_size=4KiB block_size=8KiB`, are compared within its blocks.
    """
    notebook = one_notebook(notebook, notebook_option)
    inputs = (*(Path(named) for named in (before, after)), *([notebook] if notebook else []))
    for each in (document, output):
        judged(each, *inputs)
    if output is not None and output.suffix not in change_page.SUFFIXES:
        leave(Exit.USAGE, f"--output {output}: name a .md file, for a pull request, or a .html file")
    found, margin_percent, notes, simulated = _compared(before, after, notebook, margin)
    mark = _mark((before, after), simulated)
    worse = [change for change in found.found if change.regressed(margin_percent)]
    if document != STDOUT:
        if mark is not None:
            console().print(Text(mark[0], style=mark[1]), soft_wrap=True)
        (_print if long else _print_screen)(found, margin_percent, notes, worse)
    if document is not None:
        names = {"before": before, "after": after}
        marks = {"before_simulated": simulated[0], "after_simulated": simulated[1]}
        write_document(document, names | marks | _document(found, margin_percent))
    if output is not None:
        write = change_page.markdown if output.suffix == ".md" else change_page.page
        said = mark[0] if mark is not None else ""
        text = write(found, before, after, margin_percent, [note for note, _ in notes], said)
        write_output(output, text, *inputs)
    if worse and fail:
        raise typer.Exit(Exit.REGRESSED)


def _print_screen(found: Changes, margin_percent: float, notes: list[tuple[str, str]], worse: list[Change]) -> None:
    """The largest changes as a table of one screen, then the remarks on all of them."""
    out = console()
    shown, rest = _largest(found.found)
    for table in fitting(out, ([_table(shown)], [_brief_table(shown)])):
        out.print(table)
    if rest:
        out.print(f"{_kinds(rest)}: see --long.", soft_wrap=True)
    print_leads(out, found.profiles)
    out.print(
        wording.explained(margin_percent),
        style="dim",
        soft_wrap=True,
    )
    for note, style in notes[:_NOTES_MAX]:
        out.print(Text(note, style=style), soft_wrap=True)
    if len(notes) > _NOTES_MAX:
        out.print(f"{counted(len(notes) - _NOTES_MAX, 'more note')}: see --long.", style="dim")
    if worse:
        out.print(Text(wording.regression(worse[0]), style="red"), soft_wrap=True)
        if worse[1:]:
            out.print(Text(f"{counted(len(worse) - 1, 'more regression')}: see --long.", style="red"))
    else:
        out.print(wording.no_regression(found.found, margin_percent), soft_wrap=True)


def _largest(found: list[Change]) -> tuple[list[Change], list[Change]]:
    """The changes that fit one screen, the largest first; and the rest."""
    if len(found) <= _CHANGES_MAX:
        return found, []
    whole = [change for change in found if not change.treatment]
    others = sorted((c for c in found if c.treatment), key=lambda c: (not _differs(c), -abs(math.log(c.ratio.value))))
    kept = {id(change) for change in [*whole, *others][:_CHANGES_MAX]}
    return [c for c in found if id(c) in kept], [c for c in found if id(c) not in kept]


def _differs(change: Change) -> bool:
    return change.verdict in (Verdict.BETTER, Verdict.WORSE)


def _kinds(rest: list[Change]) -> str:
    """ "4 more comparisons, 1 of them better or worse"."""
    differ = sum(map(_differs, rest))
    return f"{counted(len(rest), 'more comparison')}, {differ} of them better or worse"


def _print(found: Changes, margin_percent: float, notes: list[tuple[str, str]], worse: list[Change]) -> None:
    out = console()
    for table in fitting(out, ([_table(found.found)], _narrow_tables(found.found))):
        out.print(table)
    if any(shift.points for shift in found.shifts):
        out.print()
        shifts = found.shifts
        for table in fitting(out, ([_quantile_table(shifts, narrow=narrow)] for narrow in (False, True))):
            out.print(table)
    print_changes(out, found.profiles)
    out.print(
        wording.explained(margin_percent),
        style="dim",
        soft_wrap=True,
    )
    for note, style in notes:
        out.print(Text(note, style=style), soft_wrap=True)
    for change in worse:
        out.print(Text(wording.regression(change), style="red"), soft_wrap=True)
    if not worse:
        out.print(wording.no_regression(found.found, margin_percent), soft_wrap=True)


def _document(found: Changes, margin_percent: float) -> dict[str, Any]:
    return {
        "margin_percent": margin_percent,
        "regressions": sum(change.regressed(margin_percent) for change in found.found),
        "changes": [
            {
                "response": change.response.key,
                "unit": change.response.unit,
                "treatment": change.treatment or None,
                "before": change.before,
                "after": change.after,
                **interval(change.ratio),
                "runs": change.runs,
                "doubtful_runs": change.doubt.runs,
                "p": change.p_difference,
                "verdict": "mixed" if change.mixed else change.verdict,
                "withheld": change.withheld and change.withheld.cause.value,
                "regression": change.regressed(margin_percent),
            }
            for change in found.found
        ],
        "latency_quantiles": [
            {"treatment": shift.arm, "percent": point.percent, **interval(point.ratio)}
            for shift in found.shifts
            for point in shift.points
        ],
        "profiles": change_documents(found.profiles),
    }


def _mark(names: tuple[str, str], simulated: tuple[bool, bool]) -> tuple[str, str] | None:
    """What to print before the figures, with its style, if either side is simulated."""
    if not any(simulated):
        return None
    if all(simulated):
        return SIMULATED, "yellow"
    one, other = (
        f"{name} was {'simulated' if each else 'measured'}" for name, each in zip(names, simulated, strict=True)
    )
    return f"{one} and {other}: the change is between a simulation and a measurement, not of a system.", "red"


def _compared(
    before: str, after: str, notebook: Path | None, margin: float | None
) -> tuple[Changes, float, list[tuple[str, str]], tuple[bool, bool]]:
    """The changes, the margin in percent, further remarks with their styles, and which side is simulated."""
    if not _is_file(before, notebook) and not _is_file(after, notebook):
        with open_notebook(notebook, f"; {before} and {after} are not files here either") as opened:
            labels = {each.label for each in opened.runs()} - {""}
            if not any(named in labels or _number(named) for named in (before, after)):
                data = _measured(opened, None, str(opened.path))
                factor, old, new = _levels(data.study, before, after, opened, labels)
                margin_percent = data.study.margin if margin is None else margin
                found = level_changes(data, factor, old, new, margin_percent)
                if not found.found:
                    leave(Exit.NOTEBOOK, f"{opened.path}: no condition was measured with both {before} and {after}")
                notes = [*_withheld(found, before, after), *_doubts(found)]
                return found, margin_percent, notes, (data.simulated, data.simulated)
    one, other = _data(before, notebook), _data(after, notebook)
    if [run.result for run in one.measured] == [run.result for run in other.measured]:
        leave(
            Exit.USAGE,
            f"{before} and {after} are the same run of {one.study.name}, which differs from itself by nothing. Name "
            "two runs; `iotax aa` tells how far apart equal runs lie",
        )
    margin_percent = one.study.margin if margin is None else margin
    found = changes(one, other, margin_percent)
    if not found.found:
        reasons = "".join(f"\n  {reason}" for reason in obstacles(one, other))
        leave(
            Exit.USAGE, f"{before} and {after} cannot be compared: they share no treatment that both measured{reasons}"
        )
    notes = [("The two runs share no block: drift between them is part of the change.", "dim")]
    if different := differences(one, other):
        notes.append((f"Besides, these differ: {'; '.join(different)}.", "yellow"))
    notes += [*_withheld(found, before, after), *_doubts(found)]
    return found, margin_percent, notes, (one.simulated, other.simulated)


def _doubts(found: Changes) -> list[tuple[str, str]]:
    return [(line, "yellow") for line in wording.doubts(found.found)]


def _withheld(found: Changes, before: str, after: str) -> list[tuple[str, str]]:
    told = (Cause.CARRIER, Cause.ENCRYPTED, Cause.LOOKED)
    reasons = [change.withheld for change in found.found if change.withheld and change.withheld.cause in told]
    return [(f"No verdict: {because(reasons[0], title(after), title(before))}.", "yellow")] if reasons else []


def _number(named: str) -> int | None:
    """The number of the run in `run=2`."""
    name, _, number = named.partition("=")
    return int(number) if name == "run" and number.isdecimal() else None


def _is_file(named: str, notebook: Path | None) -> bool:
    path = Path(named)
    return notebook is None and (path.is_file() or path.suffix == ".iotax")


def _levels(study: Study, before: str, after: str, opened: Notebook, labels: set[str]) -> tuple[str, Level, Level]:
    """The factor of which both are levels; `factor=level` chooses one of several."""
    found = []
    for factor in study.levels():
        old, new = (study.level(factor, named.removeprefix(f"{factor}=")) for named in (before, after))
        if old is not None and old == new:
            leave(Exit.USAGE, f"{before} and {after} are the same level of {factor}; name two")
        if old is not None and new is not None:
            found.append((factor, old, new))
    if len(found) > 1:
        factors = " and ".join(factor for factor, _, _ in found)
        leave(Exit.USAGE, f"{before} and {after} are levels of {factors}; say which: {found[0][0]}={before}")
    if not found:
        known = "; ".join(f"{name} {', '.join(x.label for x in levels)}" for name, levels in study.levels().items())
        leave(
            Exit.USAGE,
            f"{before} and {after} are neither notebooks, nor labels of runs in {opened.path} "
            f"({', '.join(sorted(filter(None, labels))) or 'it has none'}), nor two levels of one factor of its study: "
            f"{known}",
        )
    return found[0]


def _data(named: str, notebook: Path | None) -> StudyData:
    """The latest run of a notebook, or the run with this number or label in the notebook named or the newest one."""
    if _is_file(named, notebook):
        with open_notebook(Path(named)) as opened:
            return _measured(opened, None, named)
    with open_notebook(notebook) as opened:
        if number := _number(named):
            return _measured(opened, number, f"{opened.path}, run {number}")
        runs = [each.id for each in opened.runs() if each.label == named]
        if not runs:
            labels = ", ".join(sorted({each.label for each in opened.runs() if each.label})) or "none"
            leave(Exit.USAGE, f"{named} is neither a notebook nor a label in {opened.path}; labels: {labels}")
        return _measured(opened, runs[-1], named)


def _measured(opened: Notebook, run: int | None, named: str) -> StudyData:
    try:
        data = study_data(opened, run)
    except NotebookError as error:
        leave(Exit.NOTEBOOK, str(error))
    if not data.measured:
        leave(Exit.NOTEBOOK, f"{named}: nothing has been measured yet")
    if not data.runs:
        rules = ", ".join(data.study.exclude)
        leave(Exit.NOTEBOOK, f"{named}: the study's rules ({rules}) exclude all {len(data.measured)} runs measured")
    return data


def _table(found: list[Change]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("response", "treatment"):
        table.add_column(name)
    for name in ("before", "after", "change", "runs"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    last = ""
    for change in found:
        response = f"{change.response.title} ({change.response.unit})"
        table.add_row(
            response if response != last else "",
            escape(wording.treatment(change)),
            figure(change.before),
            figure(change.after),
            _change(change.ratio),
            f"{change.runs[0]} + {change.runs[1]}",
            _verdict(change),
        )
        last = response
    return table


def _brief_table(found: list[Change]) -> Table:
    """The wide table without what does not fit 80 columns."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("response")
    table.add_column("treatment", min_width=_NAME_COLUMNS)
    table.add_column("change", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    last = ""
    for change in found:
        response = change.response.title
        table.add_row(
            response if response != last else "",
            escape(wording.treatment(change)),
            _change(change.ratio),
            _verdict(change),
        )
        last = response
    return table


def _narrow_tables(found: list[Change]) -> list[Table]:
    """One table for each response, with intervals below the changes."""
    tables = []
    for response in dict.fromkeys(change.response for change in found):
        name = f"{response.title} ({response.unit})"
        table = Table(box=None, pad_edge=False, header_style="bold", title=name, title_justify="left")
        table.add_column("treatment", min_width=_NAME_COLUMNS)
        for each in ("before", "after", "change", "runs"):
            table.add_column(each, justify="right", no_wrap=True)
        table.add_column("verdict")
        for change in (each for each in found if each.response is response):
            table.add_row(
                escape(wording.treatment(change)),
                figure(change.before),
                figure(change.after),
                _change(change.ratio, narrow=True),
                f"{change.runs[0]} + {change.runs[1]}",
                _verdict(change),
            )
        tables.append(table)
    return tables


def _quantile_table(shifts: list[Shift], *, narrow: bool) -> Table:
    """Latency changes by quantile."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("latency at" if narrow else "latency at the quantile", min_width=_NAME_COLUMNS)
    for percent in SHOWN_PERCENT:
        table.add_column(f"p{percent:g}", justify="right", no_wrap=True)
    for shift in shifts:
        points = {point.percent: point for point in shift.points}
        row = [_change(points[percent].ratio, narrow=narrow) if percent in points else "–" for percent in SHOWN_PERCENT]
        table.add_row(escape(title(shift.arm)), *row)
    return table


def _verdict(change: Change) -> Text:
    style = "yellow" if change.mixed else COLORS[change.verdict] if change.verdict is not None else ""
    return Text(wording.verdict(change), style=style)


def _change(ratio: Estimate, *, narrow: bool = False) -> str:
    said = wording.changed(ratio)
    return escape(said.replace(" [", "\n[") if narrow else said)
