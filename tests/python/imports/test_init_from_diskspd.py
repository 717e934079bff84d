"""`iotax init --from`: a command line or a profile of DiskSpd as a study."""

from __future__ import annotations

from pathlib import Path

import pytest
from format_samples import DISKSPD

from iotax.study import Study
from iotax.study.read import load_study

COMMAND = r"diskspd.exe -b8K -d60 -W10 -o16 -t4 -r -w25 -Sh -L -Rxml -c2G E:\test\io.dat"
PROFILE = """\
<Profile>
  <TimeSpans>
    <TimeSpan>
      <Duration>30</Duration><Warmup>3</Warmup><ThreadCount>0</ThreadCount>
      <Targets>
        <Target><Path>a.dat</Path><BlockSize>8192</BlockSize><Random>8192</Random><WriteRatio>30</WriteRatio>
          <RequestCount>8</RequestCount><ThreadsPerFile>2</ThreadsPerFile><FileSize>1073741824</FileSize>
          <Throughput unit="IOPS">500</Throughput></Target>
        <Target><Path>log.dat</Path><BlockSize>65536</BlockSize><WriteRatio>100</WriteRatio>
          <RequestCount>8</RequestCount><ThreadsPerFile>1</ThreadsPerFile>
          <Throughput>65536</Throughput></Target>
      </Targets>
    </TimeSpan>
    <TimeSpan><Targets><Target><Path>c.dat</Path></Target></Targets></TimeSpan>
  </TimeSpans>
</Profile>
"""


def study(iotax, source: object) -> tuple[Study, str]:
    said = iotax("init", "mine.yaml", "--from", source).output
    return load_study("mine.yaml")[0], said


def test_a_command_line_becomes_a_load(iotax) -> None:
    found, said = study(iotax, COMMAND)
    load = found.load
    assert (load.block_size, load.read, load.random) == (8192, 75.0, 100.0)
    assert (load.outstanding, load.workers) == (16, 4)
    assert (load.runtime, load.warmup) == (60_000_000_000, 10_000_000_000)
    assert found.volume.size == 2 << 30
    assert "nothing in a study corresponds" not in said
    assert "name your endpoints under factors: protocol" in said


@pytest.mark.parametrize(
    "rest", [r"#1 > c:\x.txt", r"#1 >> c:\x.txt 2>&1", r"#1 >c:\x.txt", r"#1 2> e.txt | more", "#1 && echo done", "#1"]
)
def test_what_follows_for_the_shell_is_no_target(iotax, rest: str) -> None:
    found, said = study(iotax, f"diskspd.exe -t8 -o4 -b4K -d180 -W60 -r -Sh -L {rest}")
    assert (found.load.workers, found.load.outstanding) == (8, 4)
    assert "nothing in a study corresponds" not in said


def test_what_the_command_line_leaves_out_is_as_diskspd_has_it(iotax) -> None:
    found, _ = study(iotax, "diskspd x.dat")
    load = found.load
    assert (load.block_size, load.read, load.random, load.outstanding, load.workers) == (65536, 100.0, 0.0, 2, 1)
    assert (load.runtime, load.warmup) == (10_000_000_000, 5_000_000_000)


@pytest.mark.parametrize(
    ("options", "rate_iops"), [("-g500i -t2", 1000), ("-b8K -g8192 -t1", 1000), ("-g100i -F4", 400), ("-g0", None)]
)
def test_a_rate_of_a_thread_is_one_of_all(iotax, options: str, rate_iops: float | None) -> None:
    found, _ = study(iotax, f"diskspd {options} x.dat")
    assert found.load.rate_iops == rate_iops


def test_a_share_at_random_places_is_kept(iotax) -> None:
    assert study(iotax, "diskspd -rs30 x.dat")[0].load.random == 30


@pytest.mark.parametrize(
    ("options", "shared"), [("-si -t4", True), ("-si64K -t4", True), ("-s -t4", False), ("-si -t1", False)]
)
def test_threads_that_share_a_sequence_share_a_stream(iotax, options: str, shared: bool) -> None:
    assert study(iotax, f"diskspd {options} x.dat")[0].load.shared == shared


def test_a_target_whose_threads_share_a_sequence_is_a_shared_stream(tmp_path: Path, iotax) -> None:
    element = "<InterlockedSequential>true</InterlockedSequential><ThreadsPerFile>3</ThreadsPerFile>"
    profile = PROFILE.replace("<ThreadsPerFile>1</ThreadsPerFile>", element)
    (tmp_path / "p.xml").write_text(profile)
    streams = study(iotax, tmp_path / "p.xml")[0].load.streams
    assert streams is not None
    assert [stream.shared for stream in streams.values()] == [None, True]


def test_options_that_no_study_has_are_told(iotax) -> None:
    said = study(iotax, "diskspd -T1M -b4K x.dat")[1]
    assert "note: -T1M: nothing in a study corresponds to it" in said


def test_targets_of_a_profile_are_streams(tmp_path: Path, iotax) -> None:
    (tmp_path / "run.xml").write_text(PROFILE)
    found, said = study(iotax, "run.xml")
    accesses = {each.name: (each.block_size, each.read, each.random, each.share) for each in found.load.accesses()}
    assert accesses == {"target-1": (8192, 70.0, 100.0, 2.0), "target-2": (65536, 0.0, 0.0, 1.0)}
    # 2 × 500, and 65,536 bytes per ms in blocks of 64 KiB.
    assert (found.load.workers, found.load.outstanding, found.load.rate_iops) == (3, 8, 2000)
    assert found.volume.size == 1 << 30
    assert "later time spans are left out" in said
    assert (tmp_path / "run.xml").read_text() == PROFILE


def test_a_result_repeats_its_profile(tmp_path: Path, iotax) -> None:
    (tmp_path / "result.xml").write_text(DISKSPD)
    load = study(iotax, "result.xml")[0].load
    assert (load.block_size, load.outstanding, load.workers, load.random) == (8192, 16, 2, 100.0)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("diskspd -b4K", "it names no target"),
        ("diskspd -bhuge x.dat", "-bhuge: a size such as 8K is expected"),
        ("diskspd -tmany x.dat", "-tmany: a whole number is expected"),
        ("diskspd -gfast x.dat", "a number of bytes per ms"),
        ("diskspd -b1K -d0 x.dat", "runtime"),
        ("other.xml", "no `<Profile>` or `<Results>` of DiskSpd"),
        ("cut.xml", "cut.xml:6: the XML ends in the middle"),
        ("wrong.xml", "wrong.xml: Target/BlockSize: found '8K' where a whole number is expected"),
        ("missing.xml", "missing.xml: cannot be read"),
    ],
)
def test_what_is_no_job_of_diskspd_is_refused(tmp_path: Path, iotax, source: str, said: str) -> None:
    (tmp_path / "other.xml").write_text("<other/>")
    (tmp_path / "cut.xml").write_text(PROFILE[:150])
    (tmp_path / "wrong.xml").write_text(PROFILE.replace("8192</BlockSize>", "8K</BlockSize>"))
    assert said in iotax("init", "mine.yaml", "--from", source, code=2).output
    assert not (tmp_path / "mine.yaml").exists()


@pytest.mark.parametrize(
    ("words", "workers", "outstanding"),
    [("-o32 -F8", 8, 64), ("-o32 -O24 -F8", 8, 24), ("-o32 -t8", 16, 32)],
)
def test_threads_that_serve_all_targets_have_their_ios_in_flight_to_each(
    tmp_path: Path, iotax, words: str, workers: int, outstanding: int
) -> None:
    """As in imports of results: 8 threads with 32 I/Os to each of two targets are 512 I/Os in all."""
    iotax("init", "mine.yaml", "--from", f"diskspd -b64K {words} -r f1.dat f2.dat")
    load = load_study("mine.yaml")[0].load
    assert (load.workers, load.outstanding) == (workers, outstanding)
