"""The time in which all of several hosts did I/Os, and the hosts that shortened it. It runs from the latest start to
the earliest end. If a host started late, or completed nothing after some time, the others' figures come from fewer
hosts: the rates over the common window then differ from those over the whole. Guests whose clocks run at different
paces are aligned by the clock of their host."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import variance

from iotax.trial import Client, TrialResult

INTERVALS_MIN = 4
"""Fewer tell nothing of how a rate scatters."""
DEVIATIONS = 4.0
"""Standard deviations of a difference that chance alone does not explain, even among hundreds of hosts."""
SHORTER_MIN = 0.001
"""Share of the window by which a host is looked at as a straggler."""


@dataclass(frozen=True)
class Straggler:
    """A host that did I/Os for a shorter part of the window than the others."""

    host: str
    late_ns: int
    """Its first interval with an I/O began so long after that of the first host."""
    early_ns: int
    """Its last one ended so long before that of the last host."""


@dataclass(frozen=True)
class Differing:
    """A rate that is another one over the common window."""

    host: str
    """Empty for the total."""
    whole_iops: float
    common_iops: float
    error_iops: float

    @property
    def ratio(self) -> float:
        return self.common_iops / self.whole_iops


@dataclass(frozen=True)
class CommonWindow:
    duration_ns: int
    """0 where there was no time in which all of them worked."""
    whole_ns: int
    stragglers: tuple[Straggler, ...]
    """The hosts that shorten it, the worst first."""
    differing: tuple[Differing, ...]
    """Differences beyond their error, the farthest from 1 first."""


def common_window(result: TrialResult) -> CommonWindow | None:
    """None for a single host, or where intervals are unknown or too few."""
    clients = result.clients
    if not result.ios or len(clients) < 2 or any(len(client.intervals) < INTERVALS_MIN for client in clients):
        return None
    works = [_Work(client) for client in clients]
    start_ns, end_ns = max(work.start_ns for work in works), min(work.end_ns for work in works)
    whole_ns = round(result.window.duration_ns / min(client.pace or 1.0 for client in clients))
    first_ns, last_ns = min(work.start_ns for work in works), max(work.end_ns for work in works)
    all_of_them = [
        Straggler(work.client.host, work.start_ns - first_ns, last_ns - work.end_ns)
        for work in works
        if max(work.start_ns - first_ns, last_ns - work.end_ns) > SHORTER_MIN * whole_ns
    ]
    stragglers = tuple(sorted(all_of_them, key=lambda each: -max(each.late_ns, each.early_ns)))
    common_ns = max(0, end_ns - start_ns)
    # The grid on which scatter is measured is as fine as the hosts' own intervals.
    steps = common_ns * min(len(client.intervals) for client in clients) // whole_ns
    if not common_ns or not stragglers or steps < INTERVALS_MIN:
        return CommonWindow(common_ns, whole_ns, stragglers, ())
    grid_ns = [start_ns + common_ns * step / steps for step in range(steps + 1)]
    together = [_differing("", works, grid_ns, whole_ns)] + [
        _differing(work.client.host, [work], grid_ns, whole_ns) for work in works
    ]
    known = [each for each in together if abs(each.common_iops - each.whole_iops) > each.error_iops]
    return CommonWindow(
        common_ns, whole_ns, stragglers, tuple(sorted(known, key=lambda each: -abs(math.log(each.ratio or 1e-9))))
    )


class _Work:
    """I/Os of one host, by the time since the first host's start."""

    def __init__(self, client: Client) -> None:
        self.client = client
        pace, start_ns = client.pace or 1.0, client.started_after_ns
        ends_ns = [start_ns, *(start_ns + round(at_ns / pace) for at_ns, _ in client.intervals)]
        counts = [ios for _, ios in client.intervals]
        busy = [index for index, ios in enumerate(counts) if ios]
        # A host that did nothing at all has no time in common with anybody.
        self.start_ns = ends_ns[busy[0]] if busy else ends_ns[-1]
        self.end_ns = ends_ns[busy[-1] + 1] if busy else ends_ns[0]
        self._ends_ns, self._done = ends_ns, [0, *accumulate(counts)]

    def done_by(self, at_ns: float) -> float:
        """Evenly within an interval."""
        after = bisect_left(self._ends_ns, at_ns)
        if after == 0 or after == len(self._ends_ns):
            return float(self._done[0 if after == 0 else -1])
        before_ns, after_ns = self._ends_ns[after - 1], self._ends_ns[after]
        share = (at_ns - before_ns) / (after_ns - before_ns)
        return self._done[after - 1] + share * (self._done[after] - self._done[after - 1])


def _differing(host: str, works: Sequence[_Work], grid_ns: Sequence[float], whole_ns: int) -> Differing:
    """The rates of these hosts together, and how far apart chance and their clocks can bring them.

    With a share f of the window in common, the difference is (1 - f) times that of the rates inside and outside.
    """
    done = [sum(work.done_by(at_ns) for work in works) for at_ns in grid_ns]
    counts = [after - before for before, after in pairwise(done)]
    common_s, whole_s = (grid_ns[-1] - grid_ns[0]) / 1e9, whole_ns / 1e9
    common_iops = (done[-1] - done[0]) / common_s
    whole_iops = sum(ios for work in works for _, ios in work.client.intervals) / whole_s
    # Per second; never less than counting alone gives.
    scatter = max(variance(counts) * len(counts) / common_s, common_iops)
    outside_s = max(whole_s - common_s, 0.0)
    deviation_iops = math.sqrt(scatter * outside_s / (common_s * whole_s))
    clock_s = 2 * max(work.client.clock_error_ns for work in works) / 1e9
    return Differing(host, whole_iops, common_iops, DEVIATIONS * deviation_iops + common_iops * clock_s / common_s)
