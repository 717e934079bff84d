"""What a shell completes on the command line, and the script that makes it ask. This module loads quickly: it runs at
each press of Tab."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from iotax.cli.letters import echo
from iotax.protocols import names

PROGRAM = "iotax"
_VARIABLE = "_IOTAX_COMPLETE"


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell to print the script for.")]) -> None:
    """Print a script for shell completion.

    bash: add `eval "$(iotax completion bash)"` to ~/.bashrc.
    zsh: add `eval "$(iotax completion zsh)"` to ~/.zshrc, after `compinit`.
    fish: run `iotax completion fish > ~/.config/fish/completions/iotax.fish`.
    """
    from typer.completion import get_completion_script

    echo(get_completion_script(prog_name=PROGRAM, complete_var=_VARIABLE, shell=shell.value))


def study_names(incomplete: str) -> Iterator[str]:
    """The built-in studies."""
    names = sorted(each.name for each in resources.files("iotax.studies").iterdir())
    yield from (name.removesuffix(".yaml") for name in names if name.endswith(".yaml") and name.startswith(incomplete))


def studies(incomplete: str) -> Iterator[str]:
    """The built-in studies, and study files."""
    yield from study_names(incomplete)
    yield from _files(incomplete, (".yaml", ".yml"))


def endpoints(incomplete: str) -> Iterator[str]:
    """Protocols that iotax serves itself. Shells complete paths as files."""
    yield from (name for name in names("loopback") if name.startswith(incomplete))
    if "/" in incomplete:
        yield from _files(incomplete, ("",))


def notebooks(incomplete: str) -> Iterator[str]:
    yield from _files(incomplete, (".iotax",))
    if not incomplete:
        yield from _files("out/", (".iotax",))


def import_formats(incomplete: str) -> Iterator[str]:
    """The formats that `iotax import` reads."""
    from iotax.imports.formats import FORMATS

    yield from (name for name in FORMATS if name.startswith(incomplete))


def _files(incomplete: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """Files with one of these suffixes, and folders, whose paths start with the given text."""
    folder, slash, name = incomplete.rpartition("/")
    try:
        found = sorted(Path(folder or (slash or ".")).iterdir())
    except OSError:
        return
    for each in found:
        hidden = each.name.startswith(".") and not name.startswith(".")
        if each.name.startswith(name) and not hidden:
            if each.suffix in suffixes:
                yield f"{folder}{slash}{each.name}"
            elif each.is_dir():
                yield f"{folder}{slash}{each.name}/"
