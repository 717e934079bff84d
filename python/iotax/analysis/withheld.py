"""What is not judged: responses that a study imposes, and arms that get no verdict against the baseline."""

from collections.abc import Mapping, Sequence

from iotax.analysis.data import Grid
from iotax.analysis.responses import (
    ASKED,
    BANDWIDTH,
    CPU,
    CPU_INITIATOR,
    CPU_TRANSACTION,
    CPU_TRANSACTION_INITIATOR,
    IOPS,
    LATENCY,
    TRANSACTIONS,
    Response,
    Run,
)
from iotax.analysis.verdict import Cause, Withheld

_RATES = (IOPS, BANDWIDTH, TRANSACTIONS)


def imposed(response: Response, runs: Sequence[Run]) -> bool:
    """Whether the study set what the response would measure: of an open loop the throughput is an input. How much of
    the offered rate was achieved is a finding of its own (`validity`)."""
    return response in _RATES and any(run.result.open is not None for run in runs)


def chosen(words: Sequence[str], runs: Sequence[Run]) -> list[Response]:
    """The responses that answer a study which asks for these, the primary first.

    Where a target's CPU time is beyond reach, the initiator's stands in for both. An imposed rate is no answer: where
    it was asked for first, CPU per I/O leads, and latency is added.
    """
    database = any(run.result.database is not None for run in runs)
    whole, alone = (CPU_TRANSACTION, CPU_TRANSACTION_INITIATOR) if database else (CPU, CPU_INITIATOR)
    cpu = whole if all(whole.of(run) is not None for run in runs) else alone
    asked = [ASKED[word] for word in words]
    kept = [cpu if response is whole else response for response in asked if not imposed(response, runs)]
    if len(kept) < len(asked):
        first = [cpu] if imposed(asked[0], runs) else []
        kept = [*first, *(response for response in kept if response not in first)]
        kept += [] if LATENCY in kept else [LATENCY]
    return [response for response in kept if any(response.of(run) is not None for run in runs)]


def withheld(response: Response, grid: Grid, runs: Sequence[Run]) -> Mapping[str, Withheld]:
    """Arm → why it gets no verdict of this response against the baseline; arms that are judged are missing."""
    found: dict[str, Withheld] = {}
    of_arm: dict[str, list[Run]] = {}
    for run in runs:
        of_arm.setdefault(grid.arm(grid.cell(run.trial)), []).append(run)
    for arm, own in of_arm.items():
        if imposed(response, [*own, *of_arm.get(grid.baseline_arm, ())]):
            found[arm] = Withheld(Cause.IMPOSED)
    return found
