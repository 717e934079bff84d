"""Instructions per simulated I/O stay within the limits in the repository, with 160 loads as with 16."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from bench import simulated
from bench.process import program


def test_all_instructions_are_read_from_the_last_line() -> None:
    assert simulated.summary("events: Ir\nfn=main\n10 5\nsummary: 94524584\n") == 94524584
    with pytest.raises(ValueError, match="no output of cachegrind"):
        simulated.summary("events: Ir\n")


@pytest.mark.long  # its program takes longer to build than to count
@pytest.mark.parametrize("row", list(simulated.limits()))
def test_a_simulated_io_takes_no_more_instructions_than_allowed(
    row: str, available: Callable[[], AbstractContextManager[None]]
) -> None:
    with available():
        program("valgrind", "valgrind")
    assert simulated.count(row) <= simulated.limits()[row]
