"""Real kernels: a short study between two guests, and what is left when it ends, or is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from iotax.engine import EngineError, find_engine
from iotax.labs.vm.qemu import PROGRAM
from iotax.notebook import Notebook

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

STUDY = """\
name: kernels
question: Do real kernels carry the load?
lab: {vm: {accelerator: tcg, clock: icount}}
volume: {size: 16MiB, refill: block}
factors: {protocol: [nvme-tcp, nfs3, iscsi]}
load: {read: 75%, outstanding: 4, warmup: 200ms, runtime: 600ms}
design: {replicates: 1}
baseline: {protocol: iscsi}
"""


@pytest.fixture
def engine() -> Path:
    missing = None
    if shutil.which(PROGRAM) is None:
        missing = f"{PROGRAM} is not installed (package qemu-system-x86)"
    elif shutil.which("apt-get") is None:
        missing = "the guests' image is built from Debian packages, and there is no apt-get"
    try:
        engine = find_engine()
    except EngineError as error:
        missing = str(error)
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    return engine


def start(folder: Path, engine: Path) -> subprocess.Popen[str]:
    (folder / "kernels.yaml").write_text(STUDY)
    return subprocess.Popen(
        [sys.executable, "-m", "iotax", "run", "kernels.yaml", "-n", "kernels.iotax", "--no-report"],
        cwd=folder,
        env=os.environ | {"IOTAX_ENGINE": str(engine), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def machines_of(folder: Path) -> list[int]:
    """Processes whose sockets stand in the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if PROGRAM.encode() in line and f"{folder}/iotax-vm-".encode() in line:
            found.append(int(process.name))
    return found


def test_real_kernels_carry_verified_data_and_leave_nothing(tmp_path: Path, engine: Path) -> None:
    with start(tmp_path, engine) as study:
        said, _ = study.communicate(timeout=380)
    assert study.returncode == 0, said
    with Notebook(tmp_path / "kernels.iotax") as notebook:
        attempts = list(notebook.attempts(1))
    assert {each.trial.treatment["protocol"] for each in attempts} == {"nvme-tcp", "nfs3", "iscsi"}
    for each in attempts:
        result, connected = each.result, each.connected
        assert result is not None
        assert connected is not None
        assert result.verify is not None
        assert result.verify.wrong_blocks == 0
        assert result.verify.checked_blocks > 0
        assert result.cpu.initiator is not None
        assert result.cpu.target is not None
        assert result.cpu.initiator.total_ns > 0
        assert result.cpu.target.total_ns > 0
        assert connected.negotiated["clock"] == "icount"
    assert machines_of(tmp_path) == []
    assert list(tmp_path.glob("iotax-vm-*")) == []


def test_no_machine_outlives_a_study_that_is_killed(engine: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with start(folder, engine) as study:
            deadline_s = time.monotonic() + 120
            while len(machines_of(folder)) < 2:
                assert study.poll() is None
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
            study.send_signal(signal.SIGKILL)
            study.wait()
        deadline_s = time.monotonic() + 10
        while machines_of(folder) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        assert machines_of(folder) == []
