"""The raw limit: our drivers without a protocol (crates/runtime/examples/raw_limit.rs)."""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

from bench.load import Load, Timing
from bench.process import FailedError, UnavailableError, measure_window
from bench.sample import Figures, Sample
from bench.subjects.base import Measurable, Place

_ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def build_example(name: str, package: str = "iotax-runtime") -> Path:
    """Builds an example of a crate and returns its path."""
    command = ["cargo", "build", "--release", "--locked", "--quiet", "-p", package, "--example", name]
    built = subprocess.run([*command, "--message-format=json"], cwd=_ROOT, capture_output=True, text=True, check=False)
    if built.returncode:
        raise UnavailableError(f"{name} was not built: {built.stderr.strip()[-300:]}")
    messages = (json.loads(line) for line in built.stdout.splitlines())
    return Path([message["executable"] for message in messages if message.get("executable")][-1])


@dataclass(frozen=True)
class RawLimit:
    """Requests of 72 bytes, replies of a block plus 24 bytes: the minimum for a read.

    Both sides are threads of one process.
    """

    name: str = "raw limit"
    options: tuple[str, ...] = ()
    """More options of the example."""

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Measurable]:
        yield _Raw(build_example("raw_limit"), place, self.options)


@dataclass(frozen=True)
class _Raw:
    program: Path
    place: Place
    options: tuple[str, ...]

    def measure(self, load: Load, timing: Timing) -> Sample:
        seconds = str(timing.warmup_s + timing.window_s)
        cpus = f"{self.place.target_cpu},{self.place.initiator_cpu}"
        asked = ["--depth", str(load.depth), "--block-bytes", str(load.block_bytes)]
        command = [self.program, *asked, "--seconds", seconds, "--repeat", "1", "--cpus", cpus, *self.options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            usage = measure_window(process.pid, None, timing)
            try:
                output, _ = process.communicate(timeout=timing.window_s + 30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise FailedError("raw_limit did not end") from None
        if process.returncode:
            raise FailedError(f"raw_limit ended with {process.returncode}")
        figures, initiator_us, target_us = parse(output)
        seconds_an_io = 1e-6 * figures.rate_iops * usage.window_s
        return Sample(
            figures,
            replace(
                usage,
                initiator_cpu_s=initiator_us * seconds_an_io,
                target_cpu_s=target_us * seconds_an_io,
                initiator_sleeps=None,
            ),
        )


def parse(line: str) -> tuple[Figures, float, float]:
    """Figures, and CPU time per I/O of either side in µs."""
    told = json.loads(line)
    figures = Figures(told["rate_iops"], told["latency_p50_ns"] / 1000, told["latency_p99_ns"] / 1000)
    return figures, told["client_cpu_ns_an_io"] / 1000, told["server_cpu_ns_an_io"] / 1000
