"""Simulated studies: results in the engine's form, with effects that the tests know.

Each protocol has a path cost (CPU and latency). Beyond its knee a closed loop queues. Each run has a random factor, and
each block another one that all its runs share. All random numbers come from one seed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from closed_queue import closed_mmc
from iotax.analysis import StudyData
from iotax.analysis.search import next_trials
from iotax.design import plan as designed
from iotax.notebook import Writer
from iotax.records import Carrier, Core, CpuTime, Facts, IscsiAgreed, NothingAgreed
from iotax.study import Study
from iotax.study.facts import planned_facts
from iotax.trial import (
    Attempt,
    Background,
    Checks,
    Connected,
    CpuUse,
    Direction,
    Gaps,
    Histogram,
    Latency,
    Open,
    Outstanding,
    Second,
    Trial,
    TrialResult,
    Verify,
    Window,
)

START_UNIX_NS = 1_795_000_000_000_000_000
PREPARED_NS = 2_000_000_000
CORES = 2


@dataclass(frozen=True)
class Costs:
    """What a protocol's path costs."""

    service_us: float
    """Service time per I/O at the bottleneck."""
    think_us: float
    """Time per I/O that overlaps with other I/Os."""
    initiator_us: float
    target_us: float | None


PATHS = {
    "local": Costs(0.9, 0.0, 0.9, None),
    "nfs3": Costs(14.0, 55.0, 11.3, 15.8),
    "iscsi": Costs(8.2, 48.0, 8.1, 9.4),
    "nvme-tcp": Costs(4.1, 22.0, 3.9, 4.6),
    # At 64 KiB both use 95 % of their links.
    "fc": Costs(10.4, 30.0, 8.0, None),
    "ip": Costs(11.1, 40.0, 10.0, None),
}

QUICK: dict[str, Any] = {
    "name": "quick",
    "question": (
        "What does each 4 KiB I/O cost over NFS, iSCSI and NVMe/TCP, compared with the same volume reached locally?"
    ),
    "lab": "loopback",
    "volume": {"size": "512MiB", "media": "memory", "fill": "pattern", "refill": "block"},
    "factors": {"protocol": ["local", "nfs3", "iscsi", "nvme-tcp"], "outstanding": [1, 8, 32]},
    "load": {"block_size": "4KiB", "read": "75%", "random": "100%", "warmup": "300ms", "runtime": "4s"},
    "design": {"replicates": 3, "blocks": "replicate", "seed": 42},
    "baseline": {"protocol": "iscsi"},
    "responses": ["iops", "latency", "cpu_per_io"],
    "margin": "5%",
}

COST: dict[str, Any] = QUICK | {
    "name": "cpu-cost",
    "question": "How much CPU does each I/O cost over NFS and over iSCSI, and how many cores does a rate take?",
    "factors": {
        "protocol": ["nfs3", "iscsi"],
        "block_size": ["4KiB", "8KiB"],
        "read": ["0%", "100%"],
        "rate_iops": [1000, 2500, 4000],
    },
    "load": {"outstanding": 32, "arrivals": "poisson", "warmup": "300ms", "runtime": "2s"},
    "responses": ["cpu_per_io", "latency"],
}

SWEEP: dict[str, Any] = QUICK | {
    "name": "block-size",
    "question": "How do NFS, iSCSI and NVMe/TCP scale with the size of an I/O?",
    "factors": {
        "protocol": ["nfs3", "iscsi", "nvme-tcp"],
        "block_size": ["4KiB", "16KiB", "64KiB", "256KiB"],
        "random": ["0%", "100%"],
        "read": ["0%", "100%"],
    },
    "load": {"outstanding": 32, "warmup": "300ms", "runtime": "2s"},
}

OPEN: dict[str, Any] = QUICK | {
    "name": "open-loop",
    "question": "Up to which rate do NFS and iSCSI keep up?",
    "factors": {"protocol": ["nfs3", "iscsi"], "rate_iops": [5000, 20000, 60000, 80000]},
    "load": {"outstanding": 32, "arrivals": "poisson", "warmup": "300ms", "runtime": "2s"},
    "responses": ["latency", "iops", "cpu_per_io"],
}

KNEE: dict[str, Any] = QUICK | {
    "name": "knee",
    "question": "How many IOPS do NFS and iSCSI carry before the 99th percentile passes half a millisecond?",
    "factors": {"protocol": ["nfs3", "iscsi"], "block_size": ["4KiB", "16KiB"]},
    "load": {"outstanding": 32, "arrivals": "poisson", "warmup": "300ms", "runtime": "2s"},
    "search": {"latency_max": "500us", "rate_min": 1000, "rate_max": 200_000, "precision": "5%", "confirm": 3},
    "responses": ["latency", "iops", "cpu_per_io"],
}

BEST: dict[str, Any] = QUICK | {
    "name": "best-load",
    "question": "Which load moves most, while half of all I/Os are answered within 200 µs?",
    "factors": {"protocol": ["nfs3", "iscsi"], "workers": [1, 2], "outstanding": [1, 4, 16]},
    "load": {"warmup": "300ms", "runtime": "2s"},
    "search": {"latency_max": "200us", "percentile": 50, "confirm": 3},
}

LINKS: dict[str, Any] = QUICK | {
    "name": "links",
    "question": "Does IP carry what Fibre Channel does?",
    "factors": {"protocol": {"fc": "/dev/null", "ip": "/dev/zero"}, "block_size": ["4KiB", "16KiB", "64KiB"]},
    "links": {"fc": {"rate": "32GFC"}, "ip": {"rate": "25GbE", "mtu": 9000}},
    "load": {"outstanding": 32, "read": "100%", "warmup": "300ms", "runtime": "2s"},
    "baseline": {"protocol": "fc"},
}

GENERATORS: dict[str, Any] = QUICK | {
    "name": "generators",
    "question": "Do iotax and fio measure the same?",
    "factors": {"protocol": ["local", "iscsi"], "generator": ["iotax", "fio"], "outstanding": [1, 8, 32]},
}

ENVIRONMENT: dict[str, Any] = {
    "machine": {
        "cpu_model": "AMD EPYC 7B13",
        "cpus": CORES,
        "memory_bytes": 8 << 30,
        "kernel": "6.18.0",
        "system": "Debian 12",
    },
    "iotax": "0.1.0",
    "python": "3.11.7",
    "packages": {"altair": "6.0.0", "scipy": "1.17.1"},
    "command_line": ["iotax", "run", "quick"],
}


def study(**changes: Any) -> Study:
    """The quick study; `changes` replace whole sections."""
    return Study.model_validate({**QUICK, **changes})


@dataclass
class Simulation:
    """How much runs vary, and which trials have which fault."""

    seed: int = 1
    run_cv: float = 0.02
    block_cv: float = 0.03
    paths: Mapping[str, Costs] = field(default_factory=lambda: PATHS)
    failed: Sequence[str] = ()
    """Trials whose first attempt fails."""
    lost: Sequence[str] = ()
    """Trials whose attempts all fail."""
    wrong_data: Sequence[str] = ()
    unsteady: Sequence[str] = ()
    waiting: Sequence[str] = ()
    """Trials that waited for a processor."""
    samples: int = 8
    drawn_max: int = 20_000
    """Most latencies drawn for each trial."""

    def data(self, of: Study, trials: Sequence[Trial] = ()) -> StudyData:
        """Simulates these trials, or else the full factorial in complete blocks."""
        rng = np.random.default_rng(self.seed)
        trials = trials or plan(of, rng)
        drift = rng.lognormal(0, self.block_cv, max(of.design.replicates, *(trial.block for trial in trials)) + 1)
        at_ns = START_UNIX_NS
        attempts: list[Attempt] = []
        for trial in trials:
            tries = 2 if trial.id in (*self.failed, *self.lost) else 1
            for number in range(1, tries + 1):
                wrong = trial.id in self.lost or number < tries
                result = None if wrong else self._result(of, trial, float(drift[trial.block]), rng, at_ns)
                attempts.append(_attempt(trial, number, at_ns, result))
                at_ns += 4_700_000_000
        backgrounds = [self._background(block, rng) for block in sorted({t.block for t in trials})]
        return StudyData(of, attempts, list(trials), backgrounds, environment=ENVIRONMENT)

    def searched(self, of: Study) -> StudyData:
        """A search, from its first probe to the runs that confirm its result."""
        rng = np.random.default_rng(self.seed)
        trials: list[Trial] = []
        attempts: list[Attempt] = []
        left = list(designed(of).trials)
        while left:
            trials += left
            for trial in left:
                at_ns = START_UNIX_NS + len(attempts) * 4_700_000_000
                attempts.append(_attempt(trial, 1, at_ns, self._result(of, trial, 1.0, rng, at_ns)))
            left = next_trials(of, trials, attempts)
        return StudyData(of, attempts, trials, [], environment=ENVIRONMENT)

    def _result(self, of: Study, trial: Trial, drift: float, rng: np.random.Generator, at_ns: int) -> TrialResult:
        settings = of.settings(trial.treatment)
        label = str(trial.treatment.get("protocol", next(iter(of.endpoints()))))
        path = self.paths.get(label) or self.paths[settings.endpoint.protocol]
        noise = drift * float(rng.lognormal(0, self.run_cv))
        size_factor = 1 + 0.25 * np.log2(settings.load.block_size / 4096) if settings.load.block_size > 4096 else 1.0
        outstanding = settings.load.workers * settings.load.outstanding
        queue = closed_mmc(
            outstanding, path.service_us * noise * size_factor * 1e-6, 1, path.think_us * noise * size_factor * 1e-6
        )
        duration_s = settings.load.runtime / 1e9
        rate_iops = settings.load.rate_iops
        mean_us = outstanding / queue.throughput_per_s * 1e6
        ios = int(queue.throughput_per_s * duration_s)
        if rate_iops is not None:
            mean_us, ios, offered = self._open(rate_iops, path, noise * size_factor, duration_s)
            outstanding = 1
        reads = int(ios * settings.load.read / 100)
        cpu_noise = noise * float(rng.lognormal(0, self.run_cv / 2)) * (0.75 + 0.5 / outstanding**0.5) * size_factor
        initiator_ns = int(ios * path.initiator_us * 1e3 * cpu_noise)
        target_ns = int(ios * path.target_us * 1e3 * cpu_noise) if path.target_us is not None else None
        busy_ns = initiator_ns + (target_ns or 0) + int(0.04 * duration_s * 1e9)
        measured = TrialResult(
            engine_version="0.1.0",
            driver="io_uring",
            endpoint="local:/proc/123/fd/7"
            if settings.endpoint.protocol == "local"
            else f"{label}://127.0.0.1:40001/x",
            window=Window(start_unix_ns=at_ns + 400_000_000, start_ns=400_000_000, duration_ns=int(duration_s * 1e9)),
            read=_stream(reads, settings.load.block_size, mean_us, rng, self.drawn_max),
            write=_stream(ios - reads, settings.load.block_size, mean_us * 1.06, rng, self.drawn_max),
            cpu=CpuUse.model_validate(
                {
                    "initiator": _cpu(11, initiator_ns),
                    "target": _cpu(12, target_ns) if target_ns is not None else None,
                    "machine": _machine(busy_ns, duration_s),
                }
            ),
            open=Open(
                rate_iops=rate_iops,
                offered=offered,
                achieved=ios / offered,
                backlog_end=min(offered - ios, 65_536),
                lateness=_late(ios),
            )
            if rate_iops is not None
            else None,
            series=self._series(trial.id, ios, reads, settings.load.block_size, duration_s, mean_us, rng),
            outstanding=Outstanding(
                workers=settings.load.workers,
                per_worker=settings.load.outstanding,
                mean=ios / duration_s * mean_us * 0.999e-6,
            ),
            gaps=Gaps(longest_ns=round(20e9 * duration_s / (ios + 1)), listed_from_ns=0),
            verify=Verify(
                checked_blocks=reads * 8, never_written_blocks=0, wrong_blocks=3 if trial.id in self.wrong_data else 0
            ),
            checks=Checks(
                errors=0,
                start_skew_ns=21_000,
                run_queue_wait=0.3 if trial.id in self.waiting else 0.004,
                clock="CLOCK_MONOTONIC",
            ),
        )
        return _with_facts(measured, trial, of)

    def _open(self, rate_iops: float, path: Costs, factor: float, duration_s: float) -> tuple[float, int, int]:
        """Mean response in µs, I/Os done, I/Os offered. The one queue grows if more is offered than it serves."""
        service_us = path.service_us * factor
        busy = rate_iops * service_us * 1e-6
        offered = int(rate_iops * duration_s)
        if busy < 1:
            return path.think_us * factor + service_us * (1 + 0.05 * busy / (1 - busy)), offered, offered
        done = int(offered / busy)
        return 1e6 * duration_s * (1 - 1 / busy) / 2, done, offered

    def _series(
        self,
        trial_id: str,
        ios: int,
        reads: int,
        size_bytes: int,
        duration_s: float,
        mean_us: float,
        rng: np.random.Generator,
    ) -> list[Second]:
        share = rng.lognormal(0, 0.015, self.samples)
        if trial_id in self.unsteady:
            share *= np.linspace(1.0, 0.6, self.samples)
        share /= share.sum()
        step_ns = int(duration_s * 1e9 / self.samples)
        return [
            Second(
                at_ns=(i + 1) * step_ns,
                reads=int(reads * part),
                writes=int((ios - reads) * part),
                read_bytes=int(reads * part) * size_bytes,
                write_bytes=int((ios - reads) * part) * size_bytes,
                latency_p50_ns=int(mean_us * 900),
                latency_p99_ns=int(mean_us * 2600),
                latency_max_ns=int(mean_us * 9000),
            )
            for i, part in enumerate(share)
        ]

    def _background(self, block: int, rng: np.random.Generator) -> Background:
        busy_ns = int(1e9 * 0.04 * rng.lognormal(0, 0.1))
        return Background(
            block=block,
            started_unix_ns=START_UNIX_NS,
            duration_ns=1_000_000_000,
            cpu=CpuUse.model_validate(
                {
                    "initiator": _cpu(11, int(rng.uniform(1e4, 5e4))),
                    "target": _cpu(12, int(rng.uniform(1e4, 5e4))),
                    "machine": _machine(busy_ns, 1.0),
                }
            ),
        )


def plan(of: Study, rng: np.random.Generator) -> list[Trial]:
    """Complete blocks, each in its own random order."""
    levels = of.levels()
    treatments = [dict(zip(levels, values, strict=True)) for values in itertools.product(*levels.values())]
    trials: list[Trial] = []
    for replicate in range(1, of.design.replicates + 1):
        for i in rng.permutation(len(treatments)):
            labels = "/".join(level.label for level in treatments[i].values())
            trials.append(
                Trial(
                    id=f"{labels}/r{replicate}",
                    study=of.name,
                    treatment={name: level.value for name, level in treatments[i].items()},
                    block=replicate,
                    replicate=replicate,
                    order=len(trials) + 1,
                )
            )
    return trials


def planned(of: Study) -> list[Trial]:
    """The trials of the study's own design, in order."""
    return list(designed(of).trials)


def write_notebook(path: Path, data: StudyData) -> Path:
    """Writes the data as a notebook, with the attempts' own times. The lab was prepared in the PREPARED_NS before the
    first attempt."""
    with Writer(path) as writer, mock.patch("iotax.notebook.time.time_ns") as clock:
        clock.return_value = data.attempts[0].started_unix_ns if data.attempts else START_UNIX_NS
        run = writer.begin(data.study, data.study.model_dump_json(), "", list(data.planned))
        session = writer.begin_session(run, dict(data.environment), clock.return_value - PREPARED_NS)
        for attempt in data.attempts:
            clock.return_value = attempt.started_unix_ns
            started = writer.begin_attempt(session, run, attempt.trial)
            clock.return_value = attempt.ended_unix_ns
            writer.end_attempt(
                started,
                attempt.status,
                reason=attempt.reason,
                result=attempt.result,
                connected=attempt.connected,
                log=attempt.log,
            )
        for background in data.backgrounds:
            writer.add_background(session, run, background)
    with contextlib.suppress(FileNotFoundError):
        path.with_name(path.name + "-lock").unlink()
    return path


def counted_attempt(trial: Trial, ios: int) -> Attempt:
    """An attempt with a window of 1 s in which `ios` I/Os completed."""

    def stream(count: int) -> Direction:
        return Direction(ios=count, bytes=count * 512, latency_sum_ns=count, latency_min_ns=1, latency_max_ns=1)

    result = TrialResult(
        engine_version="0",
        driver="",
        endpoint="iscsi://",
        window=Window(start_unix_ns=trial.order, start_ns=0, duration_ns=10**9),
        read=stream(ios),
        write=stream(0),
        cpu=CpuUse.model_validate({"initiator": None}),
        outstanding=Outstanding(workers=1, per_worker=1, mean=1.0),
    )
    return Attempt(trial=trial, number=1, status="done", reason="", started_unix_ns=0, ended_unix_ns=1, result=result)


def _with_facts(result: TrialResult, trial: Trial, of: Study) -> TrialResult:
    """Adds the facts that the study's lab would record for the trial, and assigns CPU time to that lab's layers."""
    facts = planned_facts(of, of.settings(trial.treatment))
    parts = [_in_layer(each, result, facts, of) for each in result.cpu]
    if facts.lab == "vm":
        ends = ("both", "hypervisor") if _one_guest(facts) else ("initiator", "target", "hypervisor")
        parts = [each for each in parts if each.role in ends]
    return result.model_copy(update={"facts": facts, "cpu": CpuUse(parts)})


def _in_layer(part: CpuTime, result: TrialResult, facts: Facts, of: Study) -> CpuTime:
    known: dict[str, object] = {"window_ns": result.window.duration_ns}
    if facts.lab == "vm":
        assert of.lab.vm is not None
        guest = part.role in ("initiator", "target")
        known |= {"layer": "guest", "processors": of.lab.vm.cpus} if guest else {}
        known |= {"role": "both"} if part.role == "initiator" and _one_guest(facts) else {}
        known |= {"background_ns": 0}
    elif part.role == "initiator":
        known["processors"] = facts.threads
    elif part.role == "target":
        known["processors"] = facts.target_threads
    return part.model_copy(update=known)


def _one_guest(facts: Facts) -> bool:
    return facts.shared == "machine" and facts.served == "lab"


def _attempt(trial: Trial, number: int, at_ns: int, result: TrialResult | None) -> Attempt:
    if result is None:
        return Attempt(
            trial=trial,
            number=number,
            status="failed",
            reason="lost: the target closed the connection",
            started_unix_ns=at_ns,
            ended_unix_ns=at_ns + 1_200_000_000,
            log="ERROR connection reset by peer",
        )
    return Attempt(
        trial=trial,
        number=number,
        status="done",
        reason="",
        started_unix_ns=at_ns,
        ended_unix_ns=at_ns + 4_600_000_000,
        result=result,
        connected=Connected(
            driver="io_uring",
            endpoint=result.endpoint,
            size_bytes=512 << 20,
            block_size_bytes=512,
            max_io_bytes=1 << 20,
            identity={"vendor": "IOTAX", "product": "memory volume"},
            negotiated=IscsiAgreed(max_burst_bytes=1 << 20) if "iscsi" in result.endpoint else NothingAgreed(),
        ),
    )


def _stream(ios: int, size_bytes: int, mean_us: float, rng: np.random.Generator, drawn_max: int) -> Direction:
    """Latencies around their mean with a tail of stalls, in bins of three significant digits."""
    if ios == 0:
        return Direction(ios=0, bytes=0, latency_sum_ns=0, latency_min_ns=0, latency_max_ns=0)
    drawn = rng.lognormal(-0.045, 0.3, min(ios, drawn_max))
    drawn[rng.random(len(drawn)) < 0.002] *= 6
    drawn *= mean_us * 1e3 / drawn.mean()
    digits = 10.0 ** (np.floor(np.log10(drawn)) - 2)
    values, counts = np.unique((np.round(drawn / digits) * digits).astype(np.int64), return_counts=True)
    scaled = np.maximum(1, counts * ios // max(1, len(drawn)))
    scaled[np.argmax(scaled)] += ios - int(scaled.sum())
    return Direction(
        ios=ios,
        bytes=ios * size_bytes,
        errors=0,
        latency_sum_ns=int(mean_us * 1e3 * ios),
        latency_min_ns=int(values[0]),
        latency_max_ns=int(values[-1]),
        histogram=Histogram(counts=list(zip(values.tolist(), scaled.tolist(), strict=True))),
    )


def _late(ios: int) -> Latency:
    """Lateness of a generator that issues each I/O 100 ns late."""
    histogram = Histogram(counts=[(100, max(1, ios))])
    return Latency(latency_sum_ns=100 * max(1, ios), latency_min_ns=100, latency_max_ns=100, histogram=histogram)


def _cpu(pid: int, total_ns: int) -> dict[str, Any]:
    """CPU time of a process, as the engine reports it. `_machine` does this for the machine."""
    return {"pid": pid, "total_ns": total_ns, "user_ns": total_ns // 3, "system_ns": total_ns - total_ns // 3}


def _machine(busy_ns: int, duration_s: float) -> dict[str, Any]:
    per_core = busy_ns // CORES
    cores = [
        Core(
            cpu=i,
            user_ns=per_core // 3,
            nice_ns=0,
            system_ns=per_core // 3,
            irq_ns=0,
            softirq_ns=per_core - 2 * (per_core // 3),
            steal_ns=0,
            idle_ns=max(0, int(duration_s * 1e9) - per_core),
            iowait_ns=0,
        )
        for i in range(CORES)
    ]
    return {"cores": cores, "busy_ns": busy_ns}


def carried(data: StudyData, of: dict[str, Carrier]) -> StudyData:
    """The same runs, but with this carrier for each protocol."""

    def told(trial: Trial, facts: Facts) -> Facts:
        return facts.model_copy(update={"carrier": of.get(str(trial.treatment["protocol"]), facts.carrier)})

    return _retold(data, told)


def encrypted(data: StudyData, of: dict[str, str]) -> StudyData:
    """The same runs, but guests count instructions and each protocol's link has this encryption."""

    def told(trial: Trial, facts: Facts) -> Facts:
        link = facts.link.model_copy(update={"encryption": of.get(str(trial.treatment["protocol"]))})
        return facts.model_copy(update={"link": link, "clock": "instructions"})

    return _retold(data, told)


def with_facts(data: StudyData, **changes: Any) -> StudyData:
    """The same runs, but with these facts changed."""
    return _retold(data, lambda _, facts: facts.model_copy(update=changes))


def _retold(data: StudyData, told: Callable[[Trial, Facts], Facts]) -> StudyData:
    attempts = []
    for each in data.attempts:
        assert each.result is not None
        result = each.result.model_copy(update={"facts": told(each.trial, each.result.facts)})
        attempts.append(each.model_copy(update={"result": result}))
    return replace(data, attempts=attempts)
