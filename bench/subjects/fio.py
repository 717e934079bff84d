"""fio as an initiator: for a local file, and through libiscsi or libnfs if it was built with them."""

from __future__ import annotations

import json
import math
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from bench.load import VOLUME_BYTES, Load, Timing
from bench.peers import peer
from bench.process import FailedError, UnavailableError, measure_window, program, run, running, wait_for_end
from bench.sample import Figures, Sample
from bench.subjects.base import Place, Reached

_START_S = 0.3
"""Time until fio's first I/O. fio runs longer than the measured window by twice this time."""
_STOP_S = 20.0
"""How long a job may take to end after its runtime."""


def run_fio(
    fio: str | Path, engine: Sequence[str], place: Place, target: int | None, load: Load, timing: Timing
) -> Sample:
    """Runs one fio job. Raises FailedError if it fails."""
    output = place.folder / "fio.json"
    output.unlink(missing_ok=True)
    log = place.folder / "fio.log"
    log.unlink(missing_ok=True)
    command = [
        fio, "--name=bench", *engine, "--thread", f"--rw={load.fio_rw}", f"--bs={load.block_bytes}",
        f"--iodepth={load.depth}", f"--size={VOLUME_BYTES}", "--time_based", "--norandommap", "--randrepeat=0",
        "--invalidate=0", f"--ramp_time={_ms(timing.warmup_s)}", f"--runtime={_ms(timing.window_s + 2 * _START_S)}",
        "--output-format=json", f"--output={output}",
    ]  # fmt: skip
    with running(command, cpu=place.initiator_cpu, log=log) as process:
        time.sleep(_START_S)
        usage = measure_window(process.pid, target, timing)
        wait_for_end(process, "fio", timing.window_s + _STOP_S)
    if process.returncode:
        raise FailedError(f"fio failed: {log.read_text(errors='replace').strip()[-300:]}")
    try:
        return Sample(parse(output.read_text(), load.direction), usage)
    except FailedError as error:
        raise FailedError(f"{error}: {log.read_text(errors='replace').strip()[-300:]}") from None


def _ms(seconds: float) -> str:
    """In ms, because fio truncates fractions of seconds."""
    return f"{seconds * 1000:.0f}ms"


def parse(text: str, direction: str) -> Figures:
    """Parses fio's JSON, which may follow other messages."""
    try:
        report: dict[str, Any] = json.loads(text[text.index("{") :])
    except ValueError:
        raise FailedError("fio told no figures") from None
    job = report["jobs"][0]
    if direction == "mixed":
        # fio reports percentiles for each direction separately.
        return Figures(rate_iops=_positive(float(job["read"]["iops"]) + float(job["write"]["iops"])))
    side = job[direction]
    _positive(side["iops"])
    percentiles = side.get("clat_ns", {}).get("percentile", {})
    p50_ns, p99_ns = percentiles.get("50.000000"), percentiles.get("99.000000")
    return Figures(
        rate_iops=float(side["iops"]),
        latency_p50_us=None if p50_ns is None else p50_ns / 1000,
        latency_p99_us=None if p99_ns is None else p99_ns / 1000,
    )


def _positive(rate_iops: float) -> float:
    if not rate_iops:
        raise FailedError("fio completed no I/O")
    return rate_iops


def fio_with(ioengine: str) -> Path:
    """The fio that IOTAX_BENCH_FIO names, if it has this engine."""
    fio = peer("IOTAX_BENCH_FIO", f"a fio built with {ioengine}")
    if not re.search(rf"^\s*{ioengine}$", run(fio, "--enghelp"), re.MULTILINE):
        raise UnavailableError(f"{fio} has no engine {ioengine}")
    return fio


@dataclass(frozen=True)
class FioFile:
    """fio on a local file in the page cache."""

    ioengine: str

    @property
    def name(self) -> str:
        return f"fio {self.ioengine}"

    def find(self) -> Path:
        return Path(program("fio", "fio"))

    def measure(self, program: Path, reached: Reached, place: Place, load: Load, timing: Timing) -> Sample:
        engine = [f"--ioengine={self.ioengine}", f"--filename={_path(reached)}", "--direct=0"]
        return run_fio(program, engine, place, reached.pid, load, timing)


@dataclass(frozen=True)
class TIoUring:
    """fio's `t/io_uring`: the minimum that a program must do to read a file. It reports no latencies."""

    name: str = "t/io_uring"
    options: tuple[str, ...] = ()

    def find(self) -> Path:
        return peer("IOTAX_BENCH_T_IO_URING", "fio's t/io_uring")

    def measure(self, program: Path, reached: Reached, place: Place, load: Load, timing: Timing) -> Sample:
        log = place.folder / "t_io_uring.log"
        log.unlink(missing_ok=True)
        depth, seconds = load.depth, math.ceil(timing.warmup_s + timing.window_s + _START_S)
        command = [
            program, f"-d{depth}", f"-s{depth}", f"-c{depth}", f"-b{load.block_bytes}", "-n1", f"-r{seconds}",
            "-p0", "-O0", *self.options, _path(reached),
        ]  # fmt: skip
        with running(command, cpu=place.initiator_cpu, log=log) as process:
            usage = measure_window(process.pid, reached.pid, timing)
            wait_for_end(process, "t/io_uring", seconds + _STOP_S)
        return Sample(parse_t_io_uring(log.read_text(errors="replace")), usage)


def _path(reached: Reached) -> str:
    return reached.endpoint.removeprefix("local:")


_THOUSANDS = {"": 1, "K": 1e3, "M": 1e6}


def parse_t_io_uring(text: str) -> Figures:
    """The median of its lines, one per second, without the first, during which it starts."""
    told = re.findall(r"^IOPS=([\d.]+)([KM]?),", text, re.MULTILINE)
    if not told:
        raise FailedError(f"t/io_uring told no rate: {text.strip()[-200:]}")
    rates = [float(number) * _THOUSANDS[unit] for number, unit in told]
    return Figures(statistics.median(rates[1:] or rates))


@dataclass(frozen=True)
class FioNet:
    """fio's `libiscsi` or `nfs` engine as an initiator."""

    ioengine: str

    @property
    def name(self) -> str:
        return f"{'libiscsi' if 'iscsi' in self.ioengine else 'libnfs'} (fio)"

    def find(self) -> Path:
        return fio_with(self.ioengine)

    def measure(self, program: Path, reached: Reached, place: Place, load: Load, timing: Timing) -> Sample:
        engine = [f"--ioengine={self.ioengine}", *in_fios_words(reached.endpoint)]
        return run_fio(program, engine, place, reached.pid, load, timing)


def in_fios_words(endpoint: str) -> list[str]:
    """An iSCSI or NFS endpoint as options of fio's engine."""
    if endpoint.startswith("iscsi:"):
        # fio splits file names at colons.
        return [f"--filename={endpoint.replace(':', chr(92) + ':')}"]
    url = urlsplit(endpoint)
    folder, _, file = url.path.rpartition("/")
    mount_port = dict(parse_qsl(url.query)).get("mountport", url.port)
    nfs_url = f"nfs://{url.hostname}{folder}?nfsport={url.port}&mountport={mount_port}&version=3"
    return [f"--nfs_url={nfs_url}", f"--filename={file}"]
