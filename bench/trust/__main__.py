"""`make statistics`: A/A runs, quiet and disturbed, and runs with a known cost put in: over real sockets here, between
two hosts over SSH, and over a kernel's paths in a virtual machine."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.trust.cases import CASES, LOOPBACK, SLICE_MS, SSH, Case, Hosts, neighbour
from bench.trust.kept import Kept, read
from bench.trust.measure import measure
from bench.trust.precision import measure_quick
from bench.trust.table import lines, precision_lines, put
from iotax.engine import find_engine
from iotax.environment import environment
from iotax.units import show_minutes

_PILOTS = 3
_QUICK = "quick study"
_QUICK_S = 180.0
_TOLD_S = 60.0
"""Interval of progress messages without a terminal."""


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    kept = read(asked.read or asked.json)
    if not asked.read:
        design = {
            "sessions": asked.sessions,
            "injected_sessions": asked.injected_sessions,
            "rounds": asked.rounds,
        }
        if kept.design and not design.items() <= kept.design.items():
            sys.exit(f"{asked.json} holds runs of another design, {kept.design}: name another file, or the same design")
        try:
            _work(asked, kept, design)
        except KeyboardInterrupt:
            goes_on = f"; the same command goes on from {asked.json}" if asked.json else ""
            print(f"stopped{goes_on}", file=sys.stderr)
            return 130
    for where in SLICE_MS:
        if table := _table(where, kept):
            print("\n".join(table))
            if asked.page:
                put(asked.page, where, table)
    return 0


def _table(where: str, kept: Kept) -> list[str]:
    sessions, injected, rounds = (kept.design.get(key, "?") for key in ("sessions", "injected_sessions", "rounds"))
    design = f"{sessions} sessions ({injected} with an injected difference) of {rounds} rounds"
    return [
        *lines(where, kept.runs, environment(find_engine()), design),
        *(precision_lines(kept.precisions) if where == LOOPBACK else []),
    ]


def _work(asked: argparse.Namespace, kept: Kept, design: dict[str, int]) -> None:
    """Runs everything requested that is not stored yet, within the time limit. Stores each run when it ends."""
    hosts = Hosts(*asked.hosts) if asked.hosts else None
    usual = {LOOPBACK} | ({SSH} if hosts else set())
    chosen = (
        asked.only.split(",") if asked.only else [*(case.key for case in CASES if case.where in usual), "precision"]
    )
    began_s = time.monotonic()
    until_s = began_s + asked.minutes * 60 if asked.minutes else float("inf")
    kept.add_design(**design)
    if "precision" in chosen and not kept.precisions and time.monotonic() + _QUICK_S > until_s:
        _tell(f"{_QUICK}: left out, since it takes {show_minutes(_QUICK_S)}")
    elif "precision" in chosen and not kept.precisions:
        _tell(f"{_QUICK}: about {show_minutes(_QUICK_S)}")
        if (found := measure_quick()) is None:
            _tell(f"{_QUICK}: a trial failed")
        else:
            kept.add_precision(found)
    cases = [case for case in CASES if case.key in chosen]
    if hosts is None and any(case.where == SSH for case in cases):
        sys.exit("cases over SSH need two hosts: --hosts INITIATOR TARGET ADDRESS")
    if any(case.injected == "burn" for case in cases) and "burn_ns" not in kept.design:
        _tell("pilot: what an I/O costs here")
        kept.add_design(burn_ns=_pilot(design))
    wanted = {case.key: asked.injected if case.injected else asked.runs for case in cases}
    failed = dict.fromkeys(wanted, 0)
    ran, started_s, told_s = 0, time.monotonic(), 0.0
    while left := [case for case in cases if len(kept.runs.get(case.key, [])) + failed[case.key] < wanted[case.key]]:
        each_s = (time.monotonic() - started_s) / ran if ran else 0.0
        if time.monotonic() + each_s > until_s:
            _tell("the time is over")
            return
        # Cases take turns, so that no case gets a quieter hour, and the table is balanced wherever it is cut short.
        case = min(left, key=lambda case: len(kept.runs.get(case.key, [])) / wanted[case.key])
        number = kept.next_number(case.key) + failed[case.key]
        with neighbour(case):
            run = measure(case, number, burn_ns=kept.design.get("burn_ns", 0), hosts=hosts, **_slices(case, design))
        ran += 1
        if run is None:
            failed[case.key] += 1
            _tell(f"{case.key} {number + 1}: a trial failed")
            continue
        kept.add_run(case.key, run)
        if sys.stderr.isatty() or time.monotonic() - told_s > _TOLD_S:
            told_s = time.monotonic()
            _tell_progress(kept, wanted, (told_s - started_s) / ran, until_s - told_s)


def _slices(case: Case, design: dict[str, int]) -> dict[str, int]:
    """Sessions and rounds of one run. A difference of 5 % needs many."""
    return {"sessions": design["injected_sessions" if case.injected else "sessions"], "rounds": design["rounds"]}


def _tell_progress(kept: Kept, wanted: dict[str, int], each_s: float, most_s: float) -> None:
    done = {key: len(kept.runs.get(key, [])) for key in wanted}
    left_s = min(most_s, each_s * sum(wanted[key] - done[key] for key in wanted))
    counts = ", ".join(f"{key} {done[key]}/{count}" for key, count in wanted.items())
    _tell(f"{counts}; {each_s:.1f} s a run, about {show_minutes(left_s)} left")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _pilot(design: dict[str, int]) -> int:
    """5 % of the CPU time per I/O of both sides on this machine, in ns."""
    case: Case = CASES[0]
    runs = [measure(case, number, burn_ns=0, hosts=None, **_slices(case, design)) for number in range(_PILOTS)]
    return round(1e3 * 0.05 * statistics.median(run.base_us["cpu"] for run in runs if run))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.trust", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="in which nothing differs, quiet and disturbed (200)")
    parser.add_argument("--injected", type=int, default=100, help="with a known cost or delay (100)")
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--injected-sessions", type=int, default=8, help="of a run with a known cost or delay (8)")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--minutes", type=float, help="ends after so long, with the runs that there are by then")
    parser.add_argument(
        "--only",
        metavar="CASES",
        help=f"of {', '.join(case.key for case in CASES)}, precision, by commas "
        f"(all but those of a virtual machine, and but those over SSH without --hosts)",
    )
    parser.add_argument(
        "--hosts",
        nargs=3,
        metavar=("INITIATOR", "TARGET", "ADDRESS"),
        help="two hosts, as SSH names them, and where the target serves",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps every run as it ends, and goes on from them")
    parser.add_argument("--from", dest="read", type=Path, metavar="FILE", help="of --json: measure nothing")
    parser.add_argument("--page", type=Path, metavar="FILE", help="puts the tables into docs/results/statistics.md")
    return parser


if __name__ == "__main__":
    sys.exit(main())
