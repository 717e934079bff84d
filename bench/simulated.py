"""Instructions per simulated I/O: the stacks of both sides, and the simulated world around them.

One core simulates, so they determine its speed, on a busy and on a quiet machine. They leave out the effect of a core's
caches with many loads. Two runs of different length are subtracted, so the start of a world does not count.

`python -m bench.simulated` prints them next to the limits of simulated.toml.
"""

from __future__ import annotations

import re
import sys
import tempfile
import tomllib
from pathlib import Path

from bench.process import program, run
from bench.rows import asked
from bench.subjects.raw import build_example

_LIMITS = Path(__file__).with_suffix(".toml")
_MILLISECONDS = (50, 150)
"""Virtual time."""


def limits() -> dict[str, int]:
    """Protocol, number of loads, and outstanding I/Os of each (`nvme-tcp 16 4`) → limit."""
    return tomllib.loads(_LIMITS.read_text())


def count(row: str) -> float:
    """Instructions per simulated read of 4 KiB. Raises UnavailableError without valgrind."""
    valgrind, example = program("valgrind", "valgrind"), build_example("speed", "iotax-sim")
    short, long = (_run(valgrind, [example, *row.split(), str(each)]) for each in _MILLISECONDS)
    return (long[1] - short[1]) / (long[0] - short[0])


def _run(valgrind: str, command: list[str | Path]) -> tuple[int, int]:
    """I/Os completed, and instructions."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder, "counts")
        tool = ("--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={counts}")
        ios = run(valgrind, "--quiet", *tool, *command, seconds=300)
        return int(ios), summary(counts.read_text())


def summary(text: str) -> int:
    """The total of instructions in cachegrind's output."""
    found = re.search(r"^summary: (\d+)$", text, re.MULTILINE)
    if found is None:
        raise ValueError("no output of cachegrind")
    return int(found[1])


def main() -> int:
    rows = limits()
    told = "Counts the instructions of a simulated I/O; fails beyond a limit."
    beyond = 0
    for row in asked(rows, "bench.simulated", told, _LIMITS.name):
        counted = count(row)
        beyond += counted > rows[row]
        print(f"{row:16} {counted:7.0f} of {rows[row]:6}", flush=True)
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
