"""`iotax compare`: before against after."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from iotax.analysis import StudyData, Verdict
from iotax.analysis.change import Change, changes
from iotax.analysis.words import figure, title
from iotax.cli.console import console
from iotax.cli.exits import Exit, leave
from iotax.cli.show import open_notebook
from iotax.cli.summary import COLORS
from iotax.notebook import NotebookError
from iotax.report import study_data


def compare(before: str, after: str, notebook: Path | None, margin: float | None, *, fail: bool) -> None:
    old, new = _data(before, notebook), _data(after, notebook)
    margin_percent = old.study.margin if margin is None else margin
    found = changes(old, new, margin_percent)
    if not found:
        leave(Exit.USAGE, f"{before} and {after} share no treatment that both measured; compare runs of one study")
    out = console()
    out.print(_table(found))
    out.print(
        f"After over before, with 95 % intervals; within {margin_percent:g} % counts as equivalent. The two runs share "
        "no block: what drifted between them is part of the change.",
        style="dim",
        soft_wrap=True,
    )
    if old.study.digest() != new.study.digest():
        out.print("The two studies are not the same: only treatments that both have are compared.", style="yellow")
    worse = [change for change in found if change.regressed(margin_percent)]
    for change in worse:
        out.print(Text(f"Regression: {_subject(change)}, {_said(change)}.", style="red"), soft_wrap=True)
    if not worse:
        out.print("No regression beyond the margin.", soft_wrap=True)
    if worse and fail:
        raise typer.Exit(Exit.REGRESSED)


def _data(named: str, notebook: Path | None) -> StudyData:
    """A notebook's latest run, or the latest run with this label in the notebook named or the newest one."""
    path = Path(named)
    is_file = notebook is None and (path.is_file() or path.suffix == ".iotax")
    with open_notebook(path if is_file else notebook) as opened:
        try:
            if is_file:
                data = study_data(opened)
            else:
                runs = [each.id for each in opened.runs() if each.label == named]
                if not runs:
                    labels = ", ".join(sorted({each.label for each in opened.runs() if each.label})) or "none"
                    leave(Exit.USAGE, f"{named} is neither a notebook nor a label in {opened.path}; labels: {labels}")
                data = study_data(opened, runs[-1])
        except NotebookError as error:
            leave(Exit.NOTEBOOK, str(error))
    if not data.runs:
        leave(Exit.NOTEBOOK, f"{named}: nothing has been measured yet")
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
        verdict = change.verdict
        words = {Verdict.BETTER: change.response.better, Verdict.WORSE: change.response.worse}
        table.add_row(
            response if response != last else "",
            escape(_treatment(change)),
            figure(change.before),
            figure(change.after),
            _percent(change),
            f"{change.runs[0]} + {change.runs[1]}",
            Text(words.get(verdict, verdict.value), style=COLORS[verdict]) if verdict else Text("too few runs"),
        )
        last = response
    return table


def _treatment(change: Change) -> str:
    return " · ".join(map(title, change.cell)) if change.cell else "all together"


def _subject(change: Change) -> str:
    return f"{change.response.title.lower()} of {_treatment(change)}"


def _said(change: Change) -> str:
    return f"{_step(change.ratio.value)}{'' if _is_times(change) else ' %'}"


def _percent(change: Change) -> str:
    ratio = change.ratio
    if ratio.low is None or ratio.high is None:
        return _said(change)
    if _is_times(change):
        return f"{_said(change)} \\[{figure(ratio.low)}, {figure(ratio.high)}]"
    low, high = (f"{100 * (end - 1):+.1f}".replace("-", "−") for end in (ratio.low, ratio.high))
    return f"{_said(change)} \\[{low}, {high}]"


def _is_times(change: Change) -> bool:
    """Beyond these a percentage misleads."""
    return not 0.5 < change.ratio.value < 2


def _step(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}".replace("-", "−") if 0.5 < ratio < 2 else f"× {figure(ratio)}"
