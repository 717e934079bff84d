"""Simulations side by side: each is a process of its own and no clock is shared, so none can change another's result.

Trials are started before they are asked for, a few ahead, and handed out in the order in which they are asked for: what
is written down is the same, in the same order, as if they ran one after another.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TypeAlias

from iotax.labs.base import Outcome, Progress, Sample, SlicesEnded, Step
from iotax.labs.proc import memory_free_bytes
from iotax.places.waiting import Engine
from iotax.trial import Trial

_AHEAD = 2
"""Trials started or finished ahead of the requested one, for each that runs at a time: so that a long trial keeps no
processor idle, and little is lost if the run is killed."""
_MEMORY_SHARE = 2
"""The volumes of simulations may take this fraction of the free memory."""

Begun: TypeAlias = Callable[[Engine], None]
"""Hears of a simulation's process as soon as it runs."""
Simulate: TypeAlias = Callable[[Trial, Progress, Begun], Outcome]
"""Runs one trial to its end, on any thread. Raises TrialFailed."""


def at_once(volumes_bytes: int) -> int:
    """Number of simulations with volumes of this size that run at a time: one on each usable processor, as far as
    memory allows."""
    held = memory_free_bytes() // (_MEMORY_SHARE * max(1, volumes_bytes))
    return max(1, min(len(os.sched_getaffinity(0)), held))


@dataclass
class _Job:
    news: SimpleQueue[Sample | Step | SlicesEnded | None] = field(default_factory=SimpleQueue)
    """Its progress; None once it has ended."""
    future: Future[Outcome] | None = None


class SideBySide:
    """`count` at a time. Called from one thread."""

    def __init__(self, simulate: Simulate, count: int) -> None:
        self._simulate, self._ahead = simulate, _AHEAD * count
        self._threads = ThreadPoolExecutor(count, "simulation")
        self._next: deque[Trial] = deque()
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()
        self._engines: set[Engine] = set()
        self._closed = False

    def expect(self, trials: Sequence[Trial]) -> None:
        """The trials to come, in this order."""
        self._next.extend(trials)

    def outcome(self, trial: Trial, progress: Progress) -> Outcome:
        """The result of a trial, which starts now if it was not expected. Raises TrialFailed."""
        if trial in self._next:
            while (following := self._next.popleft()) != trial:
                self._jobs.pop(following.id, None)
        job = self._jobs.pop(trial.id, None) or self._begun(trial)
        for following in list(self._next)[: self._ahead]:
            if following.id not in self._jobs:
                self._jobs[following.id] = self._begun(following)
        while (news := job.news.get()) is not None:
            progress(news)
        assert job.future is not None, "begun"
        return job.future.result()

    def close(self) -> None:
        """Ends running simulations. A second call does nothing."""
        with self._lock:
            self._closed = True
            engines = list(self._engines)
        for engine in engines:
            engine.close()
        self._threads.shutdown(cancel_futures=True)

    def _begun(self, trial: Trial) -> _Job:
        job = _Job()
        job.future = self._threads.submit(self._run, trial, job)
        return job

    def _run(self, trial: Trial, job: _Job) -> Outcome:
        own: list[Engine] = []

        def begun(engine: Engine) -> None:
            with self._lock:
                too_late = self._closed
                self._engines.add(engine)
            own.append(engine)
            if too_late:
                engine.close()

        try:
            return self._simulate(trial, job.news.put, begun)
        finally:
            with self._lock:
                self._engines.difference_update(own)
            job.news.put(None)
