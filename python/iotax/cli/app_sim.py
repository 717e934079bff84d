"""The commands of `iotax sim` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from iotax.cli import complete, quantity
from iotax.cli.options import JsonCommand, JsonFile, RunNumber, StudyName

sim = typer.Typer(
    help="Costs for simulated studies (`lab: sim`), and their limits.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@sim.callback()
def _group() -> None:
    """Costs for simulated studies (`lab: sim`), and their limits."""


_Measurements = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="NOTEBOOK",
        help="A notebook with measurements; the newest one in out/ when not given.",
        show_default=False,
        autocompletion=complete.notebooks,
    ),
]


@sim.command(cls=JsonCommand)
def costs(
    notebook: _Measurements = None,
    run: RunNumber = None,
    base: Annotated[
        str, typer.Option(metavar="TABLE", help="Where figures come from that the measurements do not tell apart.")
    ] = "loopback",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FACTOR=LEVEL,...",
            help="Make it from treatments with one of these levels alone, and show what it says of the others; may be "
            "repeated.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The table to write.")] = Path(
        "costs.yaml"
    ),
    document: JsonFile = None,
) -> None:
    """Make a table of costs from measurements.

    The table is what `costs:` of `lab: sim` names. Each figure has its interval, and says which notebook, run, date
    and machine it comes from. An existing file is not overwritten.
    """
    from iotax.cli import sim_costs as command

    command.costs(notebook, run, base, only or [], output, document)


@sim.command(cls=JsonCommand)
def predict(
    notebook: _Measurements = None,
    run: RunNumber = None,
    table: Annotated[
        str, typer.Option("--costs", metavar="TABLE", help="A built-in table of costs, or a file.")
    ] = "loopback",
    document: JsonFile = None,
) -> None:
    """Compare a table of costs with measurements.

    Simulates each treatment of a notebook at the table's costs, and shows rate and CPU per I/O beside what was
    measured: how far to trust simulations with that table. Measure what the table was not made from, on its machine.
    Keeps nothing.
    """
    from iotax.cli import sim_predict as command

    command.predicted(notebook, run, table, document)


@sim.command("what-if", cls=JsonCommand)
def what_if(
    study: StudyName,
    hosts: Annotated[
        float | None,
        typer.Option(parser=quantity.times, metavar="xN", help="So many times the clients.", show_default=False),
    ] = None,
    link: Annotated[
        int | None,
        typer.Option(
            parser=quantity.link, metavar="RATE", help="Every link of this rate, such as 25GbE.", show_default=False
        ),
    ] = None,
    mtu: Annotated[
        int | None,
        typer.Option(
            min=576, max=9216, metavar="BYTES", help="Every link of this MTU, such as 9000.", show_default=False
        ),
    ] = None,
    media: Annotated[
        float | None,
        typer.Option(parser=quantity.times, metavar="xN", help="Media so many times as fast.", show_default=False),
    ] = None,
    document: JsonFile = None,
) -> None:
    """Show what limits a simulated study, and what would next.

    Of each treatment, and what a change would bring. Simulates each treatment once as the study says and once with
    the changes; keeps nothing.
    """
    from iotax.cli import sim_what_if as command
    from iotax.labs.sim.what_if import Change

    command.what_if(study, Change(hosts, link, mtu, media), document)


@sim.command(cls=JsonCommand)
def sensitivity(study: StudyName, document: JsonFile = None) -> None:
    """Show how sensitive simulated ratios are to each assumption.

    Simulates with each assumption half as large, and half as large again. Costs, media and the links' delay, one
    after another; where the study has published figures, also how many are met. Simulates each treatment once for
    each of them; keeps nothing.
    """
    from iotax.cli import sim_sensitivity as command

    command.sensitivity(study, document)
