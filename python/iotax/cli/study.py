"""`iotax check`, `studies`, `init`: commands about studies that run none."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from iotax.cli import complete
from iotax.cli.console import console, say, steps
from iotax.cli.document import STDOUT, check_document, judged, studies_document, write_document, write_output
from iotax.cli.exits import Exit, leave
from iotax.cli.letters import echo
from iotax.cli.loading import load
from iotax.cli.options import JsonFile, OtherLab, OwnTargets, StudyName, ToBeDestroyed
from iotax.cli.questions import TEMPLATE, from_study
from iotax.design import Plan
from iotax.design import plan as make_plan
from iotax.engine import EngineError
from iotax.labs import choice
from iotax.labs.base import CheckItem, Lab, Step
from iotax.study import Study
from iotax.study.read import builtin_studies, builtin_study, load_study, read_study
from iotax.study.schema import TITLE, schema_text
from iotax.study.source import StudyError
from iotax.units import show_minutes

FIO_SUFFIXES = (".fio", ".job")
"""Suffixes of fio's job files."""
_MARKS = {"ok": "[green]ok[/]", "warning": "[yellow]note[/]", "error": "[red]error[/]", "refused": "[red]refused[/]"}


def open_lab(study: Study, plan: Plan, destroy: list[str]) -> Lab:
    """The lab that the study names. Raises EngineError if there is no engine."""
    try:
        lab = choice.open_lab(study, plan, destroy)
    except ValueError as error:
        leave(Exit.USAGE, f"--destroy {error}")
    lab.tell = lambda said: echo(said, err=True)
    return lab


def planned(study: Study) -> Plan:
    """The study's plan. Exits if no design can answer it."""
    try:
        return make_plan(study)
    except ValueError as error:
        leave(Exit.USAGE, f"{study.name}: design: {error}")


def check(
    name: StudyName,
    destroy: ToBeDestroyed = None,
    lab: OtherLab = None,
    targets: OwnTargets = None,
    initiator: Annotated[
        bool,
        typer.Option(
            "--initiator",
            help="Also measure for about 10 s what this machine's initiator reaches on iotax's own target: if your "
            "target comes near, the initiator may be the bottleneck.",
        ),
    ] = False,
    document: JsonFile = None,
) -> None:
    """Check whether a study can run here; write nothing.

    Checks processors, memory, the server, and every endpoint: whether it answers, its size, and what data it holds.
    """
    study, _ = load(name, simulated=lab is not None, targets=targets or ())
    judged(document, Path(name))
    made = planned(study)
    try:
        opened = open_lab(study, made, destroy or [])
    except EngineError as error:
        leave(Exit.LAB, str(error))
    try:
        findings = opened.check()
        if initiator:
            with steps(1) as step:
                findings += opened.check_initiator(lambda each: step(each.text) if isinstance(each, Step) else None)
    finally:
        opened.close()
    if document != STDOUT:
        _print_findings(made, findings)
    if document is not None:
        write_document(document, check_document(study, made, findings), Path(name))
    kinds = {finding.kind for finding in findings}
    if "refused" in kinds:
        raise typer.Exit(Exit.REFUSED)
    if "error" in kinds:
        raise typer.Exit(Exit.LAB)


def _print_findings(made: Plan, findings: list[CheckItem]) -> None:
    out = console()
    out.print(f"{_MARKS['ok']} study: {made.amount}")
    for finding in findings:
        out.print(f"{_MARKS[finding.kind]} {escape(finding.subject)}: {escape(finding.message)}", soft_wrap=True)


def studies(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Print this one, as YAML; list all when not given.",
            show_default=False,
            autocompletion=complete.study_names,
        ),
    ] = None,
    document: JsonFile = None,
) -> None:
    """List the built-in studies, or print one."""
    if name is not None:
        if document is not None:
            leave(Exit.USAGE, f"--json lists the studies; `iotax plan {name} --json` is about one")
        echo(_builtin(name), nl=False)
        return
    judged(document)
    found = {each: load_study(each)[0] for each in builtin_studies()}
    if document is not None:
        write_document(document, studies_document({each: (study, make_plan(study)) for each, study in found.items()}))
    if document == STDOUT:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("name", "trials", "takes", "question"):
        table.add_column(title)
    for each, study in found.items():
        made = make_plan(study)
        most, takes = str(made.trials_max), show_minutes(made.duration_max_ns / 1e9)
        table.add_row(each, f"≤ {most}" if made.further else most, takes, escape(study.question))
    console().print(table)


def set_variables(words: Sequence[str]) -> dict[str, str]:
    """Values of `--set NAME=VALUE`."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            leave(Exit.USAGE, f"--set {word}: write NAME=VALUE, such as RW=randread")
        found[name] = value
    return found


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("study.yaml"),
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="NAME",
            help="Start from a built-in study (`iotax studies`), a fio job file (JOB.fio), a DiskSpd profile "
            "(FILE.xml), "
            "command line, script or output, a vdbench parameter file, or an Iometer configuration (FILE.icf).",
            show_default=False,
            autocompletion=complete.study_names,
        ),
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Value of ${NAME} in fio's job file; default: from the environment; may be repeated.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a study to start from.

    On a terminal it asks six questions; with --from, or without a terminal, it asks none. It also writes the JSON
    Schema with which editors complete and check the file.
    """
    values = set_variables(variables or [])
    if path.name in builtin_studies():
        leave(Exit.USAGE, f"{path} is a built-in study: iotax init {path}.yaml --from {path.name}")
    if path.is_dir():
        leave(Exit.USAGE, f"{path} is a folder; name a file, such as {path / 'study.yaml'}")
    schema = path.with_name("study.schema.json")
    if path.exists():
        leave(Exit.USAGE, f"{path} already exists; choose another name")
    judged(path)
    if path == schema or (schema.exists() and not _is_schema(schema)):
        leave(Exit.USAGE, f"{schema} is not a schema of iotax; name a study in another folder")
    write_output(path, _begun(source, path.stem, values), *([Path(source)] if source else []))
    write_output(schema, schema_text(), known=True)
    say(f"{path} is a study to start from; editors complete and check it with {schema}.")
    echo(f"Next: {shlex.join(['iotax', 'plan', str(path)])}")


def _begun(source: str | None, name: str, variables: Mapping[str, str]) -> str:
    """The text to start from: the template, a built-in study, or another program's job."""
    if source is None:
        from iotax.cli.questions import asked_study, on_terminal

        return from_study(asked_study(), name) if on_terminal() else TEMPLATE
    from iotax.imports.diskspd_job import PROGRAM, is_diskspd_file, study_of_diskspd
    from iotax.imports.fio_job import study_of_job
    from iotax.imports.job_study import Converted
    from iotax.imports.parameter_files import is_parameter_file, study_of_parameters
    from iotax.imports.problems import Unreadable

    fio = Path(source).suffix in FIO_SUFFIXES
    if variables and not fio:
        leave(Exit.USAGE, f"--set gives variables to a job file of fio, and {source} is none")
    try:
        if fio:
            made = study_of_job(Path(source), name, variables)
        elif source.endswith(".xml") or PROGRAM.match(source) or is_diskspd_file(Path(source)):
            made = Converted(*study_of_diskspd(source, name))
        elif is_parameter_file(Path(source)):
            made = study_of_parameters(Path(source), name)
        else:
            return from_study(_builtin(source), name)
    except Unreadable as problem:
        leave(Exit.USAGE, str(problem))
    try:
        read_study(source, made.text, Path.cwd())
    except StudyError as error:
        leave(Exit.USAGE, "\n".join(_by_lines_of_job(source, error, made.lines)))
    for note in made.notes:
        say(f"note: {note}", err=True)
    return from_study(made.text, name)


def _by_lines_of_job(source: str, error: StudyError, lines: Mapping[tuple[str, ...], str]) -> list[str]:
    """Errors of the study made from a job, with the job's lines: the user knows no lines of the study."""
    found = []
    for problem in error.problems:
        place: tuple[str, ...] = tuple(str(each) for each in problem.place)
        while place and place not in lines:
            place = place[:-1]
        of = f"{problem.field()}: " if problem.place else ""
        found.append(f"{lines.get(place, source)}: as a study: {of}{problem.message}")
    return found


def _builtin(name: str) -> str:
    """The YAML of a built-in study. Exits if there is no such study."""
    try:
        return builtin_study(name)
    except StudyError as error:
        leave(Exit.USAGE, str(error))


def _is_schema(path: Path) -> bool:
    """Whether the file may be replaced: `init` wrote it, in whatever version."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["title"] == TITLE
    except (OSError, ValueError, LookupError, TypeError):
        return False
