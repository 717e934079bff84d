"""Sentences about several hosts: their total and each alone."""

from __future__ import annotations

from iotax.analysis import Summary
from iotax.analysis.clients import Clients, clients_of
from iotax.units import counted, show_rate
from iotax.wording.figures import figure, title

_NAMED_MAX = 6
"""Up to this number, all hosts are named."""


def sentences(summary: Summary) -> list[str]:
    """One sentence for each treatment: the hosts, totals, lowest and highest of a host, CPU by role."""
    return [_sentence(each, summary) for each in clients_of(summary)]


def took_part(summary: Summary) -> list[str]:
    """Text beside a table of their figures: the clients, once for all treatments with the same ones, and which did less
    than the others for part of the window."""
    found = clients_of(summary)
    named = dict.fromkeys(f"{counted(len(each.rates_iops), 'client')}{_own(each)}: {_names(each)}." for each in found)
    return [
        *named,
        *(
            f"{_treatment(each)}of {counted(len(each.rates_iops), 'client')}, {host} did {summary.counts}s for a "
            f"shorter part of the window than the others in {runs} of {_runs(each)}."
            for each in found
            for host, runs in each.stragglers.items()
        ),
    ]


def _sentence(clients: Clients, summary: Summary) -> str:
    rates = clients.rates_iops
    text = f"{_treatment(clients)}{counted(len(rates), 'client')} ({_names(clients)}){_own(clients)}"
    text += f", {show_rate(clients.total_iops)} {summary.rate_unit} in total"
    if len(rates) > 1:
        least, most = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
        text += f", from {show_rate(rates[least])} ({least}) to {show_rate(rates[most])} ({most}) each"
        text += f"; fairness (Jain's index) {clients.fairness:.2f}"
    for host, runs in clients.stragglers.items():
        shorter = f"did {summary.counts}s for a shorter part of the window than the others"
        text += f"; {host} {shorter} in {runs} of {_runs(clients)}"
    costs = [f"{figure(cost / 1e3)} µs on {role}s" for role, cost in clients.cpu_per_io_ns.items()]
    said = f"{text}. CPU per {summary.counts}: {', '.join(costs)}" if costs else text
    return f"{said}; doubtful." if clients.cell.doubt.most else f"{said}."


def _names(clients: Clients) -> str:
    hosts = list(clients.rates_iops)
    return ", ".join(hosts) if len(hosts) <= _NAMED_MAX else f"{hosts[0]} to {hosts[-1]}"


def _own(clients: Clients) -> str:
    return ", each on its own volume" if clients.cell.runs[0].result.facts.volumes else ""


def _treatment(clients: Clients) -> str:
    """The number of hosts stands beside their names."""
    cell = clients.cell
    factors = cell.runs[0].trial.treatment
    levels = [level for name, level in zip(factors, cell.cell, strict=True) if name != "clients"]
    return f"{title(' · '.join(levels))}: " if levels else ""


def _runs(clients: Clients) -> str:
    return counted(len(clients.cell.runs), "run")
