"""Files that cannot be written or read, and readers that close the pipe: one line reports it, and nothing is lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from faked import FakeEngine
from iotax.cli.app import app
from iotax.notebook import Notebook
from report.factory import Simulation, study, write_notebook


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    return write_notebook(tmp_path / "n.iotax", Simulation().data(study(design={"replicates": 2})))


def iotax(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("report", "n.iotax", "--output", "n.iotax/r.html"), "n.iotax"),
        (("report", "n.iotax", "--output", "folder"), "folder"),
        (("report", "n.iotax", "--charts", "n.iotax/charts"), "n.iotax"),
        (("export", "n.iotax", "--output", "none/n.csv"), "none/n.csv"),
        (("compare", "nfs3", "iscsi", "-n", "n.iotax", "--json", "none/c.json"), "none/c.json"),
        (("init", "none/study.yaml"), "none/study.yaml"),
    ],
)
def test_a_file_that_cannot_be_written_is_named(words: tuple[str, ...], named: str, notebook: Path) -> None:
    Path("folder").mkdir()
    before = notebook.read_bytes()
    done = iotax(*words)
    assert done.exit_code == 2
    assert f"iotax: {named}" in done.output
    assert "cannot be written: " in done.output
    assert notebook.read_bytes() == before
    assert sorted(path.name for path in Path().glob("*.part")) == []


def test_charts_are_not_written_where_a_file_is(notebook: Path) -> None:
    before = notebook.read_bytes()
    done = iotax("report", "n.iotax", "--charts", "n.iotax")
    assert (done.exit_code, done.output) == (2, "iotax: --charts n.iotax: a file; name a folder, which may be new\n")
    assert notebook.read_bytes() == before
    assert "`iotax report n.iotax --charts DIR`" in iotax("report", "n.iotax", "--charts", "n.iotax/charts").output


def test_figures_are_printed_before_a_document_fails(notebook: Path) -> None:
    done = iotax("compare", "nfs3", "iscsi", "-n", notebook, "--json", "none/c.json")
    assert "After over before, with 95 % intervals" in done.output


def test_a_report_that_cannot_be_written_does_not_cost_the_run(engine: FakeEngine, tiny: Path) -> None:
    del engine
    Path("out/tiny.html").mkdir(parents=True)
    done = iotax("run", tiny)
    assert done.exit_code == 2
    assert "Notebook: out/tiny.iotax" in done.output
    assert "out/tiny.html" in done.output
    assert "`iotax report out/tiny.iotax --output FILE` writes the report elsewhere" in done.output
    assert iotax("report", "out/tiny.iotax", "--output", "r.html").exit_code == 0


@pytest.mark.parametrize("command", ["show", "report", "size"])
def test_a_notebook_with_what_a_later_version_wrote_is_explained(command: str, notebook: Path) -> None:
    database = sqlite3.connect(notebook)
    with database:
        database.execute("DROP TRIGGER studies_no_update")
        database.execute("""UPDATE studies SET study = json_set(study, '$.load.teleport', json('true'))""")
    database.close()
    done = iotax(command, notebook)
    assert done.exit_code == 5
    assert "does not understand (load.teleport: " in done.output
    assert "read it with the version that wrote it" in done.output


@pytest.mark.parametrize("length", [0, 50, 4096, 20_000])
@pytest.mark.parametrize("command", ["show", "report", "export"])
def test_a_notebook_cut_short_is_explained(command: str, length: int, notebook: Path) -> None:
    notebook.write_bytes(notebook.read_bytes()[:length])
    done = iotax(command, notebook)
    assert done.exit_code == 5
    assert f"iotax: {notebook}: " in done.output


def test_a_run_goes_on_when_its_reader_leaves(engine: FakeEngine, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del engine
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "iotax", "run", str(tiny)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    with Notebook(Path("out/tiny.iotax")) as reader:
        assert [each.status for each in reader.attempts()] == ["done"] * 8
    assert Path("out/tiny.html").is_file()


SURPRISE = """
import sys
import iotax.cli.study
def surprise(*_):
    raise {error}
iotax.cli.study.builtin_study = surprise
sys.argv = ["iotax", "studies", "iscsi://user%s3cret@host/iqn/0"]
from iotax.cli import main
main()
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ('TypeError("a \\x1b[31msurprise")', "TypeError: a \\x1b[31msurprise"),
        ("MemoryError", "out of memory"),
        ("RecursionError('deep')", "RecursionError: deep"),
        ("FileNotFoundError(2, 'gone', 'x')", "FileNotFoundError: [Errno 2] gone: 'x'"),
    ],
)
def test_what_nobody_expected_is_one_line_and_a_file_to_report(tmp_path: Path, error: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SURPRISE.format(error=error)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 70 and done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first == f"iotax: unexpected error, which is a defect of iotax: {said}"
    (report,) = (tmp_path / "out").glob("iotax-error-*.txt")
    assert f"out/{report.name}" in second
    text = report.read_text()
    assert "in surprise" in text and "command: iotax studies" in text and "s3cret" not in text


def test_where_nothing_can_be_written_it_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    environment = os.environ | {"TMPDIR": str(tmp_path / "out")}
    script = SURPRISE.format(error="TypeError('x')").replace(
        "import sys\n", "import sys, tempfile\ntempfile.tempdir = 'out'\n", 1
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, len(done.stderr.splitlines())) == (70, 1)
