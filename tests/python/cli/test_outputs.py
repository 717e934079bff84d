"""No command's output replaces a notebook, an input or a device, and no output is left half written."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from iotax import outputs
from iotax.cli.app import app
from iotax.outputs import NOTE_OF_ORIGIN, OutputRefused, judge, write
from report.factory import Simulation, study, write_notebook

STUDY = """\
name: mine
question: Is it still there?
factors: {protocol: [nfs3, iscsi]}
baseline: {protocol: iscsi}
"""
WRITING = {
    "report": ("report", "n.iotax", "--output"),
    "pdf": ("report", "n.iotax", "--pdf"),
    "export": ("export", "n.iotax", "--output"),
    "show": ("show", "n.iotax", "--json"),
    "compare": ("compare", "nfs3", "iscsi", "n.iotax", "--json"),
    "size": ("size", "n.iotax", "--json"),
    "plan": ("plan", "study.yaml", "--json"),
    "check": ("check", "study.yaml", "--json"),
    "studies": ("studies", "--json"),
    "run": ("run", "study.yaml", "n.iotax", "--json"),
    "aa": ("aa", "study.yaml", "n.iotax", "--json"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_notebook(folder / "n.iotax", Simulation().data(study(design={"replicates": 2})))
    return folder / "n.iotax"


@pytest.fixture(autouse=True)
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Path) -> Path:
    """A notebook in an empty folder, with every kind of link to it, and a study."""
    monkeypatch.chdir(tmp_path)
    path = Path(shutil.copy(made, tmp_path))
    for name in ("r.json", "r.csv"):
        Path(f"linked-{name}").symlink_to(path)
        Path(f"hard-{name}").hardlink_to(path)
        shutil.copy(path, f"another-{name}")
    Path("study.yaml").write_text(STUDY)
    Path("study.json").symlink_to("study.yaml")
    return path


def iotax(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def contents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path().iterdir()}


@pytest.mark.parametrize("target", ["n.iotax", "new.iotax", "linked-r", "hard-r", "another-r"])
@pytest.mark.parametrize("command", WRITING)
def test_no_output_replaces_a_notebook(command: str, target: str) -> None:
    words = WRITING[command]
    name = target if target.endswith("iotax") else f"{target}.{'csv' if words[-1] == '--output' else 'json'}"
    given = [*words[:-1], f"{words[-1]}={name}", *(["--format=csv"] if command == "export" else [])]
    before = contents()
    done = iotax(*given)
    assert done.exit_code == 2, done.output
    assert "name another file for the output" in done.output
    assert name in done.output
    assert contents() == before


@pytest.mark.parametrize("command", ["plan", "check", "run"])
def test_no_output_replaces_the_study(command: str) -> None:
    before = contents()
    done = iotax(command, "study.yaml", "--json", "study.json")
    assert done.exit_code == 2
    assert contents() == before


def test_a_notebook_that_its_report_would_replace_is_refused_before_the_run() -> None:
    done = iotax("run", "study.yaml", "x.html")
    assert done.exit_code == 2
    assert "would be in the way of its report" in done.output


def test_init_replaces_neither_a_study_nor_a_file_beside_it() -> None:
    Path("study.schema.json").write_text('{"mine": 1}')
    assert iotax("init", "other.yaml").exit_code == 2
    assert iotax("init", "study.schema.json").exit_code == 2
    assert Path("study.schema.json").read_text() == '{"mine": 1}'
    assert not Path("other.yaml").exists()


def test_a_report_is_not_replaced_by_its_own_pdf() -> None:
    assert iotax("report", "n.iotax", "-o", "r.html", "--pdf", "r.html").exit_code == 2
    assert not Path("r.html").exists()


def test_an_output_replaces_an_earlier_one_whole_and_keeps_link_and_mode() -> None:
    Path("real.md").write_text(f"{NOTE_OF_ORIGIN}\nearlier")
    Path("real.md").chmod(0o640)
    Path("link.md").symlink_to("real.md")
    write(Path("link.md"), "later")
    assert Path("link.md").is_symlink()
    assert Path("real.md").read_text() == "later"
    assert Path("real.md").stat().st_mode & 0o777 == 0o640


FOREIGN = {
    "html": b"<!doctype html>\n<html><title>Minutes of Monday</title></html>\n",
    "md": b"# My notes\n",
    "json": b'{\n  "name": "a package"\n}\n',
    "csv": b"run,iops\n1,900\n",
    "pdf": b"%PDF-",
    "svg": b'<svg xmlns="http://www.w3.org/2000/svg" class="marks"></svg>\n',
    "png": b"\x89PNG\r\n\x1a\n" + bytes(25) + b"\0\0\0\x09pHYs" + bytes(20),
    "parquet": b"PAR1" + bytes(20) + b"PAR1",
    "txt": b"a",
}
"""Contents of such files that belong to the user."""


@pytest.mark.parametrize("command", WRITING)
def test_no_output_replaces_what_another_program_wrote(command: str) -> None:
    words = WRITING[command]
    for kind, content in FOREIGN.items():
        Path(f"theirs.{kind}").write_bytes(content)
        with_format = ["--format=csv"] if command == "export" and kind not in ("csv", "json", "parquet") else []
        done = iotax(*words[:-1], f"{words[-1]}=theirs.{kind}", *with_format)
        assert done.exit_code == 2, done.output
        assert f"theirs.{kind} already exists, and iotax has not written it; name another file" in done.output
        assert Path(f"theirs.{kind}").read_bytes() == content


OWN = [
    ("report", "n.iotax", "-o", "r.html", "--charts", "charts"),
    ("export", "n.iotax", "-o", "r.csv"),
    ("export", "n.iotax", "--series", "-o", "series.csv"),
    ("export", "n.iotax", "-o", "r.parquet"),
    ("export", "n.iotax", "-o", "r.json"),
    ("export", "n.iotax", "--format", "bencher", "-o", "bencher.json"),
    ("show", "n.iotax", "--json=show.json"),
    ("compare", "nfs3", "iscsi", "n.iotax", "--json=compare.json"),
    ("compare", "nfs3", "iscsi", "n.iotax", "-o", "compare.html"),
    ("compare", "nfs3", "iscsi", "n.iotax", "-o", "compare.md"),
    ("size", "n.iotax", "--json=size.json"),
    ("plan", "study.yaml", "--json=plan.json"),
    ("studies", "--json=studies.json"),
]


@pytest.mark.parametrize("words", OWN, ids=" ".join)
def test_every_output_replaces_its_own_earlier_one(words: tuple[str, ...]) -> None:
    for _ in range(2):
        done = iotax(*words)
        assert done.exit_code == 0, done.output


def test_an_output_replaces_an_empty_file() -> None:
    Path("empty.json").touch()
    assert iotax("show", "n.iotax", "--json=empty.json").exit_code == 0


def test_devices_pipes_and_blocks_are_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    write(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()
    read, into = os.pipe()
    write(Path(f"/dev/fd/{into}"), "through")
    assert os.read(read, 100) == b"through"
    os.close(read)
    os.close(into)
    monkeypatch.setattr(Path, "is_block_device", lambda _: True)
    with pytest.raises(OutputRefused, match="is a block device"):
        judge(Path("sda"))


def test_a_full_disk_leaves_the_earlier_file_and_names_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    iotax("report", "n.iotax", "-o", "r.html")
    before = contents()
    monkeypatch.setattr(outputs.os, "fsync", full)
    for words, named in (
        (("report", "n.iotax", "-o", "r.html"), "r.html"),
        (("export", "n.iotax", "-o", "r.csv.json"), "r.csv.json"),
        (("init", "mine/a.yaml"), "mine/a.yaml"),
        (("init", "b.yaml"), "b.yaml"),
    ):
        done = iotax(*words)
        assert done.exit_code == 2
        assert f"iotax: {named} cannot be written: " in done.output
    assert contents() == before


def test_the_chart_that_could_not_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the chart: the disk had space for the report."""
    real = os.fsync

    def full(descriptor: int) -> None:
        if ".svg" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(outputs.os, "fsync", full)
    done = iotax("report", "n.iotax", "-o", "r.html", "--charts", "charts")
    assert done.exit_code == 2
    assert "iotax: charts/" in done.output
    assert Path("r.html").exists()


@pytest.mark.parametrize("command", ["show", "report", "export", "size"])
@pytest.mark.parametrize("spelling", [("n.iotax",), ("--notebook", "n.iotax"), ("-n", "n.iotax")])
def test_a_notebook_is_named_the_same_way_everywhere(command: str, spelling: tuple[str, ...]) -> None:
    done = iotax(command, *spelling)
    assert done.exit_code == 0, done.output
    assert iotax(command, "n.iotax", "-n", "n.iotax").exit_code == 2
    assert "--notebook" not in iotax(command, "--help").output
