"""`iotax init` on a terminal: asks six questions and writes the study."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import typer

from iotax.cli import quantity
from iotax.cli.letters import echo
from iotax.study.versus import RW, Asked, VersusError, study_text, targets_of

if TYPE_CHECKING:
    from iotax.design.shape import Shape

_Value = TypeVar("_Value")
_SIZE_BYTES = 512 << 20


def on_terminal() -> bool:
    """Whether a user can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def asked_study() -> str:
    """The text of a study. After an invalid answer it gives the reason and asks again."""
    from iotax.design.shape import SETTLE_NS, SLICE_NS

    echo("Six questions; Enter takes what stands in brackets.")
    targets = _ask(
        "1. Compare which protocols or endpoints? The first is the baseline\n"
        "   (local, nfs3, iscsi, nvme-tcp, or nfs://…, iscsi://…, nvme-tcp://…, /dev/…)\n  ",
        "iscsi nvme-tcp",
        lambda text: targets_of(shlex.split(text.replace(",", " "))),
    )
    rw = _ask(f"2. Which accesses? ({', '.join(RW)})\n  ", "randrw", _pattern)
    share = 50.0
    if RW[rw][0] is None:
        share = _ask("3. Share of reads", "75%", quantity.percent)
    else:
        echo(f"3. Share of reads: {rw} has it already.")
    block_bytes = _ask("4. Block size", "4KiB", quantity.size_bytes)
    outstanding = _ask("5. Outstanding I/Os", "32", _count)
    shape = _ask("6. How long may it take?", "2min", lambda text: _shape(len(targets), text))
    asked = Asked(rw, share, block_bytes, outstanding, 1, _SIZE_BYTES)
    return study_text(
        targets,
        asked,
        command="iotax init",
        sessions=shape.sessions,
        rounds=shape.rounds,
        slice_ns=SLICE_NS,
        settle_ns=SETTLE_NS,
    )


def _ask(question: str, default: str, read: Callable[[str], _Value]) -> _Value:
    while True:
        answer = typer.prompt(question, default=default)
        try:
            return read(answer)
        except (VersusError, ValueError, typer.BadParameter) as error:
            echo(f"   {getattr(error, 'message', error)}")


def _pattern(text: str) -> str:
    if text not in RW:
        raise ValueError(f"found {text!r}: write one of {', '.join(RW)}")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f"found {text!r}: write a whole number above 0")
    return int(text)


def _shape(treatments: int, text: str) -> Shape:
    from iotax.design.shape import best_shape

    return best_shape(treatments, round(quantity.seconds(text) * 1e9))
