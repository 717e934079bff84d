"""`iotax show` and `iotax report`: present a notebook."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from iotax.cli.console import console, height, say
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.loading import open_notebook
from iotax.cli.options import JsonFile, Long, NotebookOption, NotebookPath, RunNumber, one_notebook
from iotax.cli.summary import agreed
from iotax.notebook import Notebook, NotebookError
from iotax.outputs import OutputRefused
from iotax.trial import Attempt


def show(
    path: NotebookPath = None,
    notebook_option: NotebookOption = None,
    run: RunNumber = None,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Show a notebook: runs, results, failed attempts."""
    with open_notebook(one_notebook(path, notebook_option)) as notebook:
        judged(document, notebook.path)
        try:
            if document != STDOUT:
                (_show_long if long else _show)(notebook, run)
            if document is not None:
                from iotax.cli.summary import run_document

                write_document(document, run_document(notebook, run), notebook.path)
        except NotebookError as error:
            leave(Exit.NOTEBOOK, str(error))


def _show(notebook: Notebook, run: int | None) -> None:
    """The first screen: which run, its progress, and its results."""
    from iotax.cli.screen import print_screen
    from iotax.collected import study_data

    chosen, runs = notebook.run(run), notebook.runs()
    data = study_data(notebook, chosen.id)
    started = datetime.datetime.fromtimestamp(chosen.started_unix_ns / 1e9).astimezone()
    label = f" [{chosen.label}]" if chosen.label else ""
    done = len({attempt.trial.id for attempt in data.attempts if attempt.status == "done"})
    lines = [
        f"{notebook.path}: run {chosen.id} of {len(runs)}, {chosen.name}{label}, {started:%Y-%m-%d %H:%M}",
        *([f"{done} of {len(data.planned)} trials are done."] if done < len(data.planned) else []),
    ]
    if failed := [attempt for attempt in data.attempts if attempt.status != "done"]:
        last = failed[-1]
        reason = f": {last.why}" if last.why else ""
        lines.append(f"{last.trial.id}, attempt {last.number}: {last.status}{reason}")
    for line in lines:
        say(line)
    if done:
        print_screen(data, reserved=sum(height(line) for line in lines))


def _show_long(notebook: Notebook, run: int | None) -> None:
    from iotax.collected import study_data

    chosen = notebook.run(run)
    data = study_data(notebook, chosen.id)
    echo(f"{notebook.path}")
    for each in notebook.runs():
        started = datetime.datetime.fromtimestamp(each.started_unix_ns / 1e9).astimezone()
        shown = "→" if each.id == chosen.id else " "
        label = f" [{each.label}]" if each.label else ""
        echo(f"{shown} run {each.id}: {each.name}{label}, started {started:%Y-%m-%d %H:%M:%S %Z}")
    done = len({attempt.trial.id for attempt in data.attempts if attempt.status == "done"})
    echo(f"{done} of {len(data.planned)} trials are done.")
    for attempt in data.attempts:
        if attempt.status != "done":
            reason = f": {attempt.why}" if attempt.why else ""
            echo(f"{attempt.trial.id}, attempt {attempt.number}: {attempt.status}{reason}")
            for line in attempt.log.splitlines()[-3:]:
                echo(f"    {line}")
    for said in notebook.closings(chosen.id):
        echo("After the last attempt:")
        for line in said.splitlines():
            echo(f"    {line}")
    if done:
        from iotax.cli.summary import print_summary

        print_summary(data)
        for line in connections(data.attempts):
            console().print(Text(line), soft_wrap=True)


def connections(attempts: Iterable[Attempt]) -> list[str]:
    """What the first connection over each protocol found and agreed on."""
    return [
        f"{protocol} agreed: " + ", ".join(f"{name} {value}" for name, value in facts.items())
        for protocol, facts in agreed(attempts).items()
    ]


def write_report(
    notebook: Notebook, run: int | None, output: Path | None, charts: Path | None = None, pdf: Path | None = None
) -> Path:
    """Writes the HTML file, and its charts if a folder for them is given; returns the file's path. Exits with the
    reason if a file cannot be written."""
    path = output or notebook.report_path(run)
    for each in (path, pdf):
        judged(each, notebook.path)
    if charts is not None and charts.exists() and not charts.is_dir():
        leave(Exit.USAGE, f"--charts {charts}: a file; name a folder, which may be new")
    from iotax.report import write

    try:
        return write(notebook, path, charts, run, pdf)
    except OutputRefused as refused:
        leave(Exit.USAGE, str(refused))
    except OSError as error:
        failed = Path(error.filename or path)
        of_charts = charts is not None and charts in (failed, *failed.parents)
        option, what = ("--charts DIR", "the charts") if of_charts else ("--output FILE", "the report")
        leave(
            Exit.USAGE,
            f"{failed} cannot be written: {error.strerror or error}. The notebook "
            f"is whole: `iotax report {notebook.path} {option}` writes {what} elsewhere",
        )


def report(
    path: NotebookPath = None,
    notebook_option: NotebookOption = None,
    run: RunNumber = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The HTML file; beside the notebook when not given.", show_default=False),
    ] = None,
    charts: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write each chart as SVG and PNG into this folder.", show_default=False),
    ] = None,
    pdf: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also print the report to this PDF, using an installed Chromium.", show_default=False
        ),
    ] = None,
) -> None:
    """Write the report of a notebook: one HTML file."""
    from iotax.report import NoRendererError, PdfError

    with open_notebook(one_notebook(path, notebook_option)) as notebook:
        try:
            echo(str(write_report(notebook, run, output, charts, pdf)))
        except (NoRendererError, PdfError) as error:
            leave(Exit.USAGE, str(error))
        except NotebookError as error:
            leave(Exit.NOTEBOOK, str(error))
    if pdf is not None:
        echo(str(pdf))
