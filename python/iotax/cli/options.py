"""Arguments and options that several commands share. This module loads quickly, since every command loads it. Values
have the same syntax as in a study file: `--iops 70k`, `--margin 5%`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from iotax.cli import complete
from iotax.cli.exits import Exit, leave
from iotax.units import parse_bit_rate, parse_duration, parse_percent, parse_rate, parse_size

_Value = TypeVar("_Value")


def percent(text: str) -> float:
    return _read(parse_percent, text)


def rate(text: str) -> int:
    """I/Os per second."""
    return _read(parse_rate, text)


def seconds(text: str) -> float:
    return _read(parse_duration, text) / 1e9


def size_bytes(text: str) -> int:
    return _read(parse_size, text)


def link(text: str) -> int:
    """Bits per second: 25GbE, 25Gbit."""
    return _read(parse_bit_rate, re.sub(r"(?i)be$", "bit", text))


def times(text: str) -> float:
    """x2, 2x or 2: a factor."""
    found = re.fullmatch(r"[x×]?(\d+(?:\.\d+)?)[x×]?", text.strip())
    if found is None or not float(found[1]):
        raise typer.BadParameter(f"found {text!r}: say how many times, such as x2")
    return float(found[1])


def _read(parse: Callable[[object], _Value], text: str) -> _Value:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"found {text!r}: {error}") from None


StudyName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="A study file, or the name of a built-in study (`iotax studies`).",
        autocompletion=complete.studies,
    ),
]
NotebookPath = Annotated[
    Path | None,
    typer.Argument(
        metavar="NOTEBOOK",
        help="A notebook (*.iotax); the newest one in out/ when not given.",
        show_default=False,
        autocompletion=complete.notebooks,
    ),
]
NotebookOption = Annotated[Path | None, typer.Option("--notebook", "-n", hidden=True)]
"""The notebook to read can be an argument or an option, as for commands that write one; help shows the argument."""
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="[FILE.json]",
        help="Print JSON instead of the text; with a file, print the text and write JSON to that file.",
        show_default=False,
    ),
]
Long = Annotated[
    bool, typer.Option("--long", help="Print every table and the answer in sentences, instead of the first screen.")
]
NewNotebook = Annotated[
    Path | None,
    typer.Option("--notebook", "-n", help="Where results are kept; out/NAME.iotax when not given.", show_default=False),
]
RunNumber = Annotated[
    int | None, typer.Option("--run", help="Which run in the notebook; the latest when not given.", show_default=False)
]


def one_notebook(notebook: Path | None, option: Path | None) -> Path | None:
    if notebook is not None and option is not None:
        leave(Exit.USAGE, f"two notebooks are named, {notebook} and {option}; name one")
    return notebook or option


TimeBudget = Annotated[
    float | None,
    typer.Option(
        "--time",
        parser=seconds,
        metavar="DURATION",
        help="Time limit for the whole run, such as 30s: fewer sessions and rounds. For studies in rounds.",
        show_default=False,
    ),
]


class LabChoice(StrEnum):
    SIM = "sim"


OtherLab = Annotated[
    LabChoice | None,
    typer.Option(
        "--lab",
        help="Simulate the study instead of measuring it, under the name NAME-sim (docs/guide/simulator.md).",
        show_default=False,
    ),
]
OwnTargets = Annotated[
    list[str] | None,
    typer.Option(
        "--with-target",
        metavar="[LEVEL=]PATH",
        help="Compare your own build of SPDK's nvmf_tgt too, in the vm lab, under the name NAME-own; may be repeated.",
        show_default=False,
    ),
]
Destroy = Annotated[
    list[str] | None,
    typer.Option(
        "--destroy",
        metavar="ENDPOINT",
        help="Overwrite the data on this endpoint, written exactly as in the study; may be repeated.",
        show_default=False,
    ),
]

ToBeDestroyed = Annotated[
    list[str] | None,
    typer.Option(
        "--destroy",
        metavar="ENDPOINT",
        help="Check as if `iotax run` had this --destroy: data on this endpoint are then no obstacle; may be repeated.",
        show_default=False,
    ),
]


_SHORT_HELP = 100
"""Characters of a command's help in lists of unknown width: on the site, and in shells' completions."""


class PlainGroup(TyperGroup):
    """Lists commands with their whole first sentence."""

    def get_short_help_str(self, limit: int = _SHORT_HELP) -> str:
        return super().get_short_help_str(limit)


class PlainCommand(TyperCommand):
    """Help shows names for values of options and arguments, never Python types. Some options may lack their value: the
    next word is the value if it looks like one."""

    def get_short_help_str(self, limit: int = _SHORT_HELP) -> str:
        return super().get_short_help_str(limit)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = args[: args.index("--")] if "--" in args else args
        for at, word in enumerate(words):
            following = words[at + 1] if at + 1 < len(words) else ""
            if word in _OPTIONAL and not _OPTIONAL[word][0].fullmatch(following):
                args = [*args[:at], f"{word}={_OPTIONAL[word][1]}", *args[at + 1 :]]
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)
        for each in params:
            if each.param_type_name == "argument":
                _name_argument(each)
            elif each.metavar is None and not getattr(each, "is_flag", False):
                each.metavar = _value_name(each, ctx)
            _say_range(each)
            if isinstance(getattr(each, "show_default", None), str):
                # Typer would print it in parentheses: [default: (80%)].
                each.help, each.show_default = f"{each.help}  [default: {each.show_default}]", False
        return params


def _say_range(parameter: Any) -> None:
    """ "1 or more" or "576 to 9216" in place of a formula."""
    if parameter.min is not None:
        said = f"{parameter.min} or more" if parameter.max is None else f"{parameter.min} to {parameter.max}"
        parameter._get_number_range_help_str = lambda: said  # noqa: SLF001  # there is no public one


def _name_argument(argument: Any) -> None:
    """ "STUDY" in the list, "[NOTEBOOK]" in the usage."""
    argument.metavar = argument.metavar or argument.name.upper()
    shown = argument.metavar if argument.required else f"[{argument.metavar}]"
    for name, said in {"display_type_rich": lambda ctx: "", "_usage_display_name": lambda: shown}.items():
        setattr(argument, name, said)


def _value_name(option: Any, ctx: Any) -> str:
    """The name that help shows for an option's value."""
    if option.type_descriptor.is_choice:
        return option.display_type(ctx).strip("<>")
    kinds = {"int": "NUMBER", "float": "NUMBER"}
    return "FILE" if option.type_descriptor.is_path else kinds.get(option.bare_type(), option.name.upper())


_OPTIONAL = {"--json": (re.compile(r"-|.*\.json"), "-"), "--live": (re.compile(r"(\S+:)?\d+"), "0")}
"""What a value looks like, and the value if none is given."""
