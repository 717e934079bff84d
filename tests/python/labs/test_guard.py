"""Data of others are destroyed only if an option names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from faked import FakeEngine
from iotax.cli.app import app

ARRAY = "iscsi://127.0.0.1:3260/iqn.2001-05.org.example:vol1/0"
DISK = "local:/dev/iotax-test"

STUDY = """\
name: mine
question: Whose data?
volume: {size: 1MiB}
factors:
  protocol: {array: "%s", iscsi: iscsi}
load: {read: 75%%, warmup: 0s, runtime: 10ms}
design: {replicates: 1}
baseline: {protocol: iscsi}
"""
GB = 1 << 30
EXT4 = {"size_bytes": GB, "holds": "foreign", "what": "an ext4 file system", "at_bytes": 1080}


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(STUDY % ARRAY)
    return path


def iotax(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def run(study: Path, *options: str) -> Any:
    return iotax("run", study, "--no-report", *options)


def written(engine: FakeEngine) -> list[dict[str, Any]]:
    return [each for task in ("fill", "run") for each in engine.documents("load", task=task, endpoint=ARRAY)]


def test_foreign_data_are_refused_and_nothing_is_written(engine: FakeEngine, study: Path) -> None:
    engine.endpoints({ARRAY: EXT4})
    done = run(study)
    assert done.exit_code == 3
    assert (
        f"array ({ARRAY}): holds an ext4 file system at byte 1080 that iotax did not write. Nothing was changed."
        in (done.output)
    )
    assert f"add --destroy {ARRAY}" in done.output
    assert written(engine) == []


def test_destroy_names_the_very_endpoint(engine: FakeEngine, study: Path) -> None:
    engine.endpoints({ARRAY: EXT4})
    other = run(study, "--destroy", ARRAY[:-1] + "1")
    assert other.exit_code == 2
    assert "the study has no such endpoint" in other.output
    assert written(engine) == []
    done = run(study, "--destroy", ARRAY)
    assert done.exit_code == 0, done.output
    [fill] = engine.documents("load", task="fill")
    assert fill["destroy"] == ARRAY
    assert len(engine.documents("load", task="run", endpoint=ARRAY)) == 1


def test_destroy_of_one_endpoint_does_not_give_away_another(engine: FakeEngine, study: Path) -> None:
    study.write_text(study.read_text().replace("iscsi: iscsi}", f'iscsi: iscsi, disk: "{DISK}"}}'))
    engine.endpoints({ARRAY: EXT4, DISK: {"size_bytes": GB, "holds": "foreign", "what": "a partition table"}})
    done = run(study, "--destroy", ARRAY)
    assert done.exit_code == 3
    assert "disk (local:/dev/iotax-test): holds a partition table" in done.output
    assert written(engine) == []


def test_a_path_may_be_destroyed_as_the_study_writes_it(engine: FakeEngine, study: Path) -> None:
    study.write_text(STUDY % "/dev/iotax-test")
    engine.endpoints({DISK: EXT4})
    assert run(study, "--destroy", "/dev/iotax-test").exit_code == 0


@pytest.mark.parametrize("holds", ["zeros", "pattern"])
def test_zeros_and_our_own_pattern_may_be_written_over(engine: FakeEngine, study: Path, holds: str) -> None:
    engine.endpoints({ARRAY: {"size_bytes": GB, "holds": holds, "scanned_bytes": GB}})
    assert run(study).exit_code == 0
    [fill] = engine.documents("load", task="fill")
    assert "destroy" not in fill


def test_foreign_data_may_be_read(engine: FakeEngine, study: Path) -> None:
    text = study.read_text().replace("read: 75%", "read: 100%, verify: false").replace("1MiB}", "1MiB, fill: zeros}")
    study.write_text(text)
    engine.endpoints({ARRAY: EXT4})
    done = run(study)
    assert done.exit_code == 0, done.output
    assert engine.documents("load", task="fill") == []


@pytest.mark.parametrize(
    ("described", "code", "said"),
    [
        (
            {"size_bytes": GB, "holds": "zeros", "read_only": True},
            4,
            "is read-only, and the study writes; say `read: 100%`",
        ),
        ({"size_bytes": 4096, "holds": "zeros"}, 4, "holds 4KiB, but the working set is 1MiB"),
        ({"size_bytes": GB, "holds": "zeros", "block_size_bytes": 8192}, 4, "its blocks have 8192 bytes"),
        ({"error": "refused"}, 4, "is the target up, and is it the right port (3260"),
        ({"error": "unreachable"}, 4, "the host does not answer"),
        ({"error": "not_found"}, 4, "check the IQN and the LUN; `iscsiadm -m discovery -t sendtargets -p 127.0.0.1`"),
        ({"error": "denied"}, 4, "let this initiator's name in at the target"),
        ({"error": "foreign_data"}, 3, f"to destroy it, add --destroy {ARRAY}"),
        ({"error": "internal"}, 4, "the endpoint was told to fail"),
    ],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_what_stands_in_the_way_is_explained_before_anything_runs(
    engine: FakeEngine, study: Path, command: str, described: dict[str, Any], code: int, said: str
) -> None:
    engine.endpoints({ARRAY: described})
    done = iotax(command, study)
    assert done.exit_code == code, done.output
    assert said in done.output
    assert written(engine) == []


def test_check_writes_nothing_where_all_is_well(engine: FakeEngine, study: Path) -> None:
    engine.endpoints({ARRAY: {"size_bytes": GB, "holds": "zeros"}})
    done = iotax("check", study)
    assert done.exit_code == 0
    assert f"ok array ({ARRAY}): 1GiB, holds zeros" in done.output
    assert {each["task"] for each in engine.documents("load")} == {"check"}


def test_a_file_that_is_not_there_can_be_made(engine: FakeEngine, study: Path, tmp_path: Path) -> None:
    study.write_text(STUDY % "./none.img")
    engine.endpoints({f"local:{tmp_path}/none.img": {"error": "not_found"}})
    assert f"`truncate -s 1G {tmp_path}/none.img` makes one" in iotax("check", study).output


def test_memory_that_is_not_there_is_noticed(engine: FakeEngine, study: Path) -> None:
    del engine
    study.write_text(study.read_text().replace("1MiB", "1024TiB"))
    done = run(study)
    assert done.exit_code == 4
    assert "a memory volume of 1024TiB does not fit" in done.output
