"""tgt as an iSCSI target on a file in memory, and libiscsi's `iscsi-perf`, which only reads."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from bench.files import memory_folder, write_zeros
from bench.load import Load, Timing
from bench.process import (
    FailedError,
    UnavailableError,
    free_port,
    measure_window,
    program,
    run,
    running,
    wait_for_end,
    wait_for_port,
    wait_until,
)
from bench.sample import Figures, Sample
from bench.subjects.base import Place, Reached

_IQN = "iqn.2026-11.io.iotax.bench:tgt"
_BLOCK_BYTES = 512


@dataclass(frozen=True)
class Tgt:
    """Our own tgtd on a file of zeros in memory."""

    name: str = "tgt"

    @contextlib.contextmanager
    def up(self, place: Place) -> Generator[Reached]:
        tgtd, tgtadm = program("tgtd", "tgt"), program("tgtadm", "tgt")
        port, log = free_port(), place.folder / "tgtd.log"
        # Its own number, so that a running tgtd is left alone.
        control = str(1000 + os.getpid() % 30000)
        command = [tgtd, "--foreground", "--control-port", control, "--iscsi", f"portal=127.0.0.1:{port}"]
        with memory_folder() as folder, running(command, cpu=place.target_cpu, log=log, kill=True) as process:
            backing = folder / "tgt.img"
            write_zeros(backing)
            wait_for_port(process, port, log)
            admin = [tgtadm, "--control-port", control, "--lld", "iscsi"]

            def answers() -> bool:
                with contextlib.suppress(UnavailableError):
                    run(*admin, "--mode", "target", "--op", "show")
                    return True
                return False

            wait_until(answers, process, log, "tgtadm gets no answer")
            run(*admin, "--mode", "target", "--op", "new", "--tid", "1", "--targetname", _IQN)
            run(
                *admin,
                "--mode",
                "logicalunit",
                "--op",
                "new",
                "--tid",
                "1",
                "--lun",
                "1",
                "--backing-store",
                str(backing),
            )
            run(*admin, "--mode", "target", "--op", "bind", "--tid", "1", "--initiator-address", "ALL")
            yield Reached(f"iscsi://127.0.0.1:{port}/{_IQN}/1", process.pid)


@dataclass(frozen=True)
class IscsiPerf:
    name: str = "libiscsi (iscsi-perf)"

    def find(self) -> Path:
        return Path(program("iscsi-perf", "libiscsi-bin"))

    def measure(self, program: Path, reached: Reached, place: Place, load: Load, timing: Timing) -> Sample:
        # It takes whole seconds and has no warm-up; its average covers the whole run.
        seconds = max(1, round(timing.warmup_s + timing.window_s + 0.5))
        log = place.folder / "iscsi-perf.log"
        log.unlink(missing_ok=True)
        command = [
            program, "-m", str(load.depth), "-b", str(load.block_bytes // _BLOCK_BYTES),
            "-t", str(seconds), *(["-r"] if load.random else []), reached.endpoint,
        ]  # fmt: skip
        with running(command, cpu=place.initiator_cpu, log=log) as process:
            usage = measure_window(process.pid, reached.pid, timing)
            wait_for_end(process, "iscsi-perf", seconds + 20)
        return Sample(parse_iscsi_perf(log.read_text(errors="replace")), usage)


def parse_iscsi_perf(text: str) -> Figures:
    """Its last average; it reports no latency."""
    found = re.findall(r"iops average (\d+)", text)
    if not found:
        raise FailedError(f"iscsi-perf told no rate: {text.strip()[-200:]}")
    return Figures(rate_iops=float(found[-1]))
