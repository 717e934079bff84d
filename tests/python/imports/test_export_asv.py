"""`iotax export --format asv`, as airspeed velocity 0.6 reads it; `asv compare`, `show` and `publish` were tried."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from import_samples import fio_campaign

BEFORE, AFTER = "0a" * 20, "1b" * 20
PATTERN = ("--name-pattern", "{protocol}-{bs}-r{replicate}.json")


@pytest.fixture
def notebook(tmp_path: Path, iotax) -> Path:
    """Two runs; the later one is twice as fast."""
    folder = fio_campaign(tmp_path / "c")
    iotax("import", "fio", folder, *PATTERN, "-n", "c.iotax", "--label", BEFORE)
    for path in folder.glob("*.json"):
        path.write_text(path.read_text().replace('"runtime": 1000', '"runtime": 500'))
    iotax("import", "fio", folder, *PATTERN, "-n", "c.iotax", "--label", AFTER)
    return tmp_path / "c.iotax"


def rows(folder: Path, commit: str) -> dict[str, dict]:
    whole = json.loads((folder / "iotax" / f"{commit[:8]}-iotax.json").read_text())
    assert (whole["commit_hash"], whole["env_name"], whole["version"]) == (commit, "iotax", 2)
    return {name: dict(zip(whole["result_columns"], row, strict=True)) for name, row in whole["results"].items()}


def test_each_commit_has_a_file_with_times_per_io(tmp_path: Path, iotax, notebook: Path) -> None:
    iotax("export", notebook, "--format", "asv", "--output", "results", "--run", "all")
    before, after = (rows(tmp_path / "results", commit) for commit in (BEFORE, AFTER))
    own = before["c.iscsi.4KiB.time_per_io"]
    assert own["result"] == [pytest.approx(1 / (1000 * 1010 * 1020) ** (1 / 3))]
    assert sorted(own["samples"][0]) == pytest.approx([1 / 1020, 1 / 1010, 1 / 1000])
    # 9.925 is Student's t for 99 % with 2 degrees of freedom.
    assert math.log(own["stats_ci_99_b"][0] / own["result"][0]) == pytest.approx(
        9.925 * 0.0099 / math.sqrt(3), rel=2e-3
    )
    assert after["c.iscsi.4KiB.time_per_io"]["result"][0] == pytest.approx(own["result"][0] / 2)
    assert before["c.nfs.4KiB.latency_p99"]["result"] == [pytest.approx(400e-6)]
    machine = json.loads((tmp_path / "results" / "iotax" / "machine.json").read_text())
    assert (machine["machine"], machine["version"]) == ("iotax", 1)


def test_benchmarks_of_others_stay_in_the_list(tmp_path: Path, iotax, notebook: Path) -> None:
    listed = tmp_path / "results" / "benchmarks.json"
    listed.parent.mkdir()
    listed.write_text(json.dumps({"theirs": {"name": "theirs"}, "version": 2}))
    iotax("export", notebook, "--format", "asv", "--output", "results")
    names = json.loads(listed.read_text())
    assert names["theirs"] == {"name": "theirs"}
    assert names["c.nfs.4KiB.time_per_io"]["unit"] == "seconds"
    assert [each.name for each in (tmp_path / "results" / "iotax").glob("*-iotax.json")] == [f"{AFTER[:8]}-iotax.json"]


def test_a_single_run_has_no_interval(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    iotax("import", "fio", *sorted(folder.glob("*-r1.json")), *PATTERN, "-n", "d.iotax", "--label", BEFORE)
    iotax("export", "d.iotax", "--format", "asv", "--output", "results")
    own = next(iter(rows(tmp_path / "results", BEFORE).values()))
    assert (own["stats_ci_99_a"], own["stats_repeat"]) == ([None], [1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name its results_dir with --output"),
        (("--output", "c/nfs-4k-r1.json"), "--format asv into c/nfs-4k-r1.json: the name says json"),
        (("--output", "results", "--series"), "there are no series in it"),
        (("--output", "results", "--run", "3"), "label"),
        (("--output", "theirs"), "theirs/benchmarks.json is not a list of benchmarks of asv"),
    ],
)
def test_what_asv_cannot_take_is_refused(tmp_path: Path, iotax, notebook: Path, words: tuple, said: str) -> None:
    iotax("import", "fio", tmp_path / "c", *PATTERN, "-n", notebook, "--label", "nightly")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "benchmarks.json").write_text("[]")
    run = () if "--run" in words else ("--run", "2")
    assert said in iotax("export", notebook, "--format", "asv", *words, *run, code=2).output
    assert not (tmp_path / "results").exists()
