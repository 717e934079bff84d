"""What a first-time user of iotax sees: where to start, help, the doctor, questions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_line import commands, ran
from iotax.cli import doctor, questions
from iotax.cli.app import app
from iotax.cli.doctor import abilities
from iotax.study.read import load_study

ALL = sorted(commands())


def test_iotax_alone_shows_the_three_ways_in() -> None:
    said = ran().output
    assert said.startswith("Three ways in:")
    for part in ("iotax import", "iotax vs", "iotax run quick --time 30s", "iotax doctor"):
        assert part in said
    assert len(said.splitlines()) <= 24
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_help_text_has_an_example_and_no_types_of_python(words: tuple[str, ...]) -> None:
    said = ran(*words, "--help").output
    example = said.partition("Example:\n")[2]
    assert example.strip().startswith(("iotax " + " ".join(words), 'eval "$(iotax')), said
    assert not re.search(r"<[^<>\n]*>|list\[|\bPath\b|\{[^}\n]*\}\.\.\.", said.partition("Example:")[0]), said
    assert "[default: (" not in said
    assert not re.search(r"x[<>]=|<=x", said), said
    named = re.search(r"^  -.*\bNOTEBOOK\b", said.partition("Options:")[2], re.MULTILINE)
    assert not named, f"a notebook is an argument, as of every other command: {named and named[0]}"


def test_examples_are_commands_that_exist() -> None:
    for words in ALL:
        examples = ran(*words, "--help").output.partition("Example:\n")[2].split("\n")
        assert any(line.strip().startswith("iotax ") or "$(iotax" in line for line in examples)


def test_the_doctor_says_what_there_is_and_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    monkeypatch.delenv("IOTAX_FIO", raising=False)
    found = {each.name.partition(" (")[0]: each for each in abilities()}
    assert found["kernels in virtual machines"].outcome == "no"
    assert "qemu-system-x86" in found["kernels in virtual machines"].found
    assert "apt-get install fio" in found["fio as a generator"].found
    assert "apt-get install chromium" in found["reports as PDF"].found
    said = ran("doctor").output
    assert all(name in said for name in found)
    written = json.loads(ran("doctor", "--json").stdout)
    assert [each["outcome"] for each in written["abilities"]] == [each.outcome for each in found.values()]


def test_init_asks_on_a_terminal_and_asks_again_where_an_answer_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(questions, "on_terminal", lambda: True)
    answers = ["local iscsi", "sideways", "randrw", "70%", "8KiB", "none", "16", "1s", "1min"]
    done = CliRunner().invoke(app, ["init", "mine.yaml"], input="\n".join(answers) + "\n")
    assert done.exit_code == 0, done.output
    assert "found 'sideways': write one of read, write" in done.output
    assert "found 'none': write a whole number above 0" in done.output
    assert "treatments take" in done.output
    study = load_study("mine.yaml")[0]
    assert study.name == "mine"
    assert [level.label for level in study.levels()["protocol"]] == ["local", "iscsi"]
    assert (study.load.block_size, study.load.read, study.load.outstanding) == (8192, 70, 16)


def test_init_asks_nothing_where_nobody_can_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = ran("init", "mine.yaml")
    assert done.exit_code == 0
    assert "Six questions" not in done.output
    assert "# What varies." in Path("mine.yaml").read_text()
