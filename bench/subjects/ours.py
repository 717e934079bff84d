"""The engine: `serve` on one core, `load` on another."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.load import VOLUME_BYTES, Load, Timing
from bench.process import FailedError, UnavailableError, measure_window
from bench.sample import Figures, Sample
from bench.subjects.base import Place, Reached, Sides
from iotax.engine import EngineError, find_engine
from iotax.places.waiting import Engine

_DEADLINE_S = 60.0
_STARTING_S = 0.2
"""From the connection to the first window; the load starts 5 ms after `connected`."""


@dataclass(frozen=True)
class OurTarget:
    """`serve`, with all its protocols on one volume."""

    protocol: str
    name: str = "iotax"
    driver: str = "auto"
    polling: str = "never"
    cores: int = 1

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Reached]:
        if len(place.spare_cpus) < 2 * (self.cores - 1):
            raise UnavailableError(f"{2 * self.cores} processors are needed, {2 + len(place.spare_cpus)} are there")
        document = {
            "volumes": [{"name": "v0", "media": "memory", "size_bytes": VOLUME_BYTES, "fill": "pattern"}],
            "exports": [
                {"protocol": protocol, "listen": "127.0.0.1:0", "volume": "v0"}
                for protocol in ("nfs3", "nfs4.1", "iscsi", "nvme-tcp")
            ],
            "driver": self.driver,
            "threads": self.cores,
            "cpus": [place.target_cpu, *place.spare_cpus[: self.cores - 1]],
            "polling": self.polling,
        }
        with Engine(find_engine(), "serve", document) as server:
            try:
                ready = server.expect("ready", time.monotonic() + _DEADLINE_S)
            except EngineError as error:
                raise UnavailableError(f"the engine: {error}") from None
            endpoints = {portal["protocol"]: portal["endpoint"] for portal in ready["portals"]}
            endpoints["local"] = f"local:{ready['volumes'][0]['path']}"
            # The local volume has no target process.
            yield Reached(endpoints[self.protocol], None if self.protocol == "local" else server.pid)


@dataclass(frozen=True)
class OurInitiator:
    """The engine's `load` as an initiator."""

    name: str = "iotax"
    driver: str = "auto"
    polling: str = "never"
    options: dict[str, Any] = field(default_factory=dict)
    verify: bool = False
    cores: int = 1

    def find(self) -> Path:
        return find_engine()

    def measure(self, program: Path, reached: Reached, place: Place, load: Load, timing: Timing) -> Sample:
        more = self.cores - 1
        cpus = [place.initiator_cpu, *place.spare_cpus[more : 2 * more]]
        document = load_document(self, reached.endpoint, load, timing, cpus)
        try:
            with Engine(program, "load", document) as engine:
                engine.expect("connected", time.monotonic() + _DEADLINE_S)
                usage = measure_window(engine.pid, reached.pid, timing)
                result = engine.expect("result", time.monotonic() + _DEADLINE_S)
        except EngineError as error:
            raise FailedError(f"the engine: {error}") from None
        return Sample(figures_of(result, load), usage)


def both_sides(
    protocol: str,
    name: str = "iotax",
    *,
    driver: str = "auto",
    polling: str = "never",
    verify: bool = False,
    cores: int = 1,
) -> Sides:
    """Both of our sides. Each has `cores` cores with a thread on each. The load has a connection per core, each with
    the full depth."""
    target = OurTarget(protocol, driver=driver, polling=polling, cores=cores)
    return Sides(target, OurInitiator(driver=driver, polling=polling, verify=verify, cores=cores), name)


def load_document(side: OurInitiator, endpoint: str, load: Load, timing: Timing, cpus: list[int]) -> dict[str, Any]:
    """The engine's `run` task. Its window is slightly longer than the measured one, which lies within it."""
    return {
        "task": "run",
        "endpoint": endpoint,
        "options": side.options,
        "workers": side.cores,
        "threads": side.cores,
        "outstanding": load.depth,
        "block_size_bytes": load.block_bytes,
        "read_percent": {"read": 100, "mixed": 50, "write": 0}[load.direction],
        "random_percent": 100 if load.random else 0,
        "working_set_bytes": VOLUME_BYTES,
        "warmup_ns": int(timing.warmup_s * 1e9),
        "runtime_ns": int((timing.window_s + _STARTING_S) * 1e9),
        "verify": side.verify,
        "driver": side.driver,
        "cpus": cpus,
        "polling": side.polling,
    }


def figures_of(result: dict[str, Any], load: Load) -> Figures:
    """Rate and latency from a `result` event."""
    streams = [result[direction] for direction in ("read", "write") if load.direction in (direction, "mixed")]
    ios = sum(stream["ios"] for stream in streams)
    if not ios:
        raise FailedError("the engine completed no I/O")
    seconds = result["window"]["duration_ns"] * 1e-9
    counts = sorted(count for stream in streams for count in stream["histogram"]["counts"])
    return Figures(ios / seconds, _quantile_us(counts, 0.5), _quantile_us(counts, 0.99))


def _quantile_us(counts: list[list[int]], quantile: float) -> float:
    rank, seen = quantile * sum(count for _, count in counts), 0
    for value_ns, count in counts:
        seen += count
        if seen >= rank:
            return value_ns / 1000
    return float("nan")
