"""`iotax import`: other programs' results into a notebook."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from iotax.cli import complete, options
from iotax.cli.console import console, say
from iotax.cli.document import STDOUT, judged, write_document
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.options import JsonFile, Long, NewNotebook
from iotax.imports.campaign import Campaign, Naming, given_times, read_campaign
from iotax.imports.formats import FORMATS, Format
from iotax.imports.naming import NamePattern, PatternError, given_factors
from iotax.imports.problems import Unreadable
from iotax.imports.processors import recorded
from iotax.imports.study import Kept, Read, Wanted, remarks, study_of
from iotax.imports.write import write
from iotax.notebook import Notebook, NotebookError, Writer
from iotax.outputs import OUT
from iotax.study.imported import ImportedStudy
from iotax.units import counted
from iotax.version import __version__

WATCH_S = 2.0
"""Time between two looks at the folders."""
_SHOWN_MAX = 20
"""Notes shown on the screen; the report has all."""


@dataclass(frozen=True)
class Request:
    """The options of the command line."""

    form: str
    paths: tuple[Path, ...]
    notebook: Path | None
    factors: Sequence[str]
    columns: Sequence[str]
    pattern: str | None
    by: Sequence[str]
    cpu: Sequence[str]
    at: Sequence[str]
    baseline: Sequence[str]
    floor: str
    name: str
    question: str
    margin: float
    published: str
    responses: Sequence[str]
    label: str


def import_(
    form: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="Which program wrote the files; `iotax import list` names them.",
            autocompletion=complete.import_formats,
        ),
    ],
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH...", help="Files, or folders of them.", show_default=False),
    ] = None,
    notebook: NewNotebook = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            "--factor",
            metavar="NAME=VALUE",
            help="A factor level that applies to all files, such as protocol=iscsi; may be repeated.",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME=TITLE",
            help="For `table`: which column holds NAME, such as 'iops=IO/s', 'latency_ms=Avg ms' or 'protocol=Setup'. "
            "A number instead of a title applies to all rows (duration_s=60); may be repeated.",
            show_default=False,
        ),
    ] = None,
    name_pattern: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Factors by the files' names, such as '{protocol}-{bs}-r{replicate}.json'; * matches anything.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="SETTING",
            help="Use this setting in the files as a factor, such as outstanding; may be repeated.",
            show_default=False,
        ),
    ] = None,
    cpu: Annotated[
        list[str] | None,
        typer.Option(
            "--cpu",
            metavar="ROLE=FILE",
            help="CPU recorded beside the runs by sar, mpstat or esxtop, joined by time; ROLE is initiator, target, "
            "hypervisor (the host of virtual initiators) or guest (such an initiator); may be repeated.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="[FILE=]TIME",
            help="When the first run of a file began that does not say it, such as 2026-05-01T10:00:00Z; `written`: "
            "runs ended when their files were written. CPU is joined to such runs only with this; may be repeated.",
            show_default=False,
        ),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LEVEL", help="The level that counts as 100; default: the first one.", show_default=False
        ),
    ] = None,
    floor: Annotated[
        str, typer.Option(metavar="LEVEL", help="The level of protocol that is the volume without a protocol.")
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the study; default: from the paths.")] = "",
    question: Annotated[str, typer.Option(help="The question that the study answers, for the report.")] = "",
    margin: Annotated[
        float,
        typer.Option(
            parser=options.percent, metavar="PERCENT", help="Differences that count as equivalent.", show_default="5%"
        ),
    ] = 5.0,
    published: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Published figures to set beside the results: a file with `published:` as in a study, or a built-in "
            "study's name.",
        ),
    ] = "",
    response: Annotated[
        list[str] | None,
        typer.Option(
            "--response",
            metavar="NAME",
            help="What to compare, the primary response first, such as cpu_hypervisor or cpu_utilisation_machine; may "
            "be "
            "repeated.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[str, typer.Option(help="Name of this import, such as `before` or `after`.")] = "",
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep running and add files as they appear, until Ctrl-C.")
    ] = False,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Read other programs' results into a notebook.

    `iotax report`, `compare`, `size` and `export` then read the notebook. Settings that differ between the files
    become factors, unless --by chooses them. iotax names what it cannot read, with file, line and field, and imports
    the rest.
    """
    request = Request(
        form,
        tuple(paths or ()),
        notebook,
        factor or (),
        column or (),
        name_pattern,
        by or (),
        cpu or (),
        at or (),
        baseline or (),
        floor,
        name,
        question,
        margin,
        published,
        response or (),
        label,
    )
    if request.form == "list":
        _list()
        return
    reads = _format(request)
    title = request.name or _name(request.paths)
    path = request.notebook or OUT / f"{title}.iotax"
    _refuse_output(path, request)
    judged(document, path, *request.paths)
    if watch:
        _watch(request, reads, title, path)
        return
    read = _read(request, reads, title)
    run, new = _write(path, read, request.label)
    if document != STDOUT:
        _say(read, path, run, new, long=long)
    for each in _first(read.campaign.unreadable):
        say(f"iotax: not imported: {each}", err=True)
    if document is not None:
        write_document(document, _document(read, path, run, new), path, *request.paths)
    if read.campaign.unreadable:
        raise typer.Exit(Exit.FAILED)


def _first(reasons: list[str]) -> list[str]:
    """As many lines as a terminal shows at once; the notebook and `--json` have all of them."""
    rest = len(reasons) - _SHOWN_MAX
    return reasons if rest <= 0 else [*reasons[:_SHOWN_MAX], f"and {rest} more"]


def _name(paths: tuple[Path, ...]) -> str:
    """The name of the only path, or of the folder that holds several."""
    found = [each.resolve() for each in paths]
    return found[0].stem if len(found) == 1 else found[0].parent.name or "imported"


def _list() -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("format", "reads", "latency"):
        table.add_column(title)
    for each in FORMATS.values():
        table.add_row(each.name, each.title, each.latency)
    console().print(table)


def _format(request: Request) -> Format:
    if request.form not in FORMATS:
        leave(Exit.USAGE, f"{request.form} is not a format that iotax imports; there are {', '.join(FORMATS)}")
    if not request.paths:
        leave(Exit.USAGE, f"no files are named: iotax import {request.form} PATH...")
    if missing := [each for each in request.paths if not each.exists()]:
        leave(Exit.USAGE, f"{missing[0]}: no such file or folder")
    form = FORMATS[request.form]
    if request.columns and form.columns is None:
        leave(Exit.USAGE, f"--column says what a table's columns are, and {form.title} says it itself")
    if form.columns is None:
        return form
    from iotax.imports.table import given_columns

    try:
        return replace(form, columns=given_columns(request.columns))
    except PatternError as error:
        leave(Exit.USAGE, str(error))


def _refuse_output(path: Path, request: Request) -> None:
    """The notebook must not be one of the files to read."""
    if path.suffix != ".iotax":
        leave(Exit.USAGE, f"{path}: name a notebook, such as {path.with_suffix('.iotax')}")
    if any(path.resolve() == each.resolve() for each in request.paths):
        leave(Exit.USAGE, f"{path} is what this command reads; name another notebook")


@dataclass(frozen=True)
class _Read:
    campaign: Campaign
    read: Read
    notes: list[str]

    @property
    def study(self) -> ImportedStudy:
        return self.read.study

    @property
    def kept(self) -> list[Kept]:
        return self.read.kept


def _read(request: Request, form: Format, name: str) -> _Read:
    """Exits with the reason if nothing could be read or two results claim one place."""
    try:
        naming = Naming(
            given_factors(list(request.factors)),
            NamePattern(request.pattern) if request.pattern else None,
            request.by,
            given_times(request.at),
        )
        campaign = read_campaign(form, request.paths, naming)
        if not campaign.placed:
            reasons = "".join(f"\n  {each}" for each in _first(campaign.unreadable))
            leave(Exit.USAGE, f"nothing was imported: no {form.title} among {counted(campaign.files, 'file')}{reasons}")
        baseline = given_factors(list(request.baseline))
        monitors = [recorded(word, campaign.notes) for word in request.cpu]
        wanted = Wanted(
            name,
            request.question,
            baseline,
            request.floor,
            request.margin,
            request.published,
            request.responses,
        )
        read = study_of(campaign, wanted, monitors)
    except (PatternError, Unreadable) as error:
        leave(Exit.USAGE, str(error))
    return _Read(campaign, read, [*campaign.notes.said, *remarks(campaign.placed)])


def _write(path: Path, read: _Read, label: str) -> tuple[int, int]:
    """The results come from other machines, so the record of this machine is left out."""
    around = {
        "iotax": __version__,
        "command_line": sys.argv,
        "import_notes": read.notes,
        "not_imported": read.campaign.unreadable,
    }
    try:
        with Writer(path) as writer:
            return write(writer, read.read, label=label, environment=around)
    except NotebookError as error:
        leave(Exit.NOTEBOOK, str(error))


def _say(read: _Read, path: Path, run: int, new: int, *, long: bool) -> None:
    from iotax.cli.screen import print_screen
    from iotax.cli.summary import print_summary
    from iotax.collected import study_data

    with Notebook(path) as notebook:
        data = study_data(notebook, run)
    if long:
        print_summary(data)
        for each in read.notes[:_SHOWN_MAX]:
            say(f"note: {each}")
        if len(read.notes) > _SHOWN_MAX:
            echo(f"… and {len(read.notes) - _SHOWN_MAX} more notes; the report has all.")
    else:
        print_screen(data, reserved=3 + bool(read.notes))
        if read.notes:
            echo(f"{counted(len(read.notes), 'note')} on the files: see --long or the report.")
    if new:
        echo(f"Imported {new} {'result' if new == 1 else 'results'} from {read.study.source}.")
    else:
        echo(f"All {len(read.kept)} results were imported before.")
    echo(f"Notebook: {path}")
    echo(f"Next: {shlex.join(['iotax', 'report', str(path)])}")


def _document(read: _Read, path: Path, run: int, new: int) -> dict[str, Any]:
    return {
        "notebook": str(path),
        "run": run,
        "study": read.study.name,
        "programs": read.study.imported.programs,
        "files": read.campaign.files,
        "results": len(read.kept),
        "results_new": new,
        "factors": {name: [level.label for level in levels] for name, levels in read.study.levels().items()},
        "notes": read.notes,
        "not_imported": read.campaign.unreadable,
    }


def _watch(request: Request, form: Format, name: str, path: Path) -> None:
    """Adds files as they appear. A file that cannot be read yet is probably still being written and is tried again."""
    seen: dict[Path, tuple[int, int]] = {}
    echo(f"Watching {', '.join(map(str, request.paths))}; Ctrl-C ends it. Notebook: {path}")
    try:
        while True:
            files = {each: _state(each) for given in request.paths for each in form.files(given)}
            if files and files != seen:
                seen = files
                _add(request, form, name, path)
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        echo(f"Next: {shlex.join(['iotax', 'report', str(path)])}")


def _state(path: Path) -> tuple[int, int]:
    """Values that change when a file changes; empty for a file that was removed meanwhile."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size


def _add(request: Request, form: Format, name: str, path: Path) -> None:
    try:
        read = _read(request, form, name)
    except typer.Exit:
        return  # the reason was printed; the next file may be readable
    _, new = _write(path, read, request.label)
    waiting = f", {len(read.campaign.unreadable)} not readable yet" if read.campaign.unreadable else ""
    echo(f"{time.strftime('%H:%M:%S')} {len(read.kept)} results, {new} of them new{waiting}")
