"""Open loops and several streams in one load, from the study file to the engine's document and its result."""

from __future__ import annotations

from pathlib import Path

import pytest

from faked import FakeEngine
from iotax.analysis.responses import Run
from iotax.analysis.validity import Severity, check_run
from iotax.cli.run import run
from iotax.labs.load import run_document
from iotax.notebook import Notebook
from iotax.study import Study
from iotax.study.read import read_study
from iotax.study.source import StudyError
from iotax.trial import Arrived, CpuUse, Direction, Histogram, Latency, Open, Outstanding, Trial, TrialResult, Window

MIXED = """\
name: mixed
question: Which pattern?
volume: {size: 1MiB}
factors:
  protocol: [local, iscsi]
  streams:
    4k reads: {all: {block_size: 4KiB, read: 100%}}
    8k half and half:
      random: {block_size: 8KiB, random: 100%, share: 50%}
      sequential: {block_size: 8KiB, random: 0%, share: 50%}
  rate_iops: [0, 1000, 4000]
load: {read: 70%, outstanding: 64, workers: 2, warmup: 0s, runtime: 10ms, arrivals: poisson}
design: {replicates: 1, seed: 7}
baseline: {protocol: iscsi}
"""


def document(study: Study, **treatment: str | int) -> dict:
    settings = study.settings({"protocol": "iscsi", **treatment})
    return run_document(settings, "iscsi://h/iqn.x/0", seed=1, driver="auto", cpus=[], watch_pids={})


def test_a_level_of_streams_is_what_the_engine_is_asked() -> None:
    study = read_study("s", MIXED, Path.cwd())
    assert [level.label for level in study.levels()["streams"]] == ["4k reads", "8k half and half"]
    asked = document(study, streams="8k half and half", rate_iops=4000)
    assert asked["pacing"] == {"kind": "open", "rate_iops": 4000, "arrivals": "poisson", "backlog_max": 65536}
    pattern = {"share": 50.0, "block_size_bytes": 8192, "read_percent": 70}
    assert asked["streams"] == [
        {"name": "random", "random_percent": 100, **pattern},
        {"name": "sequential", "random_percent": 0, **pattern},
    ]


def test_a_stream_that_workers_share_is_asked_so() -> None:
    text = MIXED.replace("random: 0%, share", "random: 0%, shared: true, share")
    study = read_study("s", text, Path.cwd())
    asked = document(study, streams="8k half and half", rate_iops=4000)["streams"]
    assert [each.get("shared", False) for each in asked] == [False, True]
    whole = Study.model_validate(
        {
            "name": "s",
            "question": "?",
            "factors": {"protocol": ["iscsi", "nfs3"], "shared": [False, True]},
            "load": {"random": "0%", "workers": 4},
            "baseline": {"protocol": "iscsi"},
        }
    )
    assert document(whole, shared=True)["shared"] is True
    assert "shared" not in document(whole, shared=False)


def test_a_shared_stream_has_no_random_part() -> None:
    with pytest.raises(StudyError) as refused:
        read_study("s", MIXED.replace("random: 100%, share", "random: 100%, shared: true, share"), Path.cwd())
    assert any("say `random: 0%` with it" in line for line in refused.value.lines())


def test_durable_writes_and_flushes_are_asked_of_a_load_that_writes(tmp_path: Path) -> None:
    of = "name: x\nquestion: why?\nfactors: {protocol: [local, iscsi]%s}\nload: {%s}\nbaseline: {protocol: iscsi}\n"
    given = read_study("x.yaml", of % (", fsync: [0, 8]", "read: 70%, durable: true"), tmp_path)
    asked = [document(given, fsync=each) for each in (0, 8)]
    assert [(each.get("durable"), each.get("fsync")) for each in asked] == [(True, None), (True, 8)]
    for text in ("durable: true", "fsync: 8", "fsync: 1, streams: {a: {}, b: {random: 0%}}, workers: 2"):
        with pytest.raises(StudyError, match="a load that only reads makes nothing durable"):
            read_study("x.yaml", of % ("", text), tmp_path)
    read_study("x.yaml", of % ("", "fsync: 1, streams: {a: {}, b: {read: 0%}}, workers: 2"), tmp_path)


def test_a_study_with_streams_survives_the_notebook() -> None:
    study = read_study("s", MIXED, Path.cwd())
    kept = Study.model_validate_json(study.model_dump_json())
    assert (kept, kept.digest(), kept.levels()) == (study, study.digest(), study.levels())


def test_a_closed_load_of_one_pattern_is_asked_as_ever(tiny: Path) -> None:
    study = read_study("s", tiny.read_text(), Path.cwd())
    asked = document(study, outstanding=8)
    assert asked["pacing"] == {"kind": "closed"}
    assert "streams" not in asked


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("outstanding: 64, ", "", "factors.rate_iops: an open loop needs `outstanding:` under load"),
        ("workers: 2, ", "", "2 streams need a worker each; say `workers: 2` or more"),
        ("  rate_iops: [0, 1000, 4000]\n", "", "load.arrivals: means something in an open loop only"),
        ("random: {block_size: 8KiB", "random: {block_size: 1000", "1000B is not a multiple of 512 bytes"),
        ("share: 50%}", "share: 0}", "greater than 0"),
        (", share: 50%}", "}", "8k half and half.random: has no `share:`, while others have"),
        ("share: 50%}", "share: 0.5}", "8k half and half.random.share: 0.5 beside shares above 1"),
        ("poisson", "possion", "did you mean 'poisson'?"),
        ("{all: {block_size: 4KiB, read: 100%}}", "[]", "factors.streams.4k reads"),
        ("runtime: 10ms", "runtime: 10ms, generator: fio", "fio has no load of 0"),
    ],
)
def test_a_slip_is_named(old: str, new: str, said: str) -> None:
    assert old in MIXED
    with pytest.raises(StudyError) as caught:
        read_study("s", MIXED.replace(old, new, 1), Path.cwd())
    assert said in str(caught.value)


def test_rate_zero_is_a_treatment_that_asks_nothing(engine: FakeEngine, tmp_path: Path) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(MIXED)
    run(str(path), tmp_path / "n.iotax", report=False)
    with Notebook(tmp_path / "n.iotax") as notebook:
        attempts = notebook.attempts()
    assert {each.status for each in attempts} == {"done"}
    idle = [each for each in attempts if each.trial.treatment["rate_iops"] == 0]
    assert len(idle) == 4
    assert all(each.result is not None and each.result.ios == 0 and each.result.idle for each in idle)
    assert len(engine.documents("load", task="run")) == 12


def open_run(achieved: float, lateness_us: int) -> Run:
    def latency(us: int) -> Latency:
        ns = us * 1000
        return Latency(
            latency_sum_ns=ns * 1000, latency_min_ns=ns, latency_max_ns=ns, histogram=Histogram(counts=[(ns, 1000)])
        )

    read = Direction(
        ios=1000,
        bytes=4096000,
        latency_sum_ns=200_000_000,
        latency_min_ns=200_000,
        latency_max_ns=200_000,
        histogram=Histogram(counts=[(200_000, 1000)]),
        service=latency(100),
    )
    nothing = Direction(ios=0, bytes=0, latency_sum_ns=0, latency_min_ns=0, latency_max_ns=0)
    result = TrialResult(
        engine_version="0",
        driver="",
        endpoint="iscsi://",
        window=Window(start_unix_ns=0, start_ns=0, duration_ns=10**9),
        read=read,
        write=nothing,
        open=Open(rate_iops=1000, offered=round(1000 / achieved), achieved=achieved, lateness=latency(lateness_us)),
        cpu=CpuUse.model_validate({"initiator": None}),
        outstanding=Outstanding(workers=1, per_worker=64, mean=0.1),
    )
    return Run(Trial(id="t", study="s", treatment={}, block=1, replicate=1, order=1), result)


def test_a_rate_not_held_and_a_late_generator_are_flagged() -> None:
    def levels(run: Run) -> dict[str, Severity]:
        return {check.key: check.level for check in check_run(run)}

    good = levels(open_run(achieved=0.995, lateness_us=5))
    assert (good["little"], good["achieved"], good["lateness"]) == (Severity.GOOD, Severity.GOOD, Severity.GOOD)
    bad = levels(open_run(achieved=0.98, lateness_us=50))
    assert (bad["little"], bad["achieved"], bad["lateness"]) == (Severity.GOOD, Severity.DOUBTFUL, Severity.DOUBTFUL)


def test_together_and_one_by_one_are_different_counts() -> None:
    assert Arrived(offered=5).dropped == 0
    run = open_run(achieved=1.0, lateness_us=1)
    assert run.result.service_mean_ns == 100_000
    assert run.result.latency_mean_ns == 200_000
