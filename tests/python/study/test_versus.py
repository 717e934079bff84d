"""`iotax vs`: a comparison with fio's options, the study that it writes, and the data that it leaves alone."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from faked import FakeEngine
from iotax.cli import complete
from iotax.cli.app import app
from iotax.cli.exits import Exit
from iotax.cli.versus import in_options
from iotax.design.shape import best_shape, reach, session_ns
from iotax.notebook import Notebook
from iotax.study.read import read_study
from iotax.study.versus import Asked, VersusError, initiators_of, name_of, study_text, targets_of

LOAD = Asked(rw="randrw", rwmixread=75, bs_bytes=8192, iodepth=16, numjobs=2, size_bytes=64 << 20)
ARRAYS = ("iscsi://h1/iqn.2001-05.x/0", "iscsi://h2/iqn.2001-05.x/0")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def vs(*words: object) -> Any:
    return CliRunner().invoke(app, ["vs", *map(str, words)])


def text(targets: dict[str, str], asked: Asked = LOAD) -> str:
    return study_text(
        targets, asked, command="iotax vs", sessions=6, rounds=8, slice_ns=250_000_000, settle_ns=10_000_000
    )


def test_fios_words_become_the_load_of_a_study() -> None:
    study = read_study("vs.yaml", text(targets_of(["nvme-tcp", "iscsi"])), Path.cwd())
    load = study.load
    assert (load.block_size, load.read, load.random, load.outstanding, load.workers) == (8192, 75, 100, 16, 2)
    assert (study.volume.size, study.volume.fill, load.verify) == (64 << 20, "pattern", True)
    assert study.baseline == {"protocol": "nvme-tcp"}
    assert "rw=randrw, rwmixread=75, bs=8KiB, iodepth=16, numjobs=2, size=64MiB" in study.question
    assert study.design.slices is not None
    assert (study.design.sessions, study.design.slices.rounds) == (6, 8)


def test_a_rate_makes_an_open_loop_that_size_can_use() -> None:
    asked = dataclasses.replace(LOAD, rate_iops=70_000)
    study = read_study("vs.yaml", text(targets_of(["nvme-tcp", "iscsi"]), asked), Path.cwd())
    assert (study.load.rate_iops, study.load.arrivals) == (70_000, "poisson")
    assert "iops=70000" in study.question
    assert study.name.endswith("-16x2-70000iops")
    assert "rate_iops" not in text(targets_of(["nvme-tcp", "iscsi"]))


@pytest.mark.parametrize(
    ("rw", "read", "random"),
    [("read", 100, 0), ("write", 0, 0), ("randread", 100, 100), ("randwrite", 0, 100), ("rw", 75, 0)],
)
def test_each_rw_says_what_is_read_and_where(rw: str, read: float, random: float) -> None:
    asked = Asked(rw, 75, 4096, 1, 1, 1 << 20)
    load = yaml.safe_load(text(targets_of(["local", "iscsi"]), asked))["load"]
    assert (load["read"], load["random"]) == (f"{read}%", f"{random}%")


def test_endpoints_have_labels_of_their_own() -> None:
    assert targets_of(ARRAYS) == {"iscsi": ARRAYS[0], "iscsi 2": ARRAYS[1]}
    assert targets_of([f"old={ARRAYS[0]}", f"new={ARRAYS[1]}"]) == {"old": ARRAYS[0], "new": ARRAYS[1]}
    nvme = "nvme-tcp://h/nqn.2014-08.org.x:v?ns=1"
    assert targets_of([nvme, "/dev/nvme0n1"]) == {"nvme-tcp": nvme, "nvme0n1": "/dev/nvme0n1"}
    study = read_study("vs.yaml", text(targets_of(ARRAYS)), Path.cwd())
    assert {label: endpoint.uri for label, endpoint in study.endpoints().items()} == targets_of(ARRAYS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["iscsi"], "two endpoints or more"),
        (["iscsi", "iscsi"], "`iotax aa`"),
        (["a=iscsi", "a=nfs3"], "a label of its own"),
        (["iscsi", "fcp-loop"], "vm lab"),
        (["iscsi", "smb://h/x"], "not a protocol that iotax speaks"),
    ],
)
def test_what_is_no_comparison_is_refused_with_what_to_write(words: list[str], said: str) -> None:
    with pytest.raises(VersusError, match=said):
        targets_of(words)
    assert vs(*words).exit_code == Exit.USAGE


def test_only_reading_leaves_endpoints_of_others_as_they_are() -> None:
    reads = Asked("randread", 50, 4096, 1, 1, 1 << 20)
    foreign = read_study("vs.yaml", text(targets_of(["/dev/sdx", "iscsi"]), reads), Path.cwd())
    assert (foreign.volume.fill, foreign.load.verify) == ("zeros", False)
    assert not any(foreign.settings({"protocol": label}).writes for label in foreign.endpoints())
    ours = read_study("vs.yaml", text(targets_of(["nfs3", "iscsi"]), reads), Path.cwd())
    assert (ours.volume.fill, ours.load.verify) == ("pattern", True)


KERNEL = ("kernel:iscsi://h1/iqn.2001-05.x/0", "kernel:nvme-tcp://h1/nqn.x?ns=1")


def test_hosts_run_the_load_in_turns_and_kernels_paths_need_one() -> None:
    targets = targets_of(KERNEL)
    assert initiators_of(None, targets_of(ARRAYS)) == []
    assert initiators_of(None, targets) == ["localhost"]
    assert initiators_of(None, targets_of(["guest-disk://nfs01", "guest-disk://iscsi01"])) == ["localhost"]
    named = initiators_of("h1,joe@h2:2222", targets)
    assert named == ["h1", {"user": "joe", "name": "h2", "port": 2222}]
    written = study_text(
        targets, LOAD, command="iotax vs", sessions=6, rounds=8, slice_ns=250_000_000, settle_ns=10_000_000,
        initiators=named,
    )  # fmt: skip
    study = read_study("vs.yaml", written, Path.cwd())
    assert study.lab.hosts is not None
    assert [host.name for host in study.lab.hosts.initiator_hosts()] == ["h1", "h2"]
    assert study.design.slices is not None


@pytest.mark.parametrize(
    ("hosts", "words", "said"),
    [
        (
            "h1",
            ["nfs3", "iscsi"],
            "nfs3 is served by this machine; hosts need an endpoint they can reach, such as nfs://",
        ),
        ("h 1", KERNEL, "'h 1' is not a host: write"),
        ("h1,,h2", KERNEL, "'' is not a host: write"),
    ],
)
def test_hosts_that_cannot_be_are_refused_with_what_to_write(hosts: str, words: list[str], said: str) -> None:
    done = vs(*words, "--hosts", hosts)
    assert done.exit_code == Exit.USAGE
    assert said in " ".join(done.output.split())


def test_a_long_comparison_has_a_name_that_a_study_may_have() -> None:
    targets = {f"an array with a long name {number}": ARRAYS[0] for number in range(9)}
    assert len(name_of(targets, LOAD)) <= 64


def test_given_time_is_kept_and_used_for_the_narrowest_interval() -> None:
    for treatments, seconds in [(2, 30), (2, 120), (3, 60), (12, 160)]:
        shape = best_shape(treatments, seconds * 10**9)
        assert 0.8 * seconds * 1e9 < shape.duration_ns <= seconds * 1e9
        for sessions in range(4, 40):
            for rounds in range(2, 60):
                if sessions * session_ns(treatments, rounds) <= seconds * 1e9:
                    assert shape.reach <= reach(sessions, rounds, 0.1) + 1e-12
    # Scatter between sessions requires more sessions; noise of slices requires more rounds.
    for treatments in (1, 2, 3, 9):
        on_hosts = best_shape(treatments, 10**11, hosts=True)
        took_ns = on_hosts.sessions * session_ns(treatments, on_hosts.rounds, hosts=True)
        assert took_ns == on_hosts.duration_ns <= 10**11
        assert on_hosts.sessions * session_ns(treatments, on_hosts.rounds + 1, hosts=True) > 10**11
    assert best_shape(2, 10**11, 1.0).sessions > best_shape(2, 10**11, 0.01).sessions
    with pytest.raises(ValueError, match="at least"):
        best_shape(12, 10**10)


def test_vs_measures_writes_its_study_and_answers(engine: FakeEngine) -> None:
    done = vs(
        "nvme-tcp", "iscsi", "--bs", "8k", "--iodepth", 4, "--rw", "rw", "--rwmixread", "70%", "--time", "20s", "--long"
    )
    assert done.exit_code == 0, done.output
    assert "rw=rw, rwmixread=70, bs=8KiB, iodepth=4, numjobs=1, size=512MiB" in done.output
    assert re.search(r"^iSCSI .* NVMe/TCP in IOPS", done.output, re.MULTILINE), done.output
    file = Path("out/vs-nvme-tcp-iscsi-rw-8KiB-4x1.yaml")
    assert file.read_text().startswith("# iotax vs nvme-tcp iscsi --rw rw --rwmixread 70 --bs 8KiB --iodepth 4")
    load = engine.documents("session")[0]["loads"][0]["load"]
    assert (load["block_size_bytes"], load["outstanding"], load["read_percent"], load["random_percent"]) == (
        8192,
        4,
        70,
        0,
    )
    with Notebook(file.with_suffix(".iotax")) as notebook:
        assert all(each.status == "done" for each in notebook.attempts())
    # Repeating the command measures nothing new; the study runs like any other.
    again = vs("nvme-tcp", "iscsi", "--bs", "8k", "--iodepth", 4, "--rw", "rw", "--rwmixread", "70%", "--time", "20s")
    assert (again.exit_code, "--again" in again.output) == (0, True)
    assert CliRunner().invoke(app, ["plan", str(file)]).exit_code == 0


def test_vs_loads_endpoints_over_several_paths(engine: FakeEngine) -> None:
    nqn, iqn = "nqn.2026-11.org.example:v", "iqn.2026-11.org.example:v"
    endpoints = [f"nvme-tcp://10.0.0.5,10.0.1.5/{nqn}?ns=1", f"iscsi://10.0.0.5,10.0.1.5/{iqn}/1"]
    done = vs(*endpoints, "--time", "20s", "--no-report", *(f"--destroy={each}" for each in endpoints))
    assert done.exit_code == 0, done.output
    asked = [each["load"]["endpoint"] for each in engine.documents("session")[0]["loads"]]
    assert sorted(asked) == sorted(endpoints)


def test_study_that_somebody_changed_is_never_replaced(engine: FakeEngine) -> None:
    del engine
    words = ("nfs3", "iscsi", "--time", "20s", "--no-report")
    assert vs(*words, "--study", "mine.yaml").exit_code == 0
    mine = Path("mine.yaml")
    mine.write_text(mine.read_text() + "margin: 3%\n")
    changed = mine.read_text()
    assert vs(*words, "--study", "mine.yaml").exit_code == Exit.USAGE
    assert mine.read_text() == changed


def test_messages_name_the_options_of_vs_and_no_fields_of_a_study() -> None:
    said = "accepts at most 4KiB per I/O, and `block_size:` is 8KiB; `outstanding: 9000` is more than one connection"
    assert in_options(said) == said.replace("`block_size:`", "`--bs`").replace(
        "`outstanding: 9000`", "`--iodepth 9000`"
    )
    assert in_options("say a smaller `size:` under volume") == "say a smaller `--size`"


def test_too_short_a_time_says_how_long_it_takes() -> None:
    done = vs("nfs3", "iscsi", "--time", "1s")
    assert done.exit_code == Exit.USAGE
    assert "--time 1s is too short: 2 treatments take" in done.output
    assert not Path("out").exists()


@pytest.mark.usefixtures("real_engine")
def test_foreign_data_are_read_but_not_written_without_destroy(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"somebody's thesis, chapter 1. " * (1 << 20))
    before = (tmp_path / "a").read_bytes()
    words = ("./a", "./b", "--size", "16m", "--time", "10s", "--iodepth", 4, "--no-report")
    read = vs(*words)
    assert read.exit_code == 0, read.output
    refused = vs(*words, "--rw", "randwrite")
    assert refused.exit_code == Exit.REFUSED, refused.output
    assert "to only read, say `--rw read` or `--rw randread`" in " ".join(refused.output.split())
    small = vs("./a", "./b", "--size", "64m", "--time", "10s", "--no-report")
    assert small.exit_code == Exit.LAB, small.output
    assert "the working set is 64MiB; say a smaller `--size`" in " ".join(small.output.split())
    assert (tmp_path / "a").read_bytes() == before
    given = vs(*words, "--rw", "randwrite", "--destroy", tmp_path / "a", "--destroy", tmp_path / "b")
    assert given.exit_code == 0, given.output
    assert (tmp_path / "a").read_bytes() != before


def test_endpoints_are_completed_by_protocols() -> None:
    assert list(complete.endpoints("n")) == ["nfs3", "nfs4.1", "nvme-tcp"]
