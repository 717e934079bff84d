"""The state of a run, updated by listeners and read by every connection. Nothing here compares treatments: there is no
verdict before the plan ends."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from iotax.analysis.data import PROTOCOL, Grid
from iotax.analysis.responses import Run
from iotax.analysis.validity import TITLES, Check, Severity, check_run
from iotax.expected import Clock
from iotax.labs.base import Sample, Step
from iotax.live.metrics import Family
from iotax.live.tally import Tally
from iotax.records import CPU_ROLES, CpuRole
from iotax.redaction import redact
from iotax.report.palette import looks
from iotax.study import Study
from iotax.trial import Attempt, Trial, TrialResult
from iotax.wording.figures import title

State: TypeAlias = Literal["starting", "running", "ended", "interrupted", "stopped"]
"""`ended`: the plan has ended, whatever the results of its trials. `stopped`: nothing runs the rest."""

SAMPLES_KEPT = 480
"""Four minutes at two a second: sent to a page that connects later."""
WARNINGS_KEPT = 20
_RECENT_S = 240
"""Responses that the page draws."""


@dataclass(frozen=True)
class Seen:
    """The progress of a connection: it gets later events."""

    version: int = -1
    points: int = 0
    samples: int = 0


@dataclass
class _UnderWay:
    trials: list[str]
    attempt: int
    began_s: float
    samples: dict[str, tuple[Trial, Sample, float]] = field(default_factory=dict)
    """The latest of each arm, and when it came."""


class Board:
    """One run of a study. Safe to use from several threads."""

    def __init__(self, study: Study) -> None:
        self._changed = threading.Condition()
        self._version = 0
        self._began_s = time.monotonic()
        self._study, self._grid = study, Grid(study)
        self._simulated = study.lab.sim is not None
        self._tally = Tally(study.name, simulated=self._simulated)
        self._state: State = "starting"
        self._closing, self._closed_with = False, ""
        self._clock: Clock | None = None
        self._total = self._done = 0
        self._step: Step | None = None
        self._under_way: _UnderWay | None = None
        self._points: list[dict[str, Any]] = []
        self._samples: deque[dict[str, Any]] = deque(maxlen=SAMPLES_KEPT)
        self._sampled = 0
        self._busy_seen: set[CpuRole] = set()
        """Roles with busy processors in live samples. Sessions of rounds and ESXi hosts report theirs at the end."""
        self._checks: dict[str, list[Check]] = {}
        self._warnings: deque[str] = deque(maxlen=WARNINGS_KEPT)
        self._arms = {arm: place for place, arm in enumerate(self._grid.arms)}
        self._by_id: dict[str, Trial] = {}

    def plan(self, clock: Clock | None, total: int) -> None:
        """`total` trials; the clock knows those that are left."""
        with self._change():
            self._clock, self._total, self._state = clock, total, "running"

    def extend(self, more: int) -> None:
        with self._change():
            self._total += more

    def step(self, step: Step) -> None:
        """Work beside the load."""
        with self._change():
            self._step = step

    def warn(self, message: str) -> None:
        with self._change():
            self._warnings.append(redact(message))

    def start(self, trials: Sequence[Trial], attempt: int) -> None:
        with self._change():
            self._step = None
            self._under_way = _UnderWay([each.id for each in trials], attempt, time.monotonic())
            self._busy_seen = set()
            self._by_id = {each.id: each for each in trials}
            self._tally.start(trials)

    def sample(self, sample: Sample) -> None:
        now_s = time.monotonic()
        with self._change():
            under_way = self._under_way
            if under_way is None:
                return
            self._step = None
            trial = self._by_id.get(sample.trial or under_way.trials[0])
            if trial is None:
                return
            arm = self._grid.arm(self._grid.cell(trial))
            under_way.samples[arm] = (trial, sample, now_s)
            self._busy_seen |= sample.cores.keys()
            warming = sample.phase == "warmup"
            self._keep(now_s - self._began_s, arm, sample.rate_iops, sample.cores, warmup=warming)
            self._tally.sample(trial, sample)

    def end_attempt(self, attempt: Attempt) -> None:
        # A run's checks take a millisecond: not while a connection waits for the lock.
        result = attempt.result if attempt.status == "done" else None
        checks = check_run(Run(attempt.trial, result)) if result is not None else []
        with self._change():
            self._under_way = None
            self._tally.end(attempt)
            if result is None:
                reason = f": {attempt.why}" if attempt.why else ""
                self._warnings.append(redact(f"{attempt.trial.id}: attempt {attempt.number} {attempt.status}{reason}"))
                return
            self._checks[attempt.trial.id] = checks
            # A trial that ran with fewer hosts is run again.
            self._done = len(self._checks)
            self._tally.find(self._flagged())
            self._points.append(self._point(attempt.trial, result, checks))
            self._keep_busy(attempt, result)

    def _keep(
        self, at_s: float, arm: str, rate_iops: float | None, cores: Mapping[CpuRole, float], *, warmup: bool = False
    ) -> None:
        self._sampled += 1
        self._samples.append(
            {
                "at_s": round(at_s, 2),
                "arm": self._arms.get(arm, 0),
                "iops": None if rate_iops is None else round(rate_iops),
                "warmup": warmup,
                "cores": dict(cores),
            }
        )

    def _keep_busy(self, attempt: Attempt, result: TrialResult) -> None:
        """Busy processors of the roles, for a finished run whose samples were not sent live."""
        over_time = result.cpu_over_time
        if not over_time:
            return
        ago_s = time.time() - (attempt.ended_unix_ns or time.time_ns()) / 1e9
        ended_s = time.monotonic() - self._began_s - ago_s
        end_ns = max(each.at_ns + each.duration_ns for each in over_time)
        arm = self._grid.arm(self._grid.cell(attempt.trial))
        for each in over_time:
            at_s = ended_s - (end_ns - each.at_ns - each.duration_ns) / 1e9
            untold = each.busy_ns.keys() - self._busy_seen
            cores = {role: busy for role in untold if (busy := each.cores(role)) is not None}
            if cores and at_s > time.monotonic() - self._began_s - _RECENT_S:
                self._keep(at_s, arm, None, cores)

    def end(self, state: State, words: str = "") -> None:
        """The last event."""
        with self._change():
            self._state, self._closed_with = state, redact(words)
            self._under_way = self._step = None

    def close(self) -> None:
        """Lets whoever waits go."""
        with self._change():
            self._closing = True

    @property
    def left_s(self) -> float | None:
        if self._clock is None or self._state != "running":
            return None
        return self._clock.left_s()

    @property
    def counts(self) -> tuple[int, int]:
        """Trials done, and planned."""
        return self._done, self._total

    def study(self) -> dict[str, Any]:
        """Facts that do not change."""
        endpoints = self._study.endpoints() if PROTOCOL in self._grid.compared else {}
        look = looks(self._grid.arms, {label: each.protocol for label, each in endpoints.items()})
        return {
            "name": self._study.name,
            "question": self._study.question,
            "simulated": self._simulated,
            "arms": [{"title": title(arm), "colour": look[arm].colour.name} for arm in self._grid.arms],
        }

    def wait(self, seen: Seen, timeout_s: float) -> bool:
        """Waits for news; False once the board is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._version != seen.version, timeout_s)
            return not self._closing

    def rest(self, seconds: float) -> bool:
        """Lets so long pass; False as soon as the board is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, max(0.0, seconds))
            return not self._closing

    def metrics(self) -> list[Family]:
        with self._changed:
            return self._tally.families(self._done, self._total, self.left_s)

    def news(self, seen: Seen) -> tuple[dict[str, Any], Seen]:
        """The state, and the points and samples that came since."""
        with self._changed:
            now_s = time.monotonic()
            under_way, step = self._under_way, self._step
            new_samples = min(self._sampled - seen.samples, len(self._samples))
            news = {
                "state": self._state,
                "words": self._closed_with,
                "done": self._done,
                "total": self._total,
                "left_s": self.left_s,
                "elapsed_s": now_s - self._began_s,
                "step": step.text if step else "",
                "step_fraction": step.fraction if step else None,
                "under_way": under_way.trials if under_way else [],
                "attempt": under_way.attempt if under_way else 0,
                "under_way_s": now_s - under_way.began_s if under_way else 0,
                "rates": self._rates(under_way, now_s) if under_way else [],
                "findings": [
                    {"title": TITLES[key], "flagged": flagged, "runs": len(self._checks), "example": example}
                    for key, (flagged, example) in self._flagged().items()
                ],
                "warnings": list(self._warnings),
                "points": self._points[seen.points :],
                "samples": list(self._samples)[len(self._samples) - new_samples :] if new_samples else [],
            }
            return news, Seen(self._version, len(self._points), self._sampled)

    def _rates(self, under_way: _UnderWay, now_s: float) -> list[dict[str, Any]]:
        return [
            {
                "arm": self._arms.get(arm, 0),
                "condition": self._grid.condition(self._grid.cell(trial)),
                "iops": sample.rate_iops,
                "p50_ns": sample.latency_p50_ns,
                "p99_ns": sample.latency_p99_ns,
                "hosts": [
                    {
                        "host": each.host,
                        "iops": each.rate_iops,
                        "p50_ns": each.latency_p50_ns,
                        "p99_ns": each.latency_p99_ns,
                    }
                    for each in sample.hosts
                ],
                "warmup": sample.phase == "warmup",
                "cores": dict(sample.cores),
                "round": sample.round,
                "age_s": now_s - came_s,
            }
            for arm, (trial, sample, came_s) in under_way.samples.items()
        ]

    def _point(self, trial: Trial, result: TrialResult, checks: list[Check]) -> dict[str, Any]:
        cell = self._grid.cell(trial)
        return {
            "trial": trial.id,
            "order": trial.order,
            "arm": self._arms.get(self._grid.arm(cell), 0),
            "condition": self._grid.condition(cell),
            "compared": trial.compared,
            "iops": _number(result.rate_iops),
            "p50_ns": _number(result.latency_ns(50)),
            "p99_ns": _number(result.latency_ns(99)),
            **{f"cpu_{role}_ns": result.cpu_per_io_ns(role) for role in CPU_ROLES},
            "doubts": [f"{TITLES[c.key]}: {c.text}" for c in checks if c.level >= Severity.DOUBTFUL],
            "hosts": [
                {
                    "host": each.host,
                    "iops": _number(each.ios / each.duration_ns * 1e9 if each.duration_ns else math.nan),
                    "p50_ns": each.latency_p50_ns,
                    "p99_ns": each.latency_p99_ns,
                }
                for each in result.clients
            ],
        }

    def _flagged(self) -> dict[str, tuple[int, str]]:
        """Check → the number of runs it flagged, and its finding on the latest."""
        bad = [check for checks in self._checks.values() for check in checks if check.level >= Severity.DOUBTFUL]
        count = Counter(check.key for check in bad)
        latest = {check.key: check.text for check in bad}
        return {key: (count[key], latest[key]) for key in TITLES if key in count}

    @contextlib.contextmanager
    def _change(self) -> Generator[None]:
        with self._changed:
            yield
            self._version += 1
            self._changed.notify_all()


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
