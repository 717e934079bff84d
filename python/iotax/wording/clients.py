"""What several hosts did together and each alone, in sentences."""

from __future__ import annotations

from iotax.analysis import Summary
from iotax.analysis.clients import Clients, clients_of
from iotax.units import counted, show_rate
from iotax.wording.figures import figure
from iotax.wording.names import title

_NAMED_MAX = 6
"""Hosts that are all named."""


def sentences(summary: Summary) -> list[str]:
    """One for each treatment: who took part, totals, the least and the most of a host, CPU by role."""
    return [_sentence(each) for each in clients_of(summary)]


def _sentence(clients: Clients) -> str:
    rates = clients.rates_iops
    names = ", ".join(rates) if len(rates) <= _NAMED_MAX else f"{next(iter(rates))} to {list(rates)[-1]}"
    # How many took part is said beside their names.
    levels = [
        level
        for name, level in zip(clients.cell.runs[0].trial.treatment, clients.cell.cell, strict=True)
        if name != "clients"
    ]
    treatment = f"{title(' · '.join(levels))}: " if levels else ""
    own = ", each on a volume of its own" if clients.cell.runs[0].result.facts.volumes else ""
    text = f"{treatment}{counted(len(rates), 'client')} ({names}){own}, {show_rate(clients.total_iops)} IOPS in total"
    if len(rates) > 1:
        least, most = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
        text += f", from {show_rate(rates[least])} ({least}) to {show_rate(rates[most])} ({most}) each"
        text += f"; fairness (Jain's index) {clients.fairness:.2f}"
    for host, runs in clients.stragglers.items():
        text += f"; {host} did I/Os for less of the window than the others in {runs} of {_runs(clients)}"
    costs = [f"{figure(cost / 1e3)} µs on {role}s" for role, cost in clients.cpu_per_io_ns.items()]
    said = f"{text}. CPU per I/O: {', '.join(costs)}" if costs else text
    return f"{said}; doubtful." if clients.cell.doubt.most else f"{said}."


def _runs(clients: Clients) -> str:
    return counted(len(clients.cell.runs), "run")
