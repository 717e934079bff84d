"""The command line, run in this process, and its commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner, Result

from iotax.cli.app import app


def ran(*words: object) -> Result:
    """Runs the command line in this process, which avoids loading it again."""
    return CliRunner().invoke(app, [str(word) for word in words])


def commands(*, groups: bool = False) -> dict[tuple[str, ...], Any]:
    """Each command by its words, one of which may contain a dash. With `groups`, these too; `iotax` has no words."""
    found = dict(_below(get_command(app)))
    return {words: each for words, each in found.items() if groups or not hasattr(each, "list_commands")}


def _below(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield before, group
    for word in group.list_commands(None) if hasattr(group, "list_commands") else ():
        yield from _below(group.get_command(None, word), (*before, word))
