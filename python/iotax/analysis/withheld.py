"""Comparisons that are not judged: responses that a study sets, and arms without a verdict against the baseline. One
reason is the carrier of a protocol in a lab: if it is emulated, a comparison includes the emulation."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from iotax.analysis.data import Cell, Grid
from iotax.analysis.responses import (
    ASKED,
    BANDWIDTH,
    CPU,
    CPU_INITIATOR,
    CPU_TRANSACTION,
    CPU_TRANSACTION_INITIATOR,
    IOPS,
    LATENCY,
    LONGEST_GAP,
    ROLE_OF,
    TRANSACTIONS,
    Response,
    Run,
    counted,
)
from iotax.analysis.verdict import Cause, Withheld
from iotax.records import Carrier, CpuRole, Lack

_RATES = (IOPS, BANDWIDTH, TRANSACTIONS)


def imposed(response: Response, runs: Sequence[Run]) -> bool:
    """Whether the study set what the response would measure: the throughput of an open loop is an input. The achieved
    share of the offered rate is a separate finding (`validity`)."""
    return response in _RATES and any(run.result.open is not None for run in runs)


def chosen(words: Sequence[str], runs: Sequence[Run]) -> list[Response]:
    """The responses that answer a study, the primary first.

    If a target's CPU time cannot be measured, the initiator's stands for both. A rate set by the study answers nothing:
    if it was listed first, CPU per I/O leads, and latency is added.
    """
    database = any(run.result.database is not None for run in runs)
    whole, alone = (CPU_TRANSACTION, CPU_TRANSACTION_INITIATOR) if database else (CPU, CPU_INITIATOR)
    cpu = whole if all(whole.of(run) is not None for run in runs) else alone
    asked = [_of_load(ASKED[word], database=database) for word in words if word in ASKED]
    kept = [cpu if response is whole else response for response in asked if not imposed(response, runs)]
    if len(kept) < len(asked):
        first = [cpu] if imposed(asked[0], runs) else []
        kept = [*first, *(response for response in kept if response not in first)]
        kept += [] if LATENCY in kept else [LATENCY]
    return [response for response in kept if any(response.of(run) is not None for run in runs)]


def _of_load(response: Response, *, database: bool) -> Response:
    """A role's CPU per transaction where the load counts these."""
    return counted(response, database=database) if response.key in ROLE_OF else response


@dataclass(frozen=True)
class Unread:
    """A response that the study asks for and that no run has."""

    response: Response
    lack: Lack | None
    """The reason; None if the readings lack their processors or their window."""


def unread(words: Sequence[str], runs: Sequence[Run]) -> list[Unread]:
    """CPU time of roles that no run has, though the study asks for it."""
    database = any(run.result.database is not None for run in runs)
    asked = [_of_load(ASKED[word], database=database) for word in words if word in ASKED]
    missing = [r for r in asked if r.key in ROLE_OF and runs and all(r.of(run) is None for run in runs)]
    return [Unread(each, lack_of(ROLE_OF[each.key], runs)) for each in missing]


def lack_of(role: CpuRole, runs: Sequence[Run]) -> Lack | None:
    """Why these runs have no CPU time of a role; of several reasons the one that most of them have."""
    lacks = Counter(run.result.role(role).lack for run in runs)
    return lacks.most_common(1)[0][0] if lacks else None


def withheld(response: Response, grid: Grid, runs: Sequence[Run]) -> Mapping[str, Withheld]:
    """Arm → why it gets no verdict of this response against the baseline; arms that are judged are missing."""
    found: dict[str, Withheld] = {}
    of_arm: dict[str, list[Run]] = {}
    for run in runs:
        of_arm.setdefault(grid.arm(grid.cell(run.trial)), []).append(run)
    for arm, own in of_arm.items():
        base = of_arm.get(grid.baseline_arm, [])
        both = [*own, *base]
        if imposed(response, both):
            found[arm] = Withheld(Cause.IMPOSED)
        elif of_encryption(own) != of_encryption(base) and not response.key.startswith("cpu"):
            found[arm] = Withheld(Cause.ENCRYPTED)
        elif response.tail is not None and not response.tail.told(both):
            found[arm] = Withheld(Cause.COUNTS)
        elif response is LONGEST_GAP and all(map(_bounded, (own, base))):
            found[arm] = Withheld(Cause.BOUNDS)
    return found


def _bounded(runs: Sequence[Run]) -> bool:
    """Whether of some gap only an upper bound is known."""
    return any(run.result.gaps is not None and run.result.gaps.is_bound for run in runs)


def of_encryption(runs: Sequence[Run]) -> frozenset[str]:
    """The encryption of the links if guests' time was a count of their instructions."""
    facts = (run.result.facts for run in runs if run.result.facts.clock == "instructions")
    return frozenset(each.link.encryption for each in facts if each.link.encryption)


Carriers = Mapping[Cell, Carrier]


def carriers_of(cells: Iterable[Cell], runs: Iterable[Run]) -> Carriers:
    """The carrier that all runs of a cell had; unknown if they differ."""
    found: dict[Cell, Carrier] = {}
    for cell, run in zip(cells, runs, strict=True):
        carrier = run.result.facts.carrier
        found[cell] = carrier if found.get(cell, carrier) == carrier else Carrier()
    return found


def described(carrier: Carrier) -> str:
    """ "TCP", "software FCoE instead of hardware"."""
    if carrier.kind == "none":
        return "no transport"
    name = carrier.name or carrier.kind
    return f"{name} instead of {carrier.usual}" if carrier.emulated else name


def unlike_carriers(arm: Carrier, baseline: Carrier) -> Withheld | None:
    """Why two treatments get no verdict: at least one has an emulated carrier, and the other not the same."""
    if arm == baseline or not (arm.emulated or baseline.emulated):
        return None
    return Withheld(Cause.CARRIER, described(arm), described(baseline))
