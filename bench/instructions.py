"""Instructions per I/O in our own code on either side, counted by callgrind.

They are the same on a busy and on a quiet machine. Two runs of different length are subtracted, so set-up does not
count. The network's part (system calls, the kernel's copies) is not included. `python -m bench.instructions` prints
them next to the limits of limits.toml.
"""

from __future__ import annotations

import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from bench.process import program, run
from bench.rows import asked
from bench.subjects.raw import build_example

_LIMITS = Path(__file__).with_name("limits.toml")
_SIDES = ("initiator", "target")
_ROUNDS = (50, 150)


def limits() -> dict[str, dict[str, int]]:
    """Arguments of `io_path` (`nvme-tcp read --depth 1`) → side → limit."""
    return tomllib.loads(_LIMITS.read_text())


def count(arguments: str) -> dict[str, float]:
    """Instructions per I/O by side. Raises UnavailableError without valgrind."""
    valgrind, example = program("valgrind", "valgrind"), build_example("io_path")
    protocol, direction, *options = arguments.split()
    short, long = (_run(valgrind, [example, protocol, direction, str(rounds), *options]) for rounds in _ROUNDS)
    ios = long[0] - short[0]
    return {side: (long[1][side] - short[1][side]) / ios for side in _SIDES}


def _run(valgrind: str, command: list[str | Path]) -> tuple[int, dict[str, int]]:
    """I/Os completed, and instructions by side."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder, "counts")
        ios = run(valgrind, "--quiet", "--tool=callgrind", f"--callgrind-out-file={counts}", *command, seconds=300)
        with counts.open() as lines:
            return int(ios), parse(lines)


def parse(lines: Iterable[str]) -> dict[str, int]:
    """Instructions within all calls of `io_path::initiator` and `io_path::target`, from callgrind's output.

    A name follows its number at its first use. A call is `cfn=`, then `calls=`, then a line that ends with the
    instructions of the call and everything below it.
    """
    sides: dict[str, str] = {}
    found = dict.fromkeys(_SIDES, 0)
    called, is_call = "", False
    for line in lines:
        if named := re.match(r"c?fn=\((\d+)\)(?: (\S+))?", line):
            number, name = named.groups()
            if name and name.startswith("io_path::") and name[9:] in _SIDES:
                sides[number] = name[9:]
            called = number if line.startswith("c") else ""
        elif is_call:
            if called in sides:
                found[sides[called]] += int(line.split()[-1])
            is_call = False
        elif line.startswith("calls="):
            is_call = True
    return found


def main() -> int:
    rows = limits()
    told = "Counts the instructions of an I/O on either side; fails beyond a limit."
    beyond = 0
    for arguments in asked(rows, "bench.instructions", told, _LIMITS.name):
        allowed = rows[arguments]
        counted = count(arguments)
        beyond += sum(counted[side] > allowed[side] for side in _SIDES)
        sides = "  ".join(f"{side} {counted[side]:7.0f} of {allowed[side]:5}" for side in _SIDES)
        print(f"{arguments:40} {sides}", flush=True)
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
