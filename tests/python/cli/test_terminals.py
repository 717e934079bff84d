"""Every command on a terminal of 80 columns, and on one with few characters."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from faked import FakeEngine
from imports.import_samples import fio_campaign
from iotax.cli import console
from iotax.cli.app import app
from report.factory import KNEE, OPEN, QUICK, Simulation, study, write_notebook

WIDE = {
    **QUICK,
    "factors": {
        "protocol": {"an-array-with-a-long-name": "nfs3", "another-array-with-a-long-name": "iscsi"},
        "block_size": ["4KiB", "64KiB"],
        "outstanding": [1, 32],
    },
    "baseline": {"protocol": "another-array-with-a-long-name"},
}
COMMANDS = {
    "studies": "studies",
    "one study": "studies quick",
    "plan": "plan quick",
    "plan trial by trial": "plan quick --long",
    "plan of rounds": "plan cpu-cost",
    "plan of a search": "plan patterns",
    "plan of guests": "plan tr-3808",
    "check": "check tiny.yaml",
    "run": "run tiny.yaml run.iotax",
    "run again": "run tiny.yaml run.iotax",
    "vs": "vs local iscsi --time 30s --size 1m --notebook vs.iotax",
    "aa": "aa tiny.yaml --replicates 4 --notebook aa.iotax",
    "show": "show quick.iotax",
    "show all": "show quick.iotax --long",
    "show open loop": "show open.iotax --long",
    "show a search": "show knee.iotax --long",
    "show long names": "show wide.iotax",
    "show long names and all": "show wide.iotax --long",
    "show doubt": "show doubtful.iotax",
    "show all doubts": "show doubtful.iotax --long",
    "size": "size --iops 100k quick.iotax",
    "size with response times": "size --iops 100k quick.iotax --long",
    "size of numbers": "size --iops 70k --cpu-us nfs=81:78-84 --cpu-us fc=50:48-52",
    "compare": "compare quick.iotax doubtful.iotax",
    "compare all": "compare quick.iotax doubtful.iotax --long",
    "compare levels": "compare nfs3 iscsi -n quick.iotax",
    "compare into Markdown": "compare nfs3 iscsi -n quick.iotax -o change.md",
    "export": "export quick.iotax",
    "export for Bencher": "export quick.iotax --format bencher",
    "init": "init mine.yaml --from quick",
    "report": "report quick.iotax",
    "import": "import fio campaign --name-pattern {protocol}-{bs}-r{replicate}.json -n import.iotax",
    "formats of imports": "import list",
    "completion": "completion bash",
    "hosts of a study without": "lab hosts check quick",
    "cleaning hosts of a study without": "lab hosts clean quick",
}
FAILS = {"hosts of a study without": 2, "cleaning hosts of a study without": 2}
FOR_PROGRAMS = ("one study", "export", "export for Bencher", "completion")
"""Programs read their output, so its width is not limited."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Notebooks of each kind, and files to import."""
    folder = tmp_path_factory.mktemp("measured")
    every = [f"{p}/{n}/r{r}" for p in ("local", "nfs3", "iscsi", "nvme-tcp") for n in (1, 8, 32) for r in (1, 2, 3)]
    for name, of, unsteady in (
        ("quick", study(), []),
        ("doubtful", study(), every),
        ("open", study(**OPEN), []),
        ("knee", study(**KNEE), []),
        ("wide", study(**WIDE), []),
    ):
        write_notebook(folder / f"{name}.iotax", Simulation(seed=3, unsteady=unsteady).data(of))
    fio_campaign(folder / "campaign")
    return folder


@pytest.fixture
def place(measured: Path, tmp_path: Path, tiny: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> Path:
    del tiny, engine
    for each in measured.iterdir():
        (tmp_path / each.name).symlink_to(each)
    monkeypatch.chdir(tmp_path)
    return tmp_path


NO_PICTURE = "<svg xmlns='http://www.w3.org/2000/svg' width='1' height='1'></svg>"
"""Replaces each chart of a report: these tests check only what commands print."""


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard output as a terminal of 80 columns."""
    monkeypatch.setattr(console, "PIPE_COLUMNS", 80)
    monkeypatch.setattr(console._Screen, "is_terminal", True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    return 80


def test_no_command_writes_beyond_80_columns_or_cuts_a_figure(place: Path, narrow: int) -> None:
    del place
    wide, cut = {}, {}
    for name, words in COMMANDS.items():
        done = CliRunner().invoke(app, words.split())
        assert done.exit_code == FAILS.get(name, 0), (name, done.output)
        if name in FOR_PROGRAMS:
            continue
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stdout).splitlines()
        wide |= {(name, line): len(line) for line in lines if len(line) > narrow and " " in line}
        cut |= {(name, line): 0 for line in lines if "…" in line}
    assert not wide, json.dumps([*map(str, wide)], indent=1, ensure_ascii=False)
    assert not cut, json.dumps([*map(str, cut)], indent=1, ensure_ascii=False)


@pytest.mark.slow
def test_no_command_ends_for_want_of_a_letter(place: Path) -> None:
    """Runs all commands in one process whose terminal supports only ASCII."""
    code = (
        "import json, sys\n"
        "from iotax.cli.app import app, spell_out\n"
        "from iotax.report import renderer\n"
        f"renderer.to_svg = lambda _: {NO_PICTURE!r}\n"
        "spell_out()\n"
        "for name, words in json.loads(sys.argv[1]).items():\n"
        "    print('##', name, flush=True)\n"
        "    try:\n"
        "        app(words.split())\n"
        "    except SystemExit as ended:\n"
        "        print('## ended', ended.code or 0, flush=True)\n"
    )
    few = {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "NO_COLOR": "1", "TERM": "dumb"}
    commands = [sys.executable, "-c", code, json.dumps(COMMANDS)]
    done = subprocess.run(commands, check=False, capture_output=True, env={**os.environ, **few}, cwd=place)
    assert done.returncode == 0, done.stderr.decode("ascii")
    said = done.stdout.decode("ascii")
    codes = dict(zip(COMMANDS, map(int, re.findall(r"^## ended (\d+)$", said, re.MULTILINE)), strict=True))
    assert codes == {name: FAILS.get(name, 0) for name in COMMANDS}, said + done.stderr.decode("ascii")
    assert "us" in said
    assert "+-" in said
    first = said.partition("## show\n")[2].partition("\n## ")[0]
    assert re.search(r"NVMe/TCP +[\d.]+ #+", first), first
    assert "?" not in re.sub(r"[^\n]*What does[^\n]*", "", first)


@pytest.mark.parametrize(("variable", "ascii_only"), [("C", True), ("C.UTF-8", False)])
def test_a_terminal_of_the_c_locale_gets_ascii(place: Path, variable: str, ascii_only: bool) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONIO", "PYTHONUTF8"))}
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "iotax", "show", "quick.iotax"],
        stdout=slave,
        cwd=place,
        env={**inherited, "LC_ALL": variable, "TERM": "dumb"},
    )
    os.close(slave)
    said = b""
    # Linux returns EIO after the last process has closed the terminal.
    with contextlib.suppress(OSError), os.fdopen(master, "rb", buffering=0) as terminal:
        while piece := terminal.read(1 << 16):
            said += piece
    assert process.wait(60) == 0
    assert said.isascii() == ascii_only, said


def test_colours_are_left_out_where_nobody_wants_them(place: Path) -> None:
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm", "FORCE_COLOR": ""}
    command = [sys.executable, "-m", "iotax", "show", "quick.iotax"]
    done = subprocess.run(command, capture_output=True, env=environment, cwd=place, check=True)
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize("width", [20, 40, 80])
def test_prose_breaks_between_words_and_never_before_a_unit(width: int) -> None:
    prose = "NFSv3 adds 191 µs (95 % CI 170 to 213) of latency and takes 12 min 30 s at 70,000 IOPS, 5 % more than this"
    said = console.broken(prose, width)
    assert said.replace("\n", " ") == prose
    lines = said.splitlines()
    assert max(map(len, lines)) <= width
    assert not any(re.match(r"(µs|%|min|s|IOPS)\b", line) for line in lines)
    assert not any(line.endswith("min") for line in lines)


EVIL = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202eb"


def test_text_of_files_commands_no_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Untrusted text: of a study (question, label, path), a notebook (reason, log), other programs' results."""
    monkeypatch.chdir(tmp_path)
    data = Simulation().data(study(question=f"What {EVIL}?"))
    failed = data.attempts[0].model_copy(update={"status": "failed", "result": None, "reason": EVIL, "log": EVIL})
    write_notebook(tmp_path / "n.iotax", replace(data, attempts=[failed, *data.attempts[1:]]))
    said = json.dumps({**QUICK, "question": f"What {EVIL}?", "factors": {"protocol": {EVIL: "nfs3", "b": "iscsi"}}})
    (tmp_path / "evil.yaml").write_text(said)
    folder = tmp_path / f"c{EVIL.replace('/', '')}"
    fio_campaign(folder)
    (folder / "nfs-4k-r1.json").write_text(
        f'{EVIL}\n{{"jobs": [{{"jobname": "{EVIL.encode("unicode_escape").decode()}"'
    )
    for words in (
        ("show", "n.iotax"),
        ("show", "n.iotax", "--long"),
        ("export", "n.iotax"),
        ("plan", "evil.yaml"),
        ("check", "evil.yaml"),
        ("import", "fio", folder, "--factor", f"array={EVIL}", "-n", "i.iotax"),
        ("show", "i.iotax"),
        ("show", "i.iotax", "--long"),
        ("size", "i.iotax", "--iops", "1k"),
        ("compare", EVIL, "iscsi", "-n", "n.iotax"),
    ):
        printed = CliRunner().invoke(app, [str(word) for word in words]).output
        if words[0] == "export":
            continue  # a pipe gets the figures unchanged
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", printed), (words, printed)
    assert "\\x1b]0;owned\\x07" in CliRunner().invoke(app, ["show", "n.iotax", "--long"]).output


def test_nothing_prints_but_through_what_makes_text_safe() -> None:
    allowed = {"letters.py", "console.py", "reference.py", "schema.py", "progress.py"}
    root = Path(console.__file__).parents[1]
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        if path.name not in allowed
        for line in path.read_text().splitlines()
        if re.search(r"typer\.echo|click\.echo|(?<![\w.])print\(|sys\.std(out|err)\.write", line)
    ]
    assert found == []
