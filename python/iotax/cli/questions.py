"""`iotax init`: the study that it writes, and on a terminal the six questions that it asks before."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import typer

from iotax.cli import options
from iotax.cli.letters import echo
from iotax.study.model import NAME
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
        share = _ask("3. Share of reads", "75%", options.percent)
    else:
        echo(f"3. Share of reads: {rw} has it already.")
    block_bytes = _ask("4. Block size", "4KiB", options.size_bytes)
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

    return best_shape(treatments, round(options.seconds(text) * 1e9))


_SCHEMA = "# yaml-language-server: $schema=study.schema.json\n"


def from_study(text: str, name: str) -> str:
    """A built-in study as a user's own file, named after the file if that is a valid name."""
    if re.fullmatch(NAME, name):
        text = re.sub(r"^name: .*$", f"name: {name}", text, count=1, flags=re.MULTILINE)
    return _SCHEMA + text


TEMPLATE = f"""\
{_SCHEMA}\
name: my-study
question: What does each 4 KiB I/O cost over iSCSI and NVMe/TCP?

# Where trials run. loopback: this machine, in user space, without root. To set more, write it as
# lab: {{loopback: {{driver: epoll, threads: 2}}}}
lab: loopback

# The volume behind every embedded protocol. media: memory, file (with `path:`), model (with `service:`) or null.
# refill puts the pattern back: never, before each block, or before each trial.
volume: {{size: 512MiB, media: memory, fill: pattern, refill: block}}

# What varies. Any field of load, volume or connection can stand here, with a list of levels; then leave it out below.
# Levels of protocol are embedded (local, nfs3, iscsi, nvme-tcp), or labels with endpoints of your own:
#   protocol:
#     array-nvme: "nvme-tcp://192.0.2.10:4420/nqn.2014-08.org.example:vol1?ns=1"
#     array-iscsi: "iscsi://192.0.2.10/iqn.2001-05.org.example:vol1/0"
#     filer: "nfs://192.0.2.11/export/file"
#     disk: /dev/nvme1n1
# iotax writes only to what holds zeros or its own pattern, unless `--destroy ENDPOINT` names that very endpoint.
factors:
  protocol: [local, iscsi, nvme-tcp]
  outstanding: [1, 8, 32]

# fio's words: outstanding is iodepth, workers is numjobs. Total outstanding I/O = workers x outstanding.
load:
  block_size: 4KiB      # k, m, g are binary
  read: 75%
  random: 100%
  warmup: 1s
  runtime: 5s
  verify: true          # check the data of every read

# Each replicate is a complete block: every treatment once, in random order.
design: {{replicates: 3, blocks: replicate, seed: 42}}

baseline: {{protocol: iscsi}}         # counts as 100
responses: [iops, latency, cpu_per_io]
margin: 5%                          # what counts as equivalent, fixed before any data
"""
