"""What a simulated I/O costs stays within the limits checked in, with 160 loads as with 16."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from bench import simulated
from bench.process import program

_LONG = (" 1 32", "fcp 16", "fc-nvme 16")
"""Of rows of the same code those that are counted by `make test-long` alone."""


def test_all_instructions_are_read_from_the_last_line() -> None:
    assert simulated.summary("events: Ir\nfn=main\n10 5\nsummary: 94524584\n") == 94524584
    with pytest.raises(ValueError, match="no output of cachegrind"):
        simulated.summary("events: Ir\n")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(each, marks=pytest.mark.long if any(more in each for more in _LONG) else ())
        for each in simulated.limits()
    ],
)
def test_a_simulated_io_takes_no_more_instructions_than_allowed(
    row: str, available: Callable[[], AbstractContextManager[None]]
) -> None:
    with available():
        program("valgrind", "valgrind")
    assert simulated.count(row) <= simulated.limits()[row]
