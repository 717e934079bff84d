"""fio as a second generator: the real program on a file, its output read into the common result."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import needed
from faked import FakeEngine
from iotax.cli.run import run
from iotax.cli.study import open_lab, planned
from iotax.labs.base import TrialFailed
from iotax.labs.generators.fio import program
from iotax.labs.generators.fio.job import Target, groups, run_job
from iotax.labs.generators.fio.output import read_output
from iotax.labs.generators.fio.program import Fio, NoFio, find_fio, run_fio, run_layout, target_of
from iotax.notebook import Notebook
from iotax.study.model import Settings
from iotax.study.read import read_study
from iotax.trial import TrialResult
from waits import wait_for

MIB = 1 << 20

STUDY = """\
name: fio
question: What does fio find?
volume: {size: 4MiB}
factors: {protocol: {file: ./disk.img}, generator: [iotax, fio]}
load: {workers: 2, outstanding: 4, warmup: 50ms, runtime: 1s}
design: {replicates: 2}
baseline: {generator: iotax}
"""

MIXED = (
    "streams: {random: {read: 70%, share: 1}, sequential: {random: 0%, read: 0%, block_size: 8KiB, share: 3}}, "
    "workers: 4"
)


@pytest.fixture
def fio() -> Fio:
    needed.program("fio")
    return find_fio()


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "disk.img"
    path.write_bytes(bytes(4 * MIB))
    return path


def settings(text: str, folder: Path) -> Settings:
    return read_study("s.yaml", text, folder).settings({"protocol": "file", "generator": "fio"})


def measure(fio: Fio, disk: Path, text: str = STUDY) -> TrialResult:
    endpoint = f"local:{disk}"
    some = settings(text, disk.parent)
    target = target_of(fio, "local", endpoint, driver="auto")
    outcome = run_fio(
        fio,
        some,
        target,
        endpoint=endpoint,
        seed=1,
        cpus=[],
        watch_pids={"target": os.getpid()},
        progress=lambda _: None,
    )
    return outcome.result


def test_streams_become_groups_of_workers_in_zones_of_their_own(tmp_path: Path) -> None:
    some = settings(STUDY.replace("workers: 2", MIXED), tmp_path)
    assert [(each.access.name, each.workers, each.first_worker) for each in groups(some)] == [
        ("random", 1, 0),
        ("sequential", 3, 1),
    ]
    job = run_job(some, Target("psync", ("filename=/x",)), seed=3, cpus=[1])
    shared, random, sequential = (part.splitlines() for part in job.split("\n["))
    assert {"iodepth=4", "ramp_time=50000us", "runtime=1000000us", "cpus_allowed=1", f"size={MIB}"} <= set(shared)
    assert {"rw=randrw", "rwmixread=70", "bs=4096", "offset=0", f"offset_increment={MIB}"} <= set(random)
    assert {"rw=write", "bs=8192", f"offset={MIB}", "numjobs=3"} <= set(sequential)


def test_a_rate_is_shared_by_streams_workers_reads_and_writes(tmp_path: Path) -> None:
    some = settings(STUDY.replace("workers: 2", f"{MIXED}, rate_iops: 4000, arrivals: poisson"), tmp_path)
    lines = run_job(some, Target("psync", ()), seed=3, cpus=[]).splitlines()
    # A quarter of the rate is 1000 I/Os per second for one worker, 70 % of them reads. Three quarters are 1000 I/Os per
    # second for each of three workers.
    assert [line for line in lines if line.startswith("rate")] == [
        "rate_iops=700,300",
        "rate_process=poisson",
        "rate_iops=,1000",
        "rate_process=poisson",
    ]


def test_its_output_reads_as_a_result(fio: Fio, disk: Path) -> None:
    result = measure(fio, disk, STUDY.replace("workers: 2", MIXED))
    assert (result.generator, result.engine_version) == ("fio", fio.version)
    assert result.endpoint == f"local:{disk}"
    random, sequential = result.streams
    assert random.read.ios > random.write.ios > 0
    assert sequential.read.ios == 0
    assert random.read.ios + random.write.ios + sequential.write.ios == result.ios
    assert sequential.write.bytes == pytest.approx(8192 * sequential.write.ios, rel=0.01)
    assert sum(result.latency_counts().values()) == result.ios
    # The mean of the bins must equal the exact mean that fio prints, within the bins' width.
    mean_ns = sum(value * count for value, count in result.latency_counts().items()) / result.ios
    assert mean_ns == pytest.approx(result.latency_mean_ns, rel=0.02)
    assert result.cpu.initiator is not None
    assert result.cpu.target is not None
    assert result.cpu.machine_ns is not None
    assert 0 < result.cpu.initiator.busy_ns <= result.cpu.machine_ns * 1.5
    assert result.cpu.target.pid == os.getpid()
    assert result.verify is None
    # Four threads wait for each other, which is not a disturbance.
    assert result.checks.run_queue_wait is None


def test_an_open_loop_says_what_of_its_rate_it_achieved(fio: Fio, disk: Path) -> None:
    text = STUDY.replace("workers: 2", "workers: 2, rate_iops: 500, arrivals: poisson, verify: false").replace(
        "runtime: 1s", "runtime: 2s"
    )
    result = measure(fio, disk, text)
    assert result.open is not None
    # fio may run longer than requested.
    assert result.open.offered == pytest.approx(500 * result.duration_s, abs=0.501)
    assert 0.5 < result.open.achieved < 1.5
    assert result.open.achieved == result.ios / result.open.offered


def test_a_run_that_only_reads_is_verified_and_a_changed_byte_is_found(
    fio: Fio, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = settings(STUDY, disk.parent)
    run_layout(fio, some, target_of(fio, "local", f"local:{disk}", driver="auto"), lambda _: None)
    result = measure(fio, disk)
    assert result.verify is not None
    assert result.verify.checked_blocks == 4 * MIB // 512
    with disk.open("r+b") as file:
        file.seek(3 * MIB + 777)
        file.write(b"\xff\x00\xff\x00")
    with monkeypatch.context() as patch:
        patch.chdir(disk.parent)
        with pytest.raises(TrialFailed, match="verif"):
            measure(fio, disk)
    assert [path.name for path in disk.parent.iterdir()] == [disk.name]


def test_its_data_and_the_engines_do_not_meet(fio: Fio, disk: Path, engine: FakeEngine) -> None:
    (disk.parent / "s.yaml").write_text(STUDY)
    run(str(disk.parent / "s.yaml"), disk.parent / "n.iotax", report=False)
    with Notebook(disk.parent / "n.iotax") as notebook:
        attempts = notebook.attempts()
    assert [each.status for each in attempts] == ["done"] * 4
    assert sorted(each.result.generator for each in attempts if each.result) == ["fio", "fio", "iotax", "iotax"]
    after_fio = sum(
        one.trial.treatment["generator"] == "fio" and other.trial.treatment["generator"] == "iotax"
        for one, other in itertools.pairwise(attempts)
    )
    # The engine wrote its pattern at the start, and again after fio had written its own.
    assert len(engine.documents("load", task="fill")) == 1 + after_fio


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("nvme-tcp", "no engine for nvme-tcp: attach it through the kernel"),
        ("nfs3", "mount the export and name a file"),
        ("iscsi", "was built without its engine libiscsi: name another in IOTAX_FIO"),
    ],
)
def test_what_this_fio_cannot_reach_is_said(
    protocol: str, said: str, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "iotax.labs.generators.fio.generator.find_fio", lambda: Fio(Path("/bin/fio"), "fio-3", frozenset({"libaio"}))
    )
    text = STUDY.replace("{file: ./disk.img}", f"[{protocol}]")
    study = read_study("s.yaml", text, tmp_path)
    findings = open_lab(study, planned(study), []).check()
    assert any(each.kind == "error" and said in each.message for each in findings)


def test_it_does_not_outlive_a_run_that_is_killed(fio: Fio, disk: Path, engine: FakeEngine) -> None:
    del fio, engine
    study = disk.parent / "s.yaml"
    study.write_text(
        STUDY.replace("runtime: 1s", "runtime: 60s").replace("[iotax, fio]", "[fio]").replace("iotax}", "fio}")
    )
    command = [sys.executable, "-m", "iotax", "run", str(study), "--notebook", str(disk.parent / "n.iotax")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def generators() -> list[int]:
            return [pid for pid in map(int, children.read_text().split()) if "json+" in words(pid)]

        wait_for(generators, "fio")
        [child] = generators()
        process.kill()
    wait_for(lambda: not words(child), "fio to end")


def words(pid: int) -> str:
    """The process's command line; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_missing_fio_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    program.find_fio.cache_clear()
    monkeypatch.delenv("IOTAX_FIO", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoFio, match="apt install fio"):
        find_fio()
    program.find_fio.cache_clear()


@pytest.mark.parametrize("output", ["", "fio: out of memory", '{"jobs": []}', '{"jobs": [{'])
def test_output_without_sense_is_a_failed_trial(output: str) -> None:
    with pytest.raises(TrialFailed, match="without its JSON"):
        read_output(output)
