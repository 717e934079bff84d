"""Instructions per I/O in iotax's own code stay within the limits in the repository."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from bench import instructions
from bench.process import program

COUNTS = """\
events: Ir
fl=(1) io_path.rs
fn=(10) io_path::main
10 5
cfn=(11) io_path::initiator
calls=3 20
11 3000
cfn=(12) io_path::target
calls=3 30
12 +700
cfi=(2) other.rs
cfn=(13) io_path::initiator_like
calls=1 40
13 99999
fn=(11)
20 2900
cfn=(13)
calls=1 1
21 100
fn=(10)
13 5
cfn=(11)
calls=1 20
14 1000
"""


_LONG = ("--digests", "--block", "--verify")
"""Options of rows that only `make test-long` counts."""
_QUICK = ("nfs3 read", "iscsi read", "nvme-tcp read")
"""Rows that `make test` counts; `make test-all` counts the others too."""


def _mark(row: str) -> pytest.MarkDecorator | tuple[()]:
    if any(option in row for option in _LONG):
        return pytest.mark.long
    return () if row in _QUICK else pytest.mark.slow


def test_calls_of_both_sides_are_summed_wherever_they_are_made() -> None:
    text = COUNTS.replace("+700", "700")
    assert instructions.parse(text.splitlines()) == {"initiator": 4000, "target": 700}


def test_nfs41_may_take_15_percent_more_than_nfs3() -> None:
    limits = instructions.limits()
    pairs = [(limits[row.replace("nfs4.1", "nfs3")], limits[row]) for row in limits if row.startswith("nfs4.1")]
    beyond = [(v3, v41) for v3, v41 in pairs for side in v3 if v41[side] > 1.15 * v3[side]]
    assert pairs and not beyond


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(each, marks=_mark(each)) for each in instructions.limits()],
)
def test_an_io_takes_no_more_instructions_than_allowed(
    arguments: str, available: Callable[[], AbstractContextManager[None]]
) -> None:
    with available():
        program("valgrind", "valgrind")
    allowed = instructions.limits()[arguments]
    counted = instructions.count(arguments)
    assert counted["initiator"] <= allowed["initiator"]
    assert counted["target"] <= allowed["target"]
