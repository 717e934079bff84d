"""What hosts tell of a window that is under way: an interval of all of them, once each has told of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from iotax.labs.base import HostSample, Progress, Sample
from iotax.labs.outcomes import sample_of


class Intervals:
    def __init__(self, hosts: Sequence[str], progress: Progress) -> None:
        self._waiting: dict[str, deque[Sample]] = {host: deque() for host in hosts}
        self._progress = progress

    def hear(self, host: str, event: dict[str, Any]) -> None:
        """Of any event; samples only are told on."""
        if event["event"] != "sample":
            return
        self._waiting[host].append(sample_of(event))
        while all(self._waiting.values()):
            self._progress(_together({host: waiting.popleft() for host, waiting in self._waiting.items()}))


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
