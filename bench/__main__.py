"""The command line of the bench: chooses cases, brings pairs up, takes turns, prints."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import table
from bench.accounting import accounting_ns
from bench.cases import Case, cases
from bench.disturbance import disturbance
from bench.document import Document, governor
from bench.files import write_random
from bench.load import Timing
from bench.page import page
from bench.process import UnavailableError
from bench.results import Result
from bench.sample import Sample
from bench.subjects.base import Place, up_beside
from bench.turns import Failure, Pair, Taken, take_alone, take_turns
from bench.versions import versions
from iotax.engine import find_engine
from iotax.environment import environment


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    command = shlex.join(["python", "-m", "bench", *(sys.argv[1:] if arguments is None else arguments)])
    if asked.read:
        document = Document.read(asked.read)
    else:
        try:
            document = _run(asked, command)
        except _WrongError as error:
            print(error, file=sys.stderr)
            return 2
    print()
    print(table.text(document))
    if asked.page:
        asked.page.write_text(page(document))
    return 0


class _WrongError(Exception):
    """The requested run is not possible on this machine."""


def _run(asked: argparse.Namespace, command: str) -> Document:
    usable = os.sched_getaffinity(0)
    if not {asked.target_cpu, asked.initiator_cpu} <= usable or asked.target_cpu == asked.initiator_cpu:
        raise _WrongError(f"two processors of {sorted(usable)} are needed: --target-cpu, --initiator-cpu")
    # If possible, the bench itself runs on other cores than the measured ones.
    others = usable - {asked.target_cpu, asked.initiator_cpu}
    if others:
        os.sched_setaffinity(0, others)
    timing = Timing(warmup_s=asked.warmup, window_s=asked.seconds)
    with tempfile.TemporaryDirectory(prefix="iotax-bench-", dir=asked.folder) as folder:
        place = Place(asked.target_cpu, asked.initiator_cpu, Path(folder), tuple(sorted(others)))
        file = place.folder / "local.img"
        chosen = [case for case in cases(file) if not asked.only or case.group in asked.only.split(",")]
        if not chosen:
            raise _WrongError(f"--only {asked.only}: there is no such group")
        if any(case.prepare is not None for case in chosen):
            write_random(file)
        document = _begun(asked.json, command)
        for case in chosen[len(document.results) :]:
            document.results.append(_measure(case, place, timing, asked.pairs))
            if asked.json:
                document.write(asked.json)
        accounting: dict[str, float] = {}
        if not asked.only or "verify" in asked.only.split(","):
            try:
                accounting = accounting_ns(place)
            except UnavailableError as reason:
                print(f"accounting: {reason}", file=sys.stderr)
    document = replace(document, accounting_ns=accounting, complete=True)
    if asked.json:
        document.write(asked.json)
    return document


def _begun(path: Path | None, command: str) -> Document:
    """The unfinished document of an earlier run of the same command, or a new one without results."""
    around = environment(find_engine())
    if path is not None and path.exists():
        with contextlib.suppress(ValueError, TypeError, KeyError):  # another file
            left = Document.read(path)
            if left.is_begun_by(command, around):
                print(f"going on with {path}, after {len(left.results)} cases", flush=True)
                return left
    return Document(command, around, governor(), versions(), {}, [], complete=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only",
        metavar="GROUPS",
        help="of nvme, iscsi, nfs, nfs41, target, initiator, raw, scale, optimisations, local, verify, by commas",
    )
    parser.add_argument("--pairs", type=int, default=5, help="undisturbed pairs of each case (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a window (3)")
    parser.add_argument("--warmup", type=float, default=0.5, help="seconds before a window (0.5)")
    parser.add_argument("--target-cpu", type=int, default=0)
    parser.add_argument("--initiator-cpu", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="for files, on a disk (/var/tmp)")  # noqa: S108
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="every sample, as it goes; the same command goes on from it"
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="the table as docs/results/performance.md")
    parser.add_argument("--from", dest="read", type=Path, metavar="FILE", help="of --json: measure nothing, print that")
    return parser


def _measure(case: Case, place: Place, timing: Timing, pairs: int) -> Result:
    theirs_name = case.theirs.name if case.theirs else None
    title = f"{case.path} {case.load}"
    print(f"{title}: {case.ours.name}" + (f" and {theirs_name}" if theirs_name else ""), flush=True)
    taken = Taken()
    skipped = None
    if case.prepare is not None:
        case.prepare()
    with contextlib.ExitStack() as up:
        try:
            ours = up.enter_context(case.ours.up(place))
            if case.theirs is not None:
                try:
                    theirs = up.enter_context(up_beside(ours, case.theirs, place))
                    taken = take_turns(ours, theirs, case.load, timing, pairs, _tell)
                except UnavailableError as reason:
                    skipped = str(reason)
                    print(f"  skipped: {reason}", flush=True)
            if not taken.pairs and not taken.failures:
                taken = take_alone(ours, case.load, timing, pairs, _tell)
        except UnavailableError as reason:
            skipped = str(reason)
            print(f"  skipped: {reason}", flush=True)
    return Result(
        case.group,
        title,
        case.ours.name,
        theirs_name,
        case.goal,
        taken.pairs,
        taken.alone,
        skipped,
        taken.failures,
        case.cpu_goal,
    )


def _tell(came: Pair | Sample | Failure) -> None:
    if isinstance(came, Pair):
        mark = f"  left out: {came.disturbance}" if came.disturbance else ""
        ours, theirs = came.ours.figures.rate_iops, came.theirs.figures.rate_iops
        print(f"  {ours:>11,.0f} {theirs:>11,.0f}  {came.ratio:5.2f}{mark}", flush=True)
    elif isinstance(came, Sample):
        reason = disturbance(came.usage)
        print(f"  {came.figures.rate_iops:>11,.0f}" + (f"  left out: {reason}" if reason else ""), flush=True)
    else:
        print(f"  {came.side} failed: {came.reason}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
