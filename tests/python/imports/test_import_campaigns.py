"""Many files together: their factors, conflicts between them, and that nothing is lost or overwritten."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from import_samples import fio_campaign, fio_file, fio_job

from iotax.cli import imports as command
from iotax.notebook import Notebook
from iotax.study.read import read_study
from iotax.study.source import StudyError

PATTERN = ("--name-pattern", "{protocol}-{bs}-r{replicate}.json")


def imported(iotax, *words: object, code: int = 0) -> dict:
    return json.loads(iotax("import", *words, "--json", code=code).stdout)


def two_folders(place: Path) -> None:
    """The same jobs in `before` and in `after`: two queue depths with three runs each."""
    for at, array in enumerate(("before", "after")):
        (place / array).mkdir()
        for run in range(6):
            job = fio_job(options={"iodepth": ("8", "16")[run // 3]})
            fio_file(place / array / f"{run}.json", job, timestamp_ms=1_700_000_000_000 + (6 * at + run) * 10_000)


def test_the_readmes_commands_for_results_run_as_they_stand(tmp_path: Path, iotax) -> None:
    """The folder's name is arbitrary, so no command may name a notebook that the previous command did not write."""
    two_folders(tmp_path)
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    typed = [
        shlex.split(line.partition(" #")[0])[1:]
        for line in readme.partition("**Results you already have**")[2].partition("**Your NAS")[0].splitlines()
        if line.startswith("    iotax ")
    ]
    assert [words[0] for words in typed] == ["import", "report", "compare"]
    for words in typed:
        said = iotax(*words).stdout
    assert "Throughput" in said
    assert len(list(tmp_path.glob("out/*.html"))) == 1


def test_factors_come_from_names_and_from_the_command_line(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    said = imported(iotax, "fio", folder, *PATTERN, "--factor", "array=A400", "-n", "c.iotax")
    assert said["factors"] == {"array": ["A400"], "protocol": ["iscsi", "nfs"], "block_size": ["4KiB"]}
    assert said["results_new"] == 6


def test_what_is_the_same_in_all_files_is_not_what_is_compared(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    pattern = ("--name-pattern", "{path}-{bs}-r{replicate}.json")
    imported(iotax, "fio", folder, *pattern, "--factor", "array=A400", "--factor", "protocol=iscsi", "-n", "c.iotax")
    with Notebook(tmp_path / "c.iotax") as notebook:
        assert notebook.study().baseline == {"path": "iscsi"}
    imported(iotax, "fio", folder / "nfs-4k-r1.json", "--factor", "array=A400", "-n", "d.iotax")
    with Notebook(tmp_path / "d.iotax") as notebook:
        assert notebook.study().baseline == {"array": "A400"}


def test_what_is_the_same_in_all_files_tells_no_results_apart(tmp_path: Path, iotax) -> None:
    iotax("import", "fio", fio_campaign(tmp_path / "c"), *PATTERN, "--factor", "array=A400", "-n", "c.iotax")
    iotax("report", "c.iotax")
    page = (tmp_path / "c.html").read_text()
    assert "with 4 KiB blocks" in page or "block size 4KiB" in page
    assert "with array A400" not in page and "array A400 ·" not in page
    shares = page.partition("What explains the differences between runs")[2].partition("</table>")[0]
    assert "protocol" in shares and "array" not in shares and "block size" not in shares
    assert "array {A400}" in page, "the design has it"


def test_without_names_what_differs_within_the_files_is_the_factor(tmp_path: Path, iotax) -> None:
    for depth in (1, 8, 32):
        fio_file(tmp_path / f"x{depth}.json", fio_job(options={"iodepth": str(depth)}))
    said = imported(iotax, "fio", *sorted(tmp_path.glob("x*.json")), "-n", "c.iotax")
    assert said["factors"] == {"outstanding": ["1", "8", "32"]}
    first = sorted(tmp_path.glob("x*.json"))[0]
    place = f"one replicate only ({first} and 2 more): no interval can be given. Run it again"
    assert any(place in note for note in said["notes"])


def test_settings_that_differ_within_a_treatment_are_told(tmp_path: Path, iotax) -> None:
    for replicate, depth in ((1, 8), (2, 16)):
        fio_file(tmp_path / f"nfs-r{replicate}.json", fio_job(options={"iodepth": str(depth)}))
    words = ("fio", *sorted(tmp_path.glob("*.json")), "--name-pattern", "{protocol}-r{replicate}.json")
    said = imported(iotax, *words, "-n", "c.iotax")
    one, two = tmp_path / "nfs-r1.json", tmp_path / "nfs-r2.json"
    place = f"differing settings within one treatment (protocol nfs): outstanding is 8 in {one}, 16 in {two}."
    assert any(place in note for note in said["notes"])
    by = imported(iotax, *words, "-n", "d.iotax", "--by", "outstanding")
    assert by["factors"]["outstanding"] == ["8", "16"]


def test_settings_that_differ_within_a_named_folder_are_factors(tmp_path: Path, iotax) -> None:
    """Two folders with one set of jobs: results at different queue depths are not replicates."""
    two_folders(tmp_path)
    said = imported(iotax, "fio", "before", "after", "--name-pattern", "{array}/*.json")
    assert said["factors"] == {"array": ["before", "after"], "outstanding": ["8", "16"]}
    assert not any("differing settings" in note for note in said["notes"])
    only = imported(iotax, "fio", "before", "after", "--name-pattern", "{array}/*.json", "--by", "block_size")
    assert "outstanding" not in only["factors"]
    assert any("outstanding is" in note for note in only["notes"])


def test_mixed_versions_are_told(tmp_path: Path, iotax) -> None:
    fio_file(tmp_path / "a-r1.json", version="3.28")
    fio_file(tmp_path / "b-r1.json", version="3.36")
    said = imported(iotax, "fio", tmp_path, "--name-pattern", "{protocol}-r{replicate}.json", "-n", "c.iotax")
    place = f"versions of fio are mixed (3.28: {tmp_path / 'a-r1.json'}; 3.36: {tmp_path / 'b-r1.json'})"
    assert any(place in note for note in said["notes"])


def test_units_that_change_between_files_are_told(tmp_path: Path, iotax) -> None:
    for name, groups in (("old", 19), ("new-r1", 29), ("new-r2", 29)):
        rows = [
            ", ".join(map(str, [at_ms, 0, 4096, *[0] * 100, 9, *[0] * (groups * 64 - 101)])) for at_ms in (500, 1000)
        ]
        (tmp_path / f"{name}_clat_hist.1.log").write_text("\n".join(rows) + "\n")
    said = imported(iotax, "fio-hist", tmp_path, "-n", "c.iotax")
    new, old = tmp_path / "new-r1_clat_hist.1.log", tmp_path / "old_clat_hist.1.log"
    place = f"Files in different units are mixed (ns: {new} and 1 more; µs: {old}): all were converted."
    assert place in said["notes"]


def test_machines_whose_runs_did_not_overlap_are_named(tmp_path: Path, iotax) -> None:
    case = tmp_path / "h" / "case-4k"
    case.mkdir(parents=True)
    for vm, start_ms in ((1, 1_700_000_000_000), (2, 1_700_000_000_700)):
        fio_file(case / f"vm-ds-{vm}.json", fio_job(job_start=start_ms))
    said = imported(iotax, "hcibench", tmp_path / "h", "-n", "h.iotax")
    assert any(
        "vm-ds-1.json to vm-ds-2.json, ran together for only 0.3 of 1.0 s: their sum is not a rate that was ever"
        in note
        for note in said["notes"]
    )


def test_a_treatment_with_one_replicate_is_named_by_its_file(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    for path in (folder / "nfs-4k-r2.json", folder / "nfs-4k-r3.json"):
        path.unlink()
    said = imported(iotax, "fio", folder, *PATTERN, "-n", "c.iotax")
    place = f"1 of 2 treatments have one replicate only ({folder / 'nfs-4k-r1.json'}): no interval can be given."
    assert any(place in note for note in said["notes"])


def test_one_bad_file_costs_its_own_result_only(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    (folder / "nfs-4k-r2.json").write_text('{"fio version": "fio-3.36", "jobs": [{"read": {"iops')
    result = iotax("import", "fio", folder, *PATTERN, "-n", "c.iotax", code=1)
    assert "not imported: " in result.output and "nfs-4k-r2.json:1" in result.output
    assert "Imported 5 results" in result.output
    iotax("report", "c.iotax")
    assert "nfs-4k-r2.json:1" in (tmp_path / "c.html").read_text()


def test_two_files_of_one_place_are_refused(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    (folder / "x").mkdir()
    fio_file(folder / "x" / "nfs-4k-r1.json")
    result = iotax("import", "fio", folder, *PATTERN, "-n", "c.iotax", code=2)
    assert "are both replicate 1 of one treatment" in result.output
    assert not (tmp_path / "c.iotax").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nosuch", "c"), "not a format that iotax imports"),
        (("fio",), "no files are named"),
        (("fio", "missing.json"), "no such file"),
        (("fio", "c", "--factor", "protocol"), "write NAME=VALUE"),
        (("fio", "c", "--name-pattern", "x.json"), "it names no factor"),
        (("fio", "c", "--name-pattern", "{a}_{b}.json"), "does not match"),
        (("fio", "c", "--by", "colour"), "--by colour: the files say block_size"),
        (("fio", "c", *PATTERN, "--baseline", "protocol=smb"), "there are iscsi, nfs"),
        (("fio", "c", *PATTERN, "--floor", "disk"), "there are iscsi, nfs"),
        (("fio", "c", "-n", "c/nfs-4k-r1.json"), "name a notebook"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, iotax, words: tuple, said: str) -> None:
    before = (fio_campaign(tmp_path / "c") / "nfs-4k-r1.json").read_bytes()
    assert said in iotax("import", *words, code=2).output
    assert (tmp_path / "c" / "nfs-4k-r1.json").read_bytes() == before


def test_the_same_files_are_imported_once_and_more_of_them_are_added(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    last = (folder / "nfs-4k-r3.json").read_bytes()
    (folder / "nfs-4k-r3.json").unlink()
    assert imported(iotax, "fio", folder, *PATTERN, "-n", "c.iotax")["results_new"] == 5
    assert imported(iotax, "fio", folder, *PATTERN, "-n", "c.iotax")["results_new"] == 0
    (folder / "nfs-4k-r3.json").write_bytes(last)
    said = imported(iotax, "fio", folder, *PATTERN, "-n", "c.iotax")
    assert (said["run"], said["results_new"]) == (1, 1)
    assert json.loads(iotax("show", "c.iotax", "--json").stdout)["trials_planned"] == 6


def test_other_results_of_the_same_name_are_a_run_of_their_own(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    assert imported(iotax, "fio", folder, *PATTERN, "-n", "c.iotax")["run"] == 1
    fio_file(folder / "nfs-4k-r3.json")
    assert imported(iotax, "fio", folder, *PATTERN, "-n", "c.iotax")["run"] == 2


def test_before_and_after_are_compared_as_any_runs_are(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    iotax("import", "fio", folder, *PATTERN, "-n", "c.iotax", "--label", "before")
    for path in folder.glob("*.json"):
        path.write_text(path.read_text().replace('"runtime": 1000', '"runtime": 800'))
    iotax("import", "fio", folder, *PATTERN, "-n", "c.iotax", "--label", "after")
    changes = json.loads(iotax("compare", "before", "after", "c.iotax", "--json").stdout)["changes"]
    iops = next(each for each in changes if each["response"] == "iops" and each["treatment"] is None)
    assert iops["ratio"] == pytest.approx(1.25)
    levels = json.loads(iotax("compare", "iscsi", "nfs", "c.iotax", "--json").stdout)["changes"]
    assert next(each for each in levels if each["response"] == "iops")["ratio"] == pytest.approx(2.0)


def test_export_and_size_read_it_as_any_notebook(tmp_path: Path, iotax) -> None:
    iotax("import", "fio", fio_campaign(tmp_path / "c", bins=False), *PATTERN, "-n", "c.iotax")
    lines = iotax("export", "c.iotax").stdout.splitlines()
    assert len(lines) == 7
    row = dict(zip(lines[0].split(","), lines[1].split(","), strict=True))
    assert (row["protocol"], row["latency_p99_ns"], row["latency_p95_ns"]) == ("iscsi", "400000.0", "")
    assert "no run measured CPU time" in iotax("size", "c.iotax", "--iops", "70k", code=5).output


def test_percentiles_of_single_runs_are_shown_and_no_curve_is_drawn(tmp_path: Path, iotax) -> None:
    iotax("import", "fio", fio_campaign(tmp_path / "c", bins=False), *PATTERN, "-n", "c.iotax")
    iotax("report", "c.iotax")
    page = (tmp_path / "c.html").read_text()
    assert "percentiles of each run only" in page
    assert "no percentile curve can be drawn" in page
    shown = json.loads(iotax("show", "c.iotax", "--json").stdout)
    assert shown["treatments"][0]["values"]["latency_p99"]["value"] == pytest.approx(400)


def test_an_imported_study_has_no_plan_to_run(tmp_path: Path, iotax) -> None:
    iotax("import", "fio", fio_campaign(tmp_path / "c"), *PATTERN, "-n", "c.iotax")
    said = iotax("run", "c.iotax", code=2).output
    assert "c was imported from 6 fio 3.36 files: it has no plan to run" in said
    with Notebook(tmp_path / "c.iotax") as notebook, pytest.raises(StudyError) as refused:
        read_study("c.yaml", json.dumps(notebook.study().model_dump(mode="json")), tmp_path)
    assert "have no plan to run" in refused.value.lines()[0]


def test_watching_adds_files_as_they_appear(tmp_path: Path, iotax, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fio_campaign(tmp_path / "c")
    late = {path: path.read_text() for path in folder.glob("nfs*.json")}
    for path in late:
        path.unlink()
    steps = iter([
        lambda: next(iter(late)).write_text("{ half"),
        lambda: [path.write_text(text) for path, text in late.items()],
    ])  # fmt: skip

    def wait(_: float) -> None:
        step = next(steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(command.time, "sleep", wait)
    said = iotax("import", "fio", folder, *PATTERN, "-n", "c.iotax", "--watch").output
    assert "3 results, 3 of them new" in said
    assert "1 not readable yet" in said
    assert "6 results, 3 of them new" in said


def test_a_folder_of_other_files_is_told_in_a_screenful(tmp_path: Path, iotax) -> None:
    for number in range(30):
        (tmp_path / f"{number}.json").write_text("{}")
    said = iotax("import", "fio", tmp_path, code=2).output
    assert said.count("not a fio result") == 20
    assert "and 10 more" in said


def test_names_with_more_combinations_than_any_study_has_are_refused(tmp_path: Path, iotax) -> None:
    """A comparison checks each combination, even without results: 47 files with three settings give 103,823."""
    files = [tmp_path / f"{at}-{at}-{at}.json" for at in range(47)]
    for file in files:
        fio_file(file, fio_job())
    said = iotax("import", "fio", *files, "--name-pattern", "{a}-{b}-{c}.json", "-n", "c.iotax", code=2).output
    assert "103,823 combinations of levels (a 47 × b 47 × c 47); 100,000 are the most" in " ".join(said.split())
    assert not (tmp_path / "c.iotax").exists()
    assert imported(iotax, "fio", *files, "--name-pattern", "{a}-*-*.json", "-n", "d.iotax")["results_new"] == 47
