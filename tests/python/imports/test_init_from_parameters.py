"""`iotax init --from`: parameter files of vdbench, configurations of Iometer and scripts of DiskSpd as studies."""

from __future__ import annotations

from pathlib import Path

import pytest
from answer_samples import DISKSPD_TEXT

from iotax.design import plan
from iotax.study import Study
from iotax.study.read import load_study

GIB = 1 << 30
INTEGRATOR = """\
* Four sizes, three mixes, 10 s of warm-up and 5 min a point.
hd=default,vdbench=/opt/vdbench,user=root,shell=ssh
hd=vm1,system=vm1
sd=default,openflags=o_direct,size=10g
sd=sd1,lun=/dev/sdb
sd=sd2,lun=/dev/sdc
wd=wd1,sd=sd*,seekpct=100
rd=rd1,wd=wd1,iorate=max,warmup=10,elapsed=300,interval=1,
  forxfersize=(4k,16k,32k,64k),forrdpct=(100,0,50),threads=8
"""
CONFIGURATION = """\
Version 1.1.0
'TEST SETUP ====================================================================
'Run Time
'	hours      minutes    seconds
	0          5          0
'Ramp Up Time (s)
	300
'Queue Depth Cycling
'	start      end        step       step type
	1          16         2          EXPONENTIAL
'Test Type
	{kind}
'END test setup
'ACCESS SPECIFICATIONS =========================================================
'Access specification name,default assignment
	Default,NONE
'size,% of size,% reads,% random,delay,burst,align,reply
	2048,100,67,100,0,1,0,0
'Access specification name,default assignment
	4K 75 read,NONE
'size,% of size,% reads,% random,delay,burst,align,reply
	4096,100,75,100,0,1,0,0
'Access specification name,default assignment
	8K 75 read,NONE
'size,% of size,% reads,% random,delay,burst,align,reply
	8192,100,75,100,0,1,0,0
'END access specifications
'MANAGER LIST ==================================================================
{managers}'END manager list
Version 1.1.0
"""
MANAGER = """\
'Manager ID, manager name
	{number},VM{number}
'Worker
	Worker 1
'Worker type
	DISK
'Default target settings for worker
'Number of outstanding IOs,test connection rate,transactions per connection,use fixed seed,fixed seed value
	4,DISABLED,1,DISABLED,0
'Disk maximum size,starting sector,Data pattern
	20971520,0,0
'End default target settings for worker
'Assigned access specs
	4K 75 read
	8K 75 read
'End assigned access specs
'Target assignments
'Target
	E: ""
'Target type
	DISK
'End target
'End target assignments
'End worker
'End manager
"""
SCRIPT = r"""
rem five patterns, as the source ran them
diskspd.exe -t8 -si -b4K -w0 -o4 -d180 -W60 -Sh -D -L -r #1 > c:\log\t8-o4-4k-rand-read.txt
diskspd.exe -t8 -b4K -w100 -o4 -d180 -W60 -Sh -D -L -r #1 > c:\log\t8-o4-4k-rand-write.txt
diskspd.exe -t8 -b64K -w0 -o4 -d180 -W60 -Sh -D -L #1 > c:\log\t8-o4-64k-seq-read.txt
diskspd.exe -t8 -b64K -w100 -o4 -d180 -W60 -Sh -D -L #1 > c:\log\t8-o4-64k-seq-write.txt
diskspd.exe -t8 -b8K -w30 -o4 -d180 -W60 -Sh -D -L -r #1 > c:\log\t8-o4-8k.txt
"""


def made(iotax, source: Path) -> tuple[Study, str]:
    said = iotax("init", "mine.yaml", "--from", source).output
    study = load_study("mine.yaml")[0]
    assert plan(study).trials
    return study, said


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def configuration(path: Path, *, managers: int = 1, kind: str = "NORMAL") -> Path:
    listed = "".join(MANAGER.format(number=number) for number in range(1, managers + 1))
    return written(path, CONFIGURATION.format(kind=kind, managers=listed))


def test_what_a_vdbench_run_loops_over_becomes_factors(tmp_path: Path, iotax) -> None:
    study, said = made(iotax, written(tmp_path / "parmfile", INTEGRATOR))
    levels = {name: [each.label for each in found] for name, found in study.levels().items()}
    assert levels == {
        "protocol": ["iscsi", "nvme-tcp"],
        "block_size": ["4KiB", "16KiB", "32KiB", "64KiB"],
        "read": ["100%", "0%", "50%"],
    }
    load = study.load
    # 8 threads on each of two storage definitions.
    assert (load.random, load.workers, load.outstanding, load.rate_iops) == (100.0, 2, 8, None)
    assert (load.warmup, load.runtime) == (10 * 10**9, 300 * 10**9)
    assert study.volume.size == 20 * GIB
    assert "lun: the study uses iotax's own volume" in said


def test_held_rates_of_vdbench_are_rates_of_a_study(tmp_path: Path, iotax) -> None:
    text = INTEGRATOR.replace("iorate=max", "iorate=(1000,4000)").replace(",forrdpct=(100,0,50)", "")
    study, _ = made(iotax, written(tmp_path / "p.parm", text))
    assert [level.value for level in study.levels()["rate_iops"]] == [1000, 4000]


def test_workloads_side_by_side_are_streams(tmp_path: Path, iotax) -> None:
    text = """\
sd=sd1,lun=/dev/sdb,threads=16
wd=oltp,sd=sd1,xfersize=8k,rdpct=70,seekpct=100,skew=80
wd=log,sd=sd1,xfersize=64k,rdpct=0,seekpct=seq,skew=20
rd=run,wd=*,iorate=5000,elapsed=60
"""
    study, said = made(iotax, written(tmp_path / "p", text))
    streams = study.load.streams
    assert [(each.block_size, each.read, each.random, each.share) for each in streams.values()] == [
        (8192, 70.0, 100.0, 80.0),
        (65536, 0.0, 0.0, 20.0),
    ]
    assert study.load.rate_iops == 5000
    assert (study.load.workers, study.load.outstanding) == (2, 8)
    assert "2 patterns at once: each has a worker of its own in a study, with 8 of the 16 outstanding I/Os" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rd=r,wd=w\n", "it has no sd= definition"),
        ("sd=s,lun=/x\nwd=w,sd=s\nrd=r,wd=other,elapsed=5\n", ":3: wd: found 'other', which names no workload"),
        ("sd=s,lun=/x\nwd=w,sd=s,xfersize=huge\nrd=r,wd=w\n", ":2: xfersize: found 'huge' where a size"),
        ("sd=s,lun=/x\nwd=w,sd=s,rdpct=200\nrd=r,wd=w\n", ":2: rdpct: found '200' where a number"),
        ("fsd=f,anchor=/x\nfwd=w,fsd=f\nrd=r,fwd=w\n", "it loads a file system"),
        ("sd=s\nwd=w\nrd=r,wd=w,forthreads=(" + ",".join(map(str, range(1, 1500))) + ")\n", "are not a study"),
        ("sd=s\nwd=w\nrd=r,wd=w,elapsed=\x00\n", "elapsed: found"),
    ],
)
def test_a_file_of_vdbench_that_is_none_is_told_with_its_line(tmp_path: Path, iotax, text: str, said: str) -> None:
    output = iotax("init", "mine.yaml", "--from", written(tmp_path / "p", text), code=2).output
    assert said in output.replace("\n", " ").replace("  ", " ") or said in output


def test_an_iometer_configuration_is_a_study_of_its_access_specifications(tmp_path: Path, iotax) -> None:
    study, said = made(iotax, configuration(tmp_path / "tr.icf", managers=20))
    assert [level.label for level in study.levels()["block_size"]] == ["4KiB", "8KiB"]
    load = study.load
    # 20 virtual machines with 4 outstanding I/Os each.
    assert (load.workers, load.outstanding, load.read, load.random) == (20, 4, 75.0, 100.0)
    assert (load.warmup, load.runtime) == (300 * 10**9, 300 * 10**9)
    assert study.volume.size == 10 * GIB
    assert "20 managers: the load is that of all together" in said


def test_cycling_of_outstanding_ios_is_a_factor(tmp_path: Path, iotax) -> None:
    study, _ = made(iotax, configuration(tmp_path / "tr.icf", kind="CYCLE_OUTSTANDING_IOS"))
    assert [level.value for level in study.levels()["outstanding"]] == [1, 2, 4, 8, 16]
    assert len(study.levels()["block_size"]) == 2


def test_an_access_specification_of_several_lines_is_streams(tmp_path: Path, iotax) -> None:
    path = configuration(tmp_path / "a.icf")
    path.write_text(
        path.read_text().replace("4096,100,75,100,0,1,0,0", "4096,60,75,100,0,1,0,0\n\t65536,40,0,0,0,1,0,0")
    )
    study, _ = made(iotax, path)
    streams = study.factors.streams["4K 75 read"]
    assert [(each.block_size, each.share) for each in streams.values()] == [(4096, 60.0), (65536, 40.0)]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("4096,100,75,100", "4096,100,many,100", "where size, % of size, % reads and % random are expected"),
        ("\t4,DISABLED", "\tfour,DISABLED", "outstanding I/Os: found 'four' where a whole number is expected"),
        ("'Target\n", "'Nothing\n", "it has no disk worker with targets"),
        ("'size,", "'length,", "not an Iometer configuration"),
    ],
)
def test_a_broken_configuration_is_told_with_its_line(
    tmp_path: Path, iotax, before: str, after: str, said: str
) -> None:
    path = configuration(tmp_path / "a.icf")
    path.write_text(path.read_text().replace(before, after))
    assert said in iotax("init", "mine.yaml", "--from", path, code=2).output.replace("\n", " ")


def test_a_script_of_diskspd_lines_is_a_study_of_them(tmp_path: Path, iotax) -> None:
    study, _ = made(iotax, written(tmp_path / "run.cmd", SCRIPT))
    assert (study.load.workers, study.load.outstanding) == (8, 4)
    assert (study.load.warmup, study.load.runtime) == (60 * 10**9, 180 * 10**9)
    patterns = [streams["all"] for streams in study.factors.streams.values()]
    assert [(each.block_size, each.read, each.random) for each in patterns] == [
        (4096, 100.0, 100.0),
        (4096, 0.0, 100.0),
        (65536, 100.0, 0.0),
        (65536, 0.0, 0.0),
        (8192, 70.0, 100.0),
    ]


def test_lines_that_differ_in_size_alone_are_a_factor(tmp_path: Path, iotax) -> None:
    lines = "".join(f"diskspd -b{size} -r -o8 -t2 x.dat\n" for size in ("4K", "8K", "64K"))
    study, _ = made(iotax, written(tmp_path / "run.bat", lines))
    assert [level.label for level in study.levels()["block_size"]] == ["4KiB", "8KiB", "64KiB"]
    assert not study.factors.streams


def test_a_quote_that_does_not_end_is_told(iotax, tmp_path: Path) -> None:
    assert "cannot be read: No closing quotation" in iotax("init", "m.yaml", "--from", 'diskspd -b4K "x', code=2).output
    script = written(tmp_path / "r.bat", 'diskspd -b4K x.dat\ndiskspd -b8K "y\n')
    assert "r.bat:2:" in iotax("init", "m.yaml", "--from", script, code=2).output


def test_what_diskspd_printed_is_a_study_of_what_it_ran(iotax, tmp_path: Path) -> None:
    """DiskSpd's text output contains the run's parameters, like its XML."""
    study, _ = made(iotax, written(tmp_path / "out.txt", DISKSPD_TEXT))
    load = study.load
    assert (load.block_size, load.read, load.random) == (8192, 75.0, 100.0)
    assert (load.workers, load.outstanding) == (2, 4)
    assert (load.runtime, load.warmup) == (60 * 10**9, 5 * 10**9)


def test_runs_that_were_printed_into_one_text_are_treatments(iotax, tmp_path: Path) -> None:
    text = DISKSPD_TEXT + DISKSPD_TEXT.replace("block size: 8KiB", "block size: 64KiB")
    study, _ = made(iotax, written(tmp_path / "out.txt", text))
    assert [level.label for level in study.levels()["block_size"]] == ["8KiB", "64KiB"]
