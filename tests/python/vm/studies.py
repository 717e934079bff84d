"""Runs studies of the vm lab as separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iotax.labs.vm.qemu import PROGRAM


def start(folder: Path, engine: Path, study: str) -> subprocess.Popen[str]:
    (folder / "kernels.yaml").write_text(study)
    return subprocess.Popen(
        [sys.executable, "-m", "iotax", "run", "kernels.yaml", "-n", "kernels.iotax", "--no-report"],
        cwd=folder,
        env=os.environ | {"IOTAX_ENGINE": str(engine), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def machines_of(folder: Path) -> list[int]:
    """Process ids of the machines whose sockets are in the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if PROGRAM.encode() in line and f"{folder}/iotax-vm-".encode() in line:
            found.append(int(process.name))
    return found


@contextmanager
def with_machines_up(engine: Path, study: str) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A study whose two machines have started, and its folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with start(folder, engine, study) as running:
            deadline_s = time.monotonic() + 600
            while len(machines_of(folder)) < 2:
                assert running.poll() is None
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
            yield folder, running
