"""The preconditioning of each volume before the first trial, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from iotax.analysis.preconditioned import progress_of
from iotax.records import Conditioning
from iotax.study.precondition import Precondition
from iotax.units import counted, format_size, show_rate
from iotax.wording.figures import percent


def preconditioned(asked: Precondition, steps: Sequence[Conditioning]) -> dict[str, str]:
    """Endpoint → how its volumes were preconditioned."""
    found = {}
    for endpoint in dict.fromkeys(each.endpoint for each in steps):
        done = progress_of(asked, endpoint, steps)
        fills = [each for each in steps if each.endpoint == endpoint and each.kind == "fill"]
        times = "once" if len(fills) == 1 else f"{len(fills)} times"
        said = f"filled {times} with {format_size(fills[0].bytes)}" if fills else "not filled"
        if done.rounds:
            state = "steady" if done.steady else "not in a steady state"
            rounds, rate = counted(done.rounds, "round"), show_rate(done.rate_iops or 0)
            said += f"; {state} after {rounds} of random writes, {rate} IOPS"
        if done.window is not None:
            said += f"; the last five lie within {percent(done.window.range_ratio)} of their mean (steady: "
            said += f"20 %), the line through them within {percent(done.window.excursion_ratio)} (10 %)"
        found[endpoint] = said
    return found
