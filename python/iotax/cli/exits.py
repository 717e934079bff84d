"""Exit codes, as `iotax --help` documents them."""

from __future__ import annotations

from enum import IntEnum
from typing import NoReturn

import typer


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    LAB = 4
    NOTEBOOK = 5
    REGRESSED = 6
    UNEXPECTED = 70
    """EX_SOFTWARE of sysexits.h."""
    INTERRUPTED = 130


HELP = (
    "Exit codes: 0 done · 1 some trials failed · 2 the command or the study has an error · 3 refused, because data "
    "that iotax did not write would be lost · 4 the lab cannot run the study · 5 the notebook cannot be read or "
    "written · 6 a regression beyond the margin was found · 70 an unexpected error, a defect of iotax · 130 "
    "interrupted, run the same command again to continue"
)


def leave(code: Exit, message: str) -> NoReturn:
    """Prints the reason on standard error and exits, with the same code if the terminal is gone."""
    from iotax.cli.console import say

    say(f"iotax: {message}", err=True)
    raise typer.Exit(code)
