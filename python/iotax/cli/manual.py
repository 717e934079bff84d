"""Manual pages with the same text as `--help`: `python -m iotax.cli.manual FOLDER` writes one for each command. man(7)
of groff: https://man7.org/linux/man-pages/man7/man.7.html"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from iotax.cli import complete
from iotax.cli.app import app
from iotax.version import __version__


def pages() -> dict[str, str]:
    """File name → page, of `iotax` and of each of its commands."""
    root: Any = get_command(app)
    return {f"{'-'.join(words)}.1": _page(words, command, parent) for words, command, parent in _all(root)}


def _all(root: Any) -> Iterator[tuple[list[str], Any, Any]]:
    """The command's name as words, the command, and the context above it."""
    waiting: list[tuple[list[str], Any, Any]] = [([complete.PROGRAM], root, None)]
    while waiting:
        words, command, parent = waiting.pop(0)
        yield words, command, parent
        context = _context(command, words, parent)
        waiting += [([*words, name], each, context) for name, each in _below(command, context).items()]


def _below(command: Any, context: Any) -> dict[str, Any]:
    """The commands of a group; none of a single command."""
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    return {name: command.get_command(context, name) for name in names}


def _context(command: Any, words: list[str], parent: Any) -> Any:
    return command.context_class(command, info_name=words[-1], parent=parent, **command.context_settings)


def _page(words: list[str], command: Any, parent: Any) -> str:
    context = _context(command, words, parent)
    name = "-".join(words)
    first, *rest = (part.strip() for part in (command.help or "").split("\n\n"))
    lines = [
        f'.TH "{name.upper()}" "1" "" "iotax {__version__}" "iotax"',
        ".SH NAME",
        f"{_plain(name)} \\- {_plain(first.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_plain(' '.join(words))}",
        *(_plain(piece) for piece in command.collect_usage_pieces(context)),
        ".SH DESCRIPTION",
        *_paragraphs([first, *rest]),
        *_records("ARGUMENTS", _told(command, context, "argument")),
        *_records("OPTIONS", _told(command, context, "option")),
    ]
    below = _below(command, context)
    lines += _records("COMMANDS", [(each, found.get_short_help_str(400)) for each, found in below.items()])
    lines += _epilog(command.epilog or "")
    see = [f"\\fB{_plain('-'.join([*words, each]))}\\fR(1)" for each in below] or [f"\\fB{_plain(words[0])}\\fR(1)"]
    return "\n".join([*lines, ".SH SEE ALSO", ", ".join(see)]) + "\n"


def _epilog(text: str) -> list[str]:
    """A command's examples, or the exit codes for `iotax` itself."""
    heading, _, examples = text.removeprefix("\b\n").partition("\n")
    if heading == "Example:":
        return [".SH EXAMPLES", ".nf", *(_plain(line.strip()) for line in examples.splitlines()), ".fi"]
    return [".SH EXIT STATUS", *_paragraphs([text])] if text else []


def _told(command: Any, context: Any, kind: str) -> list[tuple[str, str]]:
    """(spelling, meaning) of the arguments or options that `--help` shows."""
    chosen = [each for each in command.get_params(context) if each.param_type_name == kind]
    records = [each.get_help_record(context) for each in chosen if not getattr(each, "hidden", False)]
    return [record for record in records if record]


def _records(heading: str, records: list[tuple[str, str]]) -> list[str]:
    lines = [f".SH {heading}"] if records else []
    for written, words in records:
        lines += [".TP", f"\\fB{_plain(written)}\\fR", _plain(re.sub(r"\s+", " ", words))]
    return lines


def _paragraphs(texts: list[str]) -> list[str]:
    lines: list[str] = []
    for text in texts:
        lines += [".PP", _plain(re.sub(r"\s+", " ", text))]
    return lines


def _plain(text: str) -> str:
    """Escapes what roff would interpret; a line of text must not start with a dot or a quote."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in pages().items():
        (folder / name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
