"""The metrics for a monitoring system: growing counts, and the current state."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from iotax.labs.base import HostSample, Sample
from iotax.live.metrics import Family, Labels
from iotax.trial import Attempt, Trial, TrialResult

BOUNDS_NS = (*(step * 10**power for power in range(3, 10) for step in (1, 2, 5)), 10**10)
"""Upper ends of the histogram's buckets: 1, 2, 5 from 1 µs to 10 s."""


@dataclass
class _Latency:
    """Latencies of all I/Os of finished trials. A bucket holds values above the bound before it."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_NS) + 1))
    sum_ns: int = 0

    def add(self, result: TrialResult) -> None:
        for value_ns, count in result.latency_counts().items():
            self.buckets[bisect.bisect_left(BOUNDS_NS, value_ns)] += count
        self.sum_ns += result.read.latency_sum_ns + result.write.latency_sum_ns


class Tally:
    """Counts of one run of a study, by protocol and host. The board's lock guards it."""

    def __init__(self, study: str, *, simulated: bool) -> None:
        self._of = {"study": study} | ({"simulated": "true"} if simulated else {})
        self._attempts: Counter[str] = Counter()
        self._ios: Counter[tuple[str, str, str]] = Counter()
        self._bytes: Counter[tuple[str, str, str]] = Counter()
        self._latency: dict[tuple[str, str], _Latency] = {}
        self._flagged: dict[str, int] = {}
        self._now: dict[str, tuple[Trial, Sample]] = {}

    def start(self, trials: Sequence[Trial]) -> None:
        del trials
        self._now.clear()

    def sample(self, trial: Trial, sample: Sample) -> None:
        self._now[trial.id] = (trial, sample)

    def find(self, flagged: Mapping[str, tuple[int, str]]) -> None:
        self._flagged = {check: count for check, (count, _) in flagged.items()}

    def end(self, attempt: Attempt) -> None:
        self._now.clear()
        self._attempts[attempt.status] += 1
        result = attempt.result
        if attempt.status != "done" or result is None:
            return
        protocol = _protocol(attempt.trial)
        for direction, stream in (("read", result.read), ("write", result.write)):
            self._ios[protocol, "", direction] += stream.ios
            self._bytes[protocol, "", direction] += stream.bytes
        for client in result.clients:
            self._ios[protocol, client.host, "any"] += client.ios
            self._bytes[protocol, client.host, "any"] += client.bytes
        if result.latency_known == "histogram":
            self._latency.setdefault((protocol, ""), _Latency()).add(result)

    def families(self, done: int, planned: int, left_s: float | None) -> list[Family]:
        """The metrics in the form of `/metrics`."""
        study = self._of
        now: list[tuple[Labels, Sample | HostSample]] = []
        for trial, sample in self._now.values():
            now.append((self._labels(_protocol(trial), trial=trial.id), sample))
            now += [(self._labels(_protocol(trial), each.host, trial.id), each) for each in sample.hosts]
        found = [
            Family("iotax_trials_planned", "gauge", "Trials of the plan.", [(study, planned)]),
            Family("iotax_trials_done", "gauge", "Trials that have a result.", [(study, done)]),
            Family(
                "iotax_attempts_total",
                "counter",
                "Attempts that ended, by how.",
                [({**study, "status": status}, count) for status, count in self._attempts.items()],
            ),
            Family(
                "iotax_ios_total",
                "counter",
                "I/Os completed within the windows of finished trials; host is empty for all hosts together.",
                [(self._directed(*key), count) for key, count in self._ios.items()],
            ),
            Family(
                "iotax_io_bytes_total",
                "counter",
                "Bytes of these I/Os.",
                [(self._directed(*key), count) for key, count in self._bytes.items()],
            ),
            Family(
                "iotax_flagged_runs",
                "gauge",
                "Runs that a check of validity flagged.",
                [({**study, "check": check}, count) for check, count in self._flagged.items()],
            ),
            Family(
                "iotax_iops",
                "gauge",
                "I/Os per second of the trial under way; host is empty for all hosts together.",
                [(of, s.rate_iops) for of, s in now],
            ),
            Family(
                "iotax_latency_quantile_seconds",
                "gauge",
                "Latency of the trial under way, in its latest interval.",
                [
                    ({**of, "quantile": quantile}, value_ns / 1e9)
                    for of, sample in now
                    for quantile, value_ns in (("0.5", sample.latency_p50_ns), ("0.99", sample.latency_p99_ns))
                    if value_ns is not None
                ],
            ),
            Family(
                "iotax_cpu_cores",
                "gauge",
                "Processors that a role kept busy lately in the trial under way, background included.",
                [
                    ({**self._labels(_protocol(trial), trial=trial.id), "role": role}, cores)
                    for trial, sample in self._now.values()
                    for role, cores in sample.cores.items()
                ],
            ),
            self._histogram(),
        ]
        if left_s is not None:
            found.append(Family("iotax_left_seconds", "gauge", "Expected until the plan ends.", [(study, left_s)]))
        return [family for family in found if family.samples]

    def _histogram(self) -> Family:
        """Classic buckets: how many took at most so long."""
        samples: list[tuple[Labels, float, str]] = []
        for (protocol, host), latency in self._latency.items():
            of, seen = self._labels(protocol, host), 0
            bounds = [f"{bound / 1e9:g}" for bound in BOUNDS_NS] + ["+Inf"]
            for bound, count in zip(bounds, latency.buckets, strict=True):
                seen += count
                samples.append(({**of, "le": bound}, seen, "_bucket"))
            samples += [(of, latency.sum_ns / 1e9, "_sum"), (of, seen, "_count")]
        return Family("iotax_latency_seconds", "histogram", "Latency of the I/Os of finished trials.", samples)

    def _labels(self, protocol: str, host: str = "", trial: str | None = None) -> Labels:
        return self._of | {"protocol": protocol, "host": host} | ({"trial": trial} if trial else {})

    def _directed(self, protocol: str, host: str, direction: str) -> Labels:
        return {**self._labels(protocol, host), "direction": direction}


def _protocol(trial: Trial) -> str:
    return str(trial.treatment.get("protocol", ""))
