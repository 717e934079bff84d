"""Combines what hosts report during a window or a session."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from iotax.labs.base import HostSample, Progress, Sample
from iotax.labs.hosts.merge import HostSeries, ObservedSecond, cpu_series
from iotax.labs.outcomes import sample_of, slices_ended
from iotax.records import CpuRole


class SessionNews:
    """Combines what hosts report during a session: for each trial the latest slices of all its clients, as far as
    reported. `clients` are a trial's, by its id."""

    def __init__(self, clients: Mapping[str, Sequence[str]], progress: Progress) -> None:
        self._clients, self._progress = clients, progress
        self._latest: dict[str, dict[str, Sample]] = {name: {} for name in clients}

    def hear(self, host: str, event: dict[str, Any]) -> None:
        """Takes any event; passes on samples and slices only."""
        if event["event"] == "kept":
            self._progress(slices_ended(event, host))
        if event["event"] != "sample":
            return
        sample = sample_of(event)
        latest = self._latest[sample.trial]
        latest[host] = sample
        if len(latest) == len(self._clients[sample.trial]):
            together = _together({name: latest[name] for name in self._clients[sample.trial]})
            self._progress(replace(together, trial=sample.trial, round=sample.round))


class Intervals:
    """`hosts` have loads. `observed` are all hosts with processors to report: which part counts for which role, without
    times yet."""

    def __init__(self, hosts: Sequence[str], observed: Sequence[HostSeries], progress: Progress) -> None:
        self._waiting: dict[str, deque[Sample]] = {host: deque() for host in hosts}
        self._observed = {each.host: each for each in observed}
        self._progress = progress

    def hear(self, host: str, event: dict[str, Any]) -> None:
        """Takes any event; passes on samples and processors only."""
        if event["event"] == "cpu" and host in self._observed:
            second = ObservedSecond.model_validate(event)
            self._observed[host] = replace(self._observed[host], seconds=[second])
        if event["event"] != "sample":
            return
        self._waiting[host].append(sample_of(event))
        while all(self._waiting.values()):
            self._progress(
                replace(_together({host: each.popleft() for host, each in self._waiting.items()}), cores=self._cores())
            )

    def _cores(self) -> dict[CpuRole, float]:
        """Processors that each role kept busy, by each host's last report; empty until all have reported."""
        of_all = cpu_series(list(self._observed.values()))
        return (
            {role: busy for role in of_all[0].busy_ns if (busy := of_all[0].cores(role)) is not None} if of_all else {}
        )


def _together(parts: dict[str, Sample]) -> Sample:
    first = next(iter(parts.values()))
    alone = len(parts) == 1
    return Sample(
        phase=first.phase,
        at_ns=first.at_ns,
        rate_iops=sum(each.rate_iops for each in parts.values()),
        latency_p50_ns=first.latency_p50_ns if alone else None,
        latency_p99_ns=first.latency_p99_ns if alone else None,
        hosts=tuple(
            HostSample(host, each.rate_iops, each.latency_p50_ns, each.latency_p99_ns) for host, each in parts.items()
        ),
    )
