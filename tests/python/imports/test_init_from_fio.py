"""`iotax init --from JOB.fio`: a fio job file as a study."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotax.study import Study
from iotax.study.read import load_study

JOB = """\
; the nightly job
[global]
ioengine=libaio
direct=1
bs=8k
size=1g
runtime=30
ramp_time=2s
time_based
iodepth=16
[readers]
rw=randrw
rwmixread=70
numjobs=4
gtod_reduce=1
"""


def study(tmp_path: Path, iotax, job: str) -> tuple[Study, str]:
    (tmp_path / "job.fio").write_text(job)
    said = iotax("init", "mine.yaml", "--from", "job.fio").output
    assert (tmp_path / "job.fio").read_text() == job
    return load_study("mine.yaml")[0], said


def test_a_job_becomes_a_load(tmp_path: Path, iotax) -> None:
    found, said = study(tmp_path, iotax, JOB)
    load = found.load
    assert (load.block_size, load.read, load.random) == (8192, 70.0, 100.0)
    assert (load.outstanding, load.workers) == (16, 4)
    assert (load.runtime, load.warmup) == (30_000_000_000, 2_000_000_000)
    assert found.volume.size == 1 << 30
    assert "note: gtod_reduce: nothing in a study corresponds to it" in said
    assert found.name == "mine"


def test_jobs_that_run_together_are_streams(tmp_path: Path, iotax) -> None:
    found, _ = study(tmp_path, iotax, JOB + "[writer]\nrw=write\nbs=64k\n")
    assert found.load.workers == 5
    accesses = {each.name: (each.block_size, each.read, each.random, each.share) for each in found.load.accesses()}
    assert accesses == {"readers": (8192, 70.0, 100.0, 4.0), "writer": (65536, 0.0, 0.0, 1.0)}


def test_what_follows_a_stonewall_is_another_study(tmp_path: Path, iotax) -> None:
    found, said = study(tmp_path, iotax, JOB + "[later]\nstonewall\nrw=write\n")
    assert found.load.streams is None
    assert "jobs after stonewall are left out (later)" in said


def test_percentages_saved_become_ratios(tmp_path: Path, iotax) -> None:
    found, said = study(tmp_path, iotax, JOB + "buffer_compress_percentage=50\ndedupe_percentage=75\n")
    assert (found.volume.compress, found.volume.dedupe, found.volume.size) == (2.0, 4.0, 1 << 30)
    assert "percentage" not in said


def test_percentages_that_differ_between_jobs_are_told(tmp_path: Path, iotax) -> None:
    found, said = study(tmp_path, iotax, JOB + "buffer_compress_percentage=95\n[other]\ndedupe_percentage=50\n")
    assert (found.volume.compress, found.volume.dedupe) == (1.0, 1.0)
    assert "note: dedupe_percentage differs between jobs" in said


def test_rates_of_jobs_add_up(tmp_path: Path, iotax) -> None:
    found, _ = study(tmp_path, iotax, JOB + "rate_iops=500\n")
    assert found.load.rate_iops == 2000


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("rw=read\n", "job.fio:1: found 'rw=read' before any [job]"),
        ("[global]\nbs=4k\n", "no [job] in it"),
        ("[a]\nrw=trim\n", "rw=trim: a study reads and writes only"),
        ("[a]\nbs=huge\n", "bs: found 'huge'"),
        ("[a]\niodepth=deep\n", "iodepth: found 'deep'"),
        ("[a]\nruntime=long\n", "runtime: found 'long'"),
    ],
)
def test_what_is_wrong_with_a_job_is_told(tmp_path: Path, iotax, job: str, said: str) -> None:
    (tmp_path / "job.fio").write_text(job)
    assert said in iotax("init", "mine.yaml", "--from", "job.fio", code=2).output
    assert not (tmp_path / "mine.yaml").exists()
