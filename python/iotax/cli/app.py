"""The command line: `iotax` and its groups of commands (commands.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from iotax.cli import commands, complete
from iotax.cli.exits import HELP, Exit
from iotax.cli.letters import echo, spell_out
from iotax.cli.options import PlainGroup

WAYS_IN = """\
Three ways in:

  Results you have         iotax import fio results/*.json
  (no hardware, no risk)   iotax report
                           iotax compare nfs iscsi

  Your NAS or array        iotax vs nfs://HOST/EXPORT/FILE iscsi://HOST/IQN/0
  (no root)                iotax show --long
                           iotax size --iops 70000

  Nothing at hand          iotax run quick --time 30s
  (this machine, virtual   iotax run kernel-exact
  machines, simulation)    iotax sim what-if sim-quick --hosts x4 --trunk 10GbE

`iotax doctor` says what this machine can run and what to install.
`iotax --help` lists the commands.
"""
"""The text that `iotax` prints without arguments."""

app = typer.Typer(
    cls=commands.Root,
    help="Measures what each I/O costs over NFS, iSCSI, NVMe/TCP or Fibre Channel: throughput, latency, CPU per I/O.",
    epilog=HELP,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _group(cls: type[PlainGroup], name: str, about: str, above: typer.Typer) -> typer.Typer:
    group = typer.Typer(cls=cls, help=about, no_args_is_help=True, rich_markup_mode=None)
    group.callback()(lambda: None)
    above.add_typer(group, name=name, help=about)
    return group


_lab = _group(PlainGroup, "lab", "Prepare and inspect the labs in which studies run.", app)
_group(commands.Vm, "vm", "The lab of virtual machines with real kernels.", _lab)
_group(commands.Hosts, "hosts", "The lab of your own hosts, over SSH.", _lab)
_group(commands.Sim, "sim", "Costs for simulated studies (`lab: sim`), and their limits.", app)


def _version(wanted: bool) -> None:
    if wanted:
        from iotax.version import __version__

        echo(f"iotax {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version
    if context.invoked_subcommand is None:
        echo(WAYS_IN, nl=False)
        raise typer.Exit(Exit.USAGE)


def main() -> None:
    from typer.completion import completion_init

    completion_init()
    spell_out()
    try:
        app(prog_name=complete.PROGRAM)
    except SystemExit as end:
        from iotax.cli.console import unwritten

        if unwritten:
            _cannot_say(unwritten[0], end.code or Exit.USAGE)
        raise
    except Exception as error:
        from iotax.cli.console import NO_ROOM

        if isinstance(error, OSError) and error.filename is None and error.errno in NO_ROOM:
            _cannot_say(error, Exit.USAGE)
        from iotax.cli.unexpected import report

        raise SystemExit(report(error)) from None


def _cannot_say(error: OSError, code: str | int) -> NoReturn:
    """Ends where standard output takes no more."""
    import os

    # What is left in the stream's buffer would fail again when Python ends.
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    echo(f"iotax: the output cannot be written: {error.strerror}", err=True)
    raise SystemExit(code)
