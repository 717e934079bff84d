"""The carrier of a protocol in a lab: if it is emulated, a comparison includes the emulation."""

from collections.abc import Iterable, Mapping

from iotax.analysis.data import Cell
from iotax.analysis.responses import Run
from iotax.analysis.verdict import Cause, Withheld
from iotax.records import Carrier

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


def between(arm: Carrier, baseline: Carrier) -> Withheld | None:
    """Why two treatments get no verdict: at least one has an emulated carrier, and the other not the same."""
    if arm == baseline or not (arm.emulated or baseline.emulated):
        return None
    return Withheld(Cause.CARRIER, described(arm), described(baseline))
