"""`iotax init --from JOB.fio`: a fio job file as a study."""

from __future__ import annotations

import os
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
    (tmp_path / "mine.yaml").unlink(missing_ok=True)
    said = iotax("init", "mine.yaml", "--from", "job.fio").output
    assert (tmp_path / "job.fio").read_text() == job
    return load_study("mine.yaml")[0], said


def test_a_job_becomes_a_load(tmp_path: Path, iotax) -> None:
    found, said = study(tmp_path, iotax, JOB)
    load = found.load
    assert (load.block_size, load.read, load.random) == (8192, 70.0, 100.0)
    assert (load.outstanding, load.workers) == (16, 4)
    assert (load.runtime, load.warmup) == (30_000_000_000, 2_000_000_000)
    assert found.volume.size == 4 << 30, "each of the four clones has a file of its own"
    assert "note: gtod_reduce=1: nothing in a study corresponds to it" in said
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
    assert (found.volume.compress, found.volume.dedupe, found.volume.size) == (2.0, 4.0, 4 << 30)
    assert "percentage" not in said


def test_percentages_that_differ_between_jobs_are_told(tmp_path: Path, iotax) -> None:
    found, said = study(tmp_path, iotax, JOB + "buffer_compress_percentage=95\n[other]\ndedupe_percentage=50\n")
    assert (found.volume.compress, found.volume.dedupe) == (1.0, 1.0)
    assert "note: dedupe_percentage differs between jobs" in said


def test_rates_of_jobs_add_up(tmp_path: Path, iotax) -> None:
    found, _ = study(tmp_path, iotax, JOB.replace("randrw", "randread") + "rate_iops=500\n")
    assert found.load.rate_iops == 2000


def test_reads_and_writes_have_a_rate_each(tmp_path: Path, iotax) -> None:
    """As in fio 3.33: 500 reads and 500 writes per second, even with rwmixread=70."""
    found, said = study(tmp_path, iotax, JOB + "rate_iops=500\n")
    assert (found.load.rate_iops, found.load.read) == (4000, 50.0)
    assert "fio paces reads and writes apart, so 50 % are reads" in said
    found, said = study(tmp_path, iotax, JOB + "rate_iops=350,150\nrate_process=poisson\n")
    assert (found.load.rate_iops, found.load.read, found.load.arrivals) == (2000, 70.0, "poisson")
    assert "paces" not in said


def test_rates_of_jobs_are_the_shares_of_their_streams(tmp_path: Path, iotax) -> None:
    job = "[global]\nioengine=libaio\nbs=8k\niodepth=64\n"
    job += "[r]\nrw=randread\nrate_iops=900\n[w]\nrw=randwrite\nrate_iops=100\n"
    found, _ = study(tmp_path, iotax, job)
    assert found.load.rate_iops == 1000
    assert {each.name: (each.read, each.share) for each in found.load.accesses()} == {"r": (100, 9), "w": (0, 1)}


def test_a_bandwidth_is_a_rate(tmp_path: Path, iotax) -> None:
    found, _ = study(tmp_path, iotax, "[a]\nrw=read\nbs=64k\nrate=64m\nnumjobs=2\n")
    assert found.load.rate_iops == 2048
    found, said = study(tmp_path, iotax, "[a]\nrw=rw\nrate_iops=100,\n[b]\nrw=read\n")
    assert found.load.rate_iops is None
    assert "rate_iops=100, (a): not a rate of all jobs and both directions: the study is a closed loop" in said


@pytest.mark.parametrize(
    ("options", "load"),
    [
        ("rw=write\nbs=8k,64k", {"block_size": 65536}),
        ("rw=read\nbs=8k,64k", {"block_size": 8192}),
        ("rw=read\nbs=,64k", {"block_size": 4096}),
        ("rw=write\nbs=(4k*16)", {"block_size": 65536}),
        ("rw=write\nbs=(2*4096)", {"block_size": 8192}),
        ("rw=write\nbs=2*$pagesize", {"block_size": 2 * os.sysconf("SC_PAGE_SIZE")}),
        ("rw=write\nbs=0x2000", {"block_size": 8192}),
        ("rw=write\nbs=2304", {"block_size": 2560}),
        ("rw=randrw\nrwmixwrite=30", {"read": 70}),
        ("rw=randrw\nrwmixwrite=30\nrwmixread=20", {"read": 20}),
        ("rw=randrw\nrwmixread=20\nrwmixwrite=30", {"read": 70}),
        ("rw=randread\npercentage_random=60", {"random": 60}),
        ("rw=randwrite\npercentage_random=60,20", {"random": 20}),
        ("rw=randread\niodepth=64\nioengine=pvsync", {"outstanding": 1}),
        ("rw=randread\niodepth=64", {"outstanding": 1}),
        ("rw=randread\niodepth=64\nioengine=io_uring", {"outstanding": 64}),
        ("rw=randread\nruntime=90\nramp_time=1500ms", {"runtime": 90 * 10**9, "warmup": 1_500_000_000}),
        ("rw=randread\nbssplit=4k/30:64k/60:32k/", {"block_size": 65536}),
        ("rw=write\nfdatasync=1", {"fsync": 1, "durable": False}),
        ("rw=randrw\nfsync=32\nsync=dsync", {"fsync": 32, "durable": True}),
        ("rw=read\nsync=1\nfsync=8", {"fsync": 0, "durable": False}),
    ],
)
def test_options_mean_what_fio_makes_of_them(tmp_path: Path, iotax, options: str, load: dict) -> None:
    found, _ = study(tmp_path, iotax, f"[a]\n{options}\n")
    assert {name: getattr(found.load, name) for name in load} == load


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("rw=randread\nbssplit=4k/30:64k/60:32k/", "bssplit=4k/30:64k/60:32k/ (a): a stream has one block size"),
        ("rw=rw\nbs=8k,64k", "bs=8k,64k (a): a stream has one block size: the study takes 8KiB"),
        ("rw=read\nbsrange=4k-64k", "bsrange=4k-64k (a): a stream has one block size: the study takes 4KiB"),
        ("rw=read\nbs=2304", "bs: 2304 bytes are not a multiple of 512: the study takes 2560B"),
        ("rw=randrw\npercentage_random=60,20", "percentage_random=60,20 (a): reads and writes of a stream are alike"),
        ("rw=read:64k", "rw=read:64k (a): what follows the colon has no counterpart"),
        ("rw=read\niodepth=8", "iodepth=8 (a): psync, fio's default, has one I/O in flight"),
        ("rw=write\nsync=1\n[b]\nrw=write", "sync: some jobs write durably and some do not"),
        ("rw=write\nfsync=8\n[b]\nrw=write", "fsync: differs between jobs"),
        ("rw=write\nend_fsync=1", "end_fsync=1: a study flushes after writes only"),
        ("rw=write\nsync_file_range=write:8", "sync_file_range=write:8: a study flushes after writes only"),
        ("rw=write\ndirect=0", "direct=0: fio goes through the page cache"),
        ("rw=read\nthinktime=5ms", "thinktime=5ms: nothing in a study corresponds to it"),
        ("rw=read\nsize=30%", "size=30% (a): of a target that the study does not know"),
        ("rw=read\nruntime=5", "no time_based: fio may end before its runtime"),
        ("rw=read", "no runtime: fio ends when it has done `size` once"),
    ],
)
def test_what_a_study_cannot_follow_is_named(tmp_path: Path, iotax, options: str, said: str) -> None:
    assert said in study(tmp_path, iotax, f"[a]\n{options}\n")[1]


def test_two_sections_of_one_name_are_two_jobs(tmp_path: Path, iotax) -> None:
    found, _ = study(tmp_path, iotax, "[a]\nrw=read\n[a]\nrw=write\n")
    assert {each.name: each.read for each in found.load.accesses()} == {"a": 100, "a-2": 0}


def test_a_global_section_holds_for_what_stands_below_it(tmp_path: Path, iotax) -> None:
    found, _ = study(tmp_path, iotax, "[global]\nrw=read\nbs=4k\n[a]\n[global]\nbs=64k\n[b]\n")
    assert {each.name: each.block_size for each in found.load.accesses()} == {"a": 4096, "b": 65536}


def test_sizes_of_jobs_add_up_unless_they_share_a_file(tmp_path: Path, iotax) -> None:
    jobs = "[a]\nrw=read\nsize=1g\n[b]\nrw=write\nsize=3g\nnumjobs=2\n"
    found, said = study(tmp_path, iotax, jobs)
    assert found.volume.size == 7 << 30 and "size: 7GiB, that of the files of all 3 clones together" in said
    found, _ = study(tmp_path, iotax, f"[global]\nfilename=/dev/sdx\n{jobs}")
    assert found.volume.size == 3 << 30


def test_a_size_is_rounded_to_whole_blocks_of_all_jobs(tmp_path: Path, iotax) -> None:
    found, said = study(tmp_path, iotax, "[global]\nsize=124g\nfilename=x\n[a]\nrw=read\nbs=8k\n[b]\nrw=read\nbs=56k\n")
    assert found.volume.size == (124 << 30) // 57344 * 57344
    assert "size: rounded down from 124GiB to a multiple of 56KiB" in said
    found, said = study(tmp_path, iotax, "[a]\nrw=read\nbs=56k\n")
    assert found.volume.size % 57344 == 0 and "rounded down from 1GiB" in said


def test_variables_are_those_of_the_command_line_or_of_the_environment(
    tmp_path: Path, iotax, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "env.fio").write_text("[global]\nioengine=libaio\nbs=${BS}\niodepth=${QD}\n[j]\nrw=${RW}\n")
    for name in ("BS", "QD", "RW"):
        monkeypatch.delenv(name, raising=False)
    said = iotax("init", "a.yaml", "--from", "env.fio", code=2).output
    assert "env.fio:3: the variables BS, QD, RW are not set: --set BS=VALUE, or set it in the environment" in said
    monkeypatch.setenv("BS", "64k")
    monkeypatch.setenv("QD", "4")
    iotax("init", "a.yaml", "--from", "env.fio", "--set", "RW=randread", "--set", "BS=8k")
    load = load_study("a.yaml")[0].load
    assert (load.read, load.random, load.block_size, load.outstanding) == (100, 100, 8192, 4)
    assert "write NAME=VALUE" in iotax("init", "b.yaml", "--from", "env.fio", "--set", "RW", code=2).output
    assert (
        "--set gives variables to a job file"
        in iotax("init", "b.yaml", "--from", "quick", "--set", "A=1", code=2).output
    )


def test_lines_of_an_included_file_stand_in_its_place(tmp_path: Path, iotax) -> None:
    (tmp_path / "common.fio").write_text("bs=16k\nbogus=1\nrw=${NONE_SUCH}\n")
    (tmp_path / "loop.fio").write_text("include loop.fio\n")
    job = "[global]\ninclude common.fio\n[a]\nrw=write\n"
    (tmp_path / "job.fio").write_text(job)
    said = iotax("init", "mine.yaml", "--from", "job.fio", code=2).output
    assert "common.fio:3: the variable NONE_SUCH is not set" in said
    (tmp_path / "common.fio").write_text("bs=16k\n")
    assert study(tmp_path, iotax, job)[0].load.block_size == 16384
    for text, expected in (
        ("include gone.fio", "job.fio:2: include: no such file"),
        ("include loop.fio", "without end"),
    ):
        (tmp_path / "job.fio").write_text(f"[a]\n{text}\n")
        assert expected in iotax("init", "other.yaml", "--from", "job.fio", code=2).output


def test_what_a_study_refuses_is_told_with_the_line_of_the_job(tmp_path: Path, iotax) -> None:
    """The study has line numbers of its own, which the user has never seen."""
    job = "; one\n[a]\nrw=read\nioengine=libaio\nsize=1g\nfilename=x\niodepth=1000000\n"
    (tmp_path / "job.fio").write_text(job)
    said = iotax("init", "mine.yaml", "--from", "job.fio", code=2).output
    assert "job.fio:5: as a study: volume.size: 1GiB cannot hold all I/Os in flight at once" in said


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("rw=read\n", "job.fio:1: found 'rw=read' before any [job]"),
        ("[global]\nbs=4k\n", "no [job] in it"),
        ("[a]\nrw=trim\n", "rw=trim: a study reads and writes only"),
        ("[a]\nbs=huge\n", "job.fio:2: bs: found 'huge'"),
        ("[a]\niodepth=deep\n", "job.fio:2: iodepth: found 'deep'"),
        ("[a]\nruntime=long\n", "job.fio:2: runtime: found 'long'"),
        ("[a]\nrw=rw\nrwmixread=120\n", "job.fio:3: rwmixread: found '120' where a percentage is expected"),
        ("[a]\nsize=(1/0)\n", "job.fio:2: size: found '(1/0)'"),
        ("[a]\nsize=1k\nbs=4k\n", "less than one block"),
    ],
)
def test_what_is_wrong_with_a_job_is_told(tmp_path: Path, iotax, job: str, said: str) -> None:
    (tmp_path / "job.fio").write_text(job)
    assert said in iotax("init", "mine.yaml", "--from", "job.fio", code=2).output
    assert not (tmp_path / "mine.yaml").exists()
