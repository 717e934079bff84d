"""The commands of `iotax sim` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from iotax.cli import options
from iotax.cli.options import (
    JsonCommand,
    JsonFile,
    Long,
    NotebookOption,
    NotebookPath,
    PlainGroup,
    RunNumber,
    StudyName,
    one_notebook,
)

sim = typer.Typer(
    cls=PlainGroup,
    help="Costs for simulated studies (`lab: sim`), and their limits.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@sim.callback()
def _group() -> None:
    """Costs for simulated studies (`lab: sim`), and their limits."""


@sim.command(cls=JsonCommand)
def costs(
    notebook: NotebookPath = None,
    notebook_option: NotebookOption = None,
    run: RunNumber = None,
    base: Annotated[
        str, typer.Option(metavar="TABLE", help="Source of the figures that the measurements cannot determine.")
    ] = "loopback",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FACTOR=LEVEL,...",
            help="Use only treatments with one of these levels, and show how well it predicts the others; may be "
            "repeated.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The table to write.")] = Path(
        "costs.yaml"
    ),
    document: JsonFile = None,
) -> None:
    """Make a cost table from measurements.

    Name the table under `lab: {sim: {costs: FILE}}`. Each figure has its interval and its source: notebook, run, date
    and machine. An existing file is not overwritten.
    """
    from iotax.cli import sim_costs as command

    command.costs(one_notebook(notebook, notebook_option), run, base, only or [], output, document)


@sim.command(cls=JsonCommand)
def predict(
    notebook: NotebookPath = None,
    notebook_option: NotebookOption = None,
    run: RunNumber = None,
    table: Annotated[
        str, typer.Option("--costs", metavar="TABLE", help="A built-in cost table, or a file.")
    ] = "loopback",
    document: JsonFile = None,
) -> None:
    """Compare a cost table with measurements.

    Simulates each treatment of a notebook with the table's costs, and shows rate and CPU per I/O beside the measured
    ones: how far to trust simulations with that table. Use measurements from the table's machine that the table was
    not made from. Keeps nothing.
    """
    from iotax.cli import sim_predict as command

    command.predicted(one_notebook(notebook, notebook_option), run, table, document)


@sim.command("what-if", cls=JsonCommand)
def what_if(
    study: StudyName,
    hosts: Annotated[
        float | None,
        typer.Option(
            parser=options.times, metavar="xN", help="Multiply the number of clients by N.", show_default=False
        ),
    ] = None,
    link: Annotated[
        int | None,
        typer.Option(
            parser=options.link, metavar="RATE", help="Give every link this rate, such as 25GbE.", show_default=False
        ),
    ] = None,
    mtu: Annotated[
        int | None,
        typer.Option(
            min=576, max=9216, metavar="BYTES", help="Give every link this MTU, such as 9000.", show_default=False
        ),
    ] = None,
    media: Annotated[
        float | None,
        typer.Option(parser=options.times, metavar="xN", help="Make media N times as fast.", show_default=False),
    ] = None,
    trunk: Annotated[
        int | None,
        typer.Option(
            parser=options.link,
            metavar="RATE",
            help="Put two switches between clients and target, with a trunk of this rate between them.",
            show_default=False,
        ),
    ] = None,
    long: Long = False,
    document: JsonFile = None,
) -> None:
    """Show what limits a simulated study, now and after a change.

    Simulates each treatment once as in the study and once with the changes. Keeps nothing.
    """
    from iotax.cli import sim_what_if as command
    from iotax.labs.sim.what_if import Change

    command.what_if(study, Change(hosts, link, mtu, media, trunk), document, long=long)


@sim.command(cls=JsonCommand)
def sensitivity(study: StudyName, long: Long = False, document: JsonFile = None) -> None:
    """Show how sensitive simulated ratios are to each assumption.

    Multiplies costs, media times and link delays, one after another, by 0.5 and by 1.5, and simulates each treatment
    once for each. If the study has published figures, it also shows how many agree. Keeps nothing.
    """
    from iotax.cli import sim_sensitivity as command

    command.sensitivity(study, document, long=long)
