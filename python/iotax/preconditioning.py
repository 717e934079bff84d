"""Brings the volumes of a study into a steady state before its first trial, and writes down each step that ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from iotax.analysis.steady import Progress as Done
from iotax.analysis.steady import progress_of
from iotax.labs.base import Lab, Progress, Step
from iotax.records import Conditioning
from iotax.study.precondition import Precondition
from iotax.units import format_size


def precondition(
    asked: Precondition,
    lab: Lab,
    earlier: Sequence[Conditioning],
    invocation: int,
    keep: Callable[[Conditioning], None],
    progress: Progress,
    warn: Callable[[str], None],
) -> None:
    """Does what `earlier` steps have left to do. Raises TrialFailed."""
    steps = list(earlier)

    def add(step: Conditioning) -> None:
        keep(step)
        steps.append(step)

    for endpoint in lab.volumes():
        done = progress_of(asked, endpoint, steps, invocation)
        while not done.done:
            progress(Step(_said(asked, done)))
            kind = "fill" if done.passes_left else "round"
            started_unix_ns, began_ns = time.time_ns(), time.monotonic_ns()
            worked = lab.fill(endpoint, progress) if kind == "fill" else lab.overwrite(endpoint, done.rounds, progress)
            add(
                Conditioning(
                    endpoint=endpoint,
                    invocation=invocation,
                    kind=kind,
                    started_unix_ns=started_unix_ns,
                    duration_ns=time.monotonic_ns() - began_ns,
                    bytes=worked.bytes,
                    rate_iops=worked.rate_iops,
                )
            )
            done = progress_of(asked, endpoint, steps, invocation)
        if asked.rounds_max and not done.steady:
            warn(f"{endpoint} is not in a steady state after {done.rounds} rounds of random writes; going on")


def _said(asked: Precondition, done: Done) -> str:
    if done.passes_left:
        return f"filling {done.endpoint}, pass {asked.passes - done.passes_left + 1} of {asked.passes}"
    lately = f", {done.rate_iops:,.0f} IOPS in the last one" if done.rate_iops else ""
    writes = f"random writes of {format_size(asked.block_size)} to {done.endpoint}"
    return f"{writes}, round {done.rounds + 1} of at most {asked.rounds_max}{lately}"
