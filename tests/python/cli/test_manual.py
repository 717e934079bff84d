"""Manual pages contain the text of `--help`, and groff accepts them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from command_line import commands
from iotax.cli.app import app
from iotax.cli.commands import Commands, Hosts, Root, Sim, Vm
from iotax.cli.manual import pages
from needed import program


@pytest.fixture(scope="module")
def manual() -> dict[str, str]:
    return pages()


def test_every_command_has_a_page_with_all_that_its_help_offers(manual: dict[str, str]) -> None:
    assert {"iotax.1", "iotax-run.1", "iotax-lab-vm-build.1"} <= manual.keys()
    words_of = {"-".join(["iotax", *words]): words for words in commands(groups=True)}
    for name, page in manual.items():
        words = words_of[name.removesuffix(".1")]
        shown = CliRunner().invoke(app, [*words, "--help"]).output
        options = {word for line in shown.splitlines() for word in line.split()[:2] if word.startswith("--")}
        assert options
        assert [each for each in options if each.strip(",").replace("-", "\\-") not in page] == [], name


def test_groff_reads_every_page_without_a_warning(manual: dict[str, str]) -> None:
    groff = program("groff", "groff-base")
    whole = "".join(manual.values())
    done = subprocess.run(
        [groff, "-man", "-Tutf8", "-Kutf8", "-P-cbou", "-ww"], input=whole.encode(), capture_output=True, check=True
    )
    assert done.stderr.decode() == ""
    assert "--wait-for-target" in done.stdout.decode()


@pytest.mark.parametrize("group", [Root, Hosts, Vm, Sim])
def test_a_list_says_of_each_command_what_its_help_says_first(group: type[Commands]) -> None:
    for name, row in group.table.items():
        command = row.load(name)
        assert command.get_short_help_str(400) == row.about, name
        assert command.epilog and all(example in command.epilog for example in row.examples)


def test_a_list_of_commands_loads_none_of_them() -> None:
    code = "import sys; from iotax.cli.app import app; app(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Write the report of a notebook" in done.stdout
    assert not {"iotax.cli.run", "iotax.cli.show", "rich.table"} & set(done.stdout.split())
