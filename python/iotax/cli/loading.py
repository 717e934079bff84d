"""Reads a study and opens a notebook for the command line. This module loads quickly: `iotax run` prints its first line
after this and before all else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from iotax.cli.console import say
from iotax.cli.exits import Exit, leave
from iotax.notebook import Notebook, NotebookError
from iotax.outputs import OUT
from iotax.study import Study
from iotax.study.as_simulated import load_simulated
from iotax.study.own_target import load_with_targets
from iotax.study.read import builtin_studies, load_study, notes
from iotax.study.source import StudyError
from iotax.units import format_duration, show_time

_AS_WIDE = 1.05


def load(
    name: str, driver: str | None = None, *, simulated: bool = False, targets: Sequence[str] = ()
) -> tuple[Study, str]:
    """The study and its text, with the command line's driver in place of the study's, as a simulation, or with the
    user's own targets. Exits with all errors if there are any."""
    _refuse_notebook(name)
    if simulated and driver is not None:
        leave(Exit.USAGE, "--driver: the sim lab does no I/O that a driver could do; leave it out")
    if simulated and targets:
        leave(Exit.USAGE, "--with-target: the simulated targets are iotax's own; leave it out")
    try:
        study, source, said = _read(name, simulated=simulated, targets=targets)
    except ValueError as error:
        leave(Exit.USAGE, f"--with-target: {error}")
    except StudyError as error:
        for line in error.lines():
            say(line, err=True)
        raise typer.Exit(Exit.USAGE) from None
    if name in builtin_studies() and Path(name).is_file():
        said.append(f"{name} is a built-in study, and the file {name} here was not read; for that say ./{name}")
    for line in [*notes(source), *said]:
        say(f"note: {line}", err=True)
    if driver is not None and study.lab.vm is not None:
        leave(
            Exit.USAGE,
            f"{name}: --driver: chooses how the loopback lab's processes do I/O; in the vm lab the guests' kernels are "
            "the initiators, so leave it out",
        )
    if driver is not None:
        name = "loopback" if study.lab.hosts is None else "hosts"
        changed = getattr(study.lab, name).model_copy(update={"driver": driver})
        study = study.model_copy(update={"lab": study.lab.model_copy(update={name: changed})})
    return study, source


def _read(name: str, *, simulated: bool, targets: Sequence[str]) -> tuple[Study, str, list[str]]:
    if simulated:
        return load_simulated(name)
    return (*(load_with_targets(name, targets) if targets else load_study(name)), [])


def within_time(study: Study, source: str, time_s: float) -> tuple[Study, str]:
    """The study limited to this duration, and its text, which says so. Exits with the reason if that is impossible."""
    from iotax.design.shape import within

    duration = format_duration(round(time_s * 1e9))
    try:
        found = within(study, round(time_s * 1e9))
    except ValueError as error:
        leave(Exit.USAGE, f"--time {duration}: {error}")
    design, own = found.study.design, study.design
    assert design.slice is not None and own.slice is not None
    shape = f"{design.replicates} sessions of {design.rounds} rounds, slices of {show_time(design.slice)}"
    before = f"{own.replicates} of {own.rounds}, {show_time(own.slice)}"
    wide = (
        f"intervals about {found.wider:.1f} times as wide: smaller differences than with the whole study stay "
        "inconclusive"
        if found.wider > _AS_WIDE
        else "intervals as narrow as the study's own, or narrower"
    )
    say(f"note: --time {duration}: {shape}, in place of {before}; {wide}", err=True)
    return found.study, f"# iotax run --time {duration}: {shape}\n{source}"


def _refuse_notebook(name: str) -> None:
    """Says what a notebook holds if one was named in place of a study file."""
    path = Path(name)
    if path.suffix != ".iotax" or not path.is_file():
        return
    from iotax.notebook import Notebook, NotebookError
    from iotax.study.imported import ImportedStudy

    try:
        with Notebook(path) as notebook:
            study = notebook.study()
    except NotebookError as error:
        leave(Exit.NOTEBOOK, str(error))
    if isinstance(study, ImportedStudy):
        leave(Exit.USAGE, study.no_plan)
    leave(
        Exit.USAGE, f"{path} is a notebook, not a study; to continue it, run its study: iotax run {study.name} {path}"
    )


def open_notebook(path: Path | None, instead: str = "") -> Notebook:
    """The notebook named, or the newest in out/. Exits with the reason if there is none, and names alternatives."""
    if path is None:
        found = sorted(OUT.glob("*.iotax"), key=lambda each: each.stat().st_mtime)
        if not found:
            leave(Exit.NOTEBOOK, f"no notebook in {OUT}/; `iotax run` creates one, or name one{instead}")
        path = found[-1]
    try:
        return Notebook(path)
    except NotebookError as error:
        leave(Exit.NOTEBOOK, str(error))
