"""`make statistics`: A/A runs, quiet and disturbed, and runs with a known cost put in, over real sockets."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench.trust.cases import CASES, Case, neighbour
from bench.trust.measure import Found, Run, measure
from bench.trust.table import lines, put
from iotax.engine import find_engine
from iotax.environment import environment

_PILOTS = 6


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    runs: dict[str, list[Run]] = {}
    if asked.read:
        runs = _read(asked.read)
    else:
        for case in CASES:
            if asked.only and case.key not in asked.only.split(","):
                continue
            runs[case.key] = _all(case, asked)
    design = (
        f"Each run: {asked.sessions} sessions of {asked.rounds} rounds with slices of 50 ms; 1 outstanding I/O of "
        "4 KiB, 75 % read; NFSv3, iSCSI and NVMe/TCP in turns."
    )
    table = lines(runs, environment(find_engine()), design)
    print("\n".join(table))
    if asked.page:
        put(asked.page, table)
    return 0


def _all(case: Case, asked: argparse.Namespace) -> list[Run]:
    """The runs of a case, each written down as it ends."""
    burn_ns = _pilot(asked) if case.injected else 0
    done: list[Run] = []
    with neighbour(case):
        for number in range(asked.injected if case.injected else asked.runs):
            run = measure(case, number, burn_ns=burn_ns, sessions=asked.sessions, rounds=asked.rounds)
            if run is None:
                print(f"{case.key} {number + 1}: a trial failed", file=sys.stderr)
                continue
            done.append(run)
            if asked.json:
                with asked.json.open("a") as file:
                    file.write(json.dumps({"case": case.key, **asdict(run)}) + "\n")
            if sys.stderr.isatty() or len(done) % 20 == 0:
                print(f"{case.title}: {len(done)} runs", file=sys.stderr)
    return done


def _pilot(asked: argparse.Namespace) -> int:
    """5 % of what an I/O costs both sides here, in ns."""
    runs = [
        measure(CASES[0], number, burn_ns=0, sessions=asked.sessions, rounds=asked.rounds) for number in range(_PILOTS)
    ]
    return round(1e3 * 0.05 * statistics.median(run.base_us["cpu"] for run in runs if run))


def _read(path: Path) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {}
    for line in path.read_text().splitlines():
        told = json.loads(line)
        found = [Found(**each) for each in told["found"]]
        runs.setdefault(told["case"], []).append(Run(found, told["slices"], told["disturbed"], told["base_us"]))
    return runs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.trust", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="in which nothing differs, quiet and disturbed (200)")
    parser.add_argument("--injected", type=int, default=100, help="with a known cost (100)")
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", metavar="CASES", help="of quiet, disturbed, burn, by commas")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every run is added to it, a line each")
    parser.add_argument("--from", dest="read", type=Path, metavar="FILE", help="of --json: measure nothing")
    parser.add_argument("--page", type=Path, metavar="FILE", help="puts the table into docs/guide/statistics.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
