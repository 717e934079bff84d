"""The cost of accounting for an I/O, measured alone: crates/runtime/examples/accounting.rs."""

from __future__ import annotations

import json

from bench.process import run
from bench.subjects.base import Place
from bench.subjects.raw import build_example

_RUNS = 5


def accounting_ns(place: Place) -> dict[str, float]:
    """Nanoseconds per I/O for each part: the minimum of a few runs, because other work only adds to it."""
    example = build_example("accounting")
    runs = [json.loads(run("taskset", "--cpu-list", str(place.initiator_cpu), example)) for _ in range(_RUNS)]
    return {name: min(one[name] for one in runs) for name in runs[0]}
