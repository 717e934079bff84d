"""Results of several hosts, together and each alone, treatment by treatment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean, geometric_mean

from iotax.analysis.common_window import common_window
from iotax.analysis.summary import CellSummary, Summary


@dataclass(frozen=True)
class Clients:
    """Geometric means over the runs of one treatment, as its other figures."""

    cell: CellSummary
    total_iops: float
    rates_iops: dict[str, float]
    """Host → its I/Os per second."""
    cpu_per_io_ns: dict[str, float]
    """Role → CPU time of all its hosts per I/O of all clients; roles that nothing was read of are missing."""
    stragglers: dict[str, int] = field(default_factory=dict)
    """Host → in how many runs it shortened the common window most, so that rates over it differ."""

    @property
    def fairness(self) -> float:
        """Jain's index: 1 where every host does as much, 1/n where one does all (Jain, Chiu, Hawe 1984, DEC-TR-301)."""
        rates = self.rates_iops.values()
        squares = sum(rate**2 for rate in rates)
        return sum(rates) ** 2 / (len(rates) * squares) if squares else 1.0


def clients_of(summary: Summary) -> list[Clients]:
    """In the order of the treatments; empty if no trial had several hosts."""
    found = []
    for cell in summary.cells:
        runs = [run for run in cell.runs if run.result.clients]
        if not runs:
            continue
        hosts = dict.fromkeys(client.host for run in runs for client in run.result.clients)
        rates = {
            host: _mean(
                client.ios / client.duration_ns * 1e9
                for run in runs
                for client in run.result.clients
                if client.host == host
            )
            for host in hosts
        }
        costs = {}
        for role in ("initiator", "target", "hypervisor"):
            known = [cost for run in runs if (cost := run.result.cpu_per_io_ns(role)) is not None]
            if known:
                costs[role] = _mean(known)
        windows = [window for run in runs if (window := common_window(run.result)) is not None]
        late = Counter(each.stragglers[0].host for each in windows if each.differing or not each.duration_ns)
        found.append(Clients(cell, _mean(run.result.rate_iops for run in runs), rates, costs, dict(late)))
    return found


def _mean(values: Iterable[float]) -> float:
    """A run without I/Os has no geometric mean."""
    known = list(values)
    return geometric_mean(known) if min(known) > 0 else fmean(known)
