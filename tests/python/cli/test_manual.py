"""Manual pages contain the text of `--help`, and groff accepts them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from iotax.cli.app import app
from iotax.cli.manual import pages
from needed import program


def commands(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of each command and group; a word may contain a dash."""
    yield before
    for word, each in getattr(group, "commands", {}).items():
        yield from commands(each, (*before, word))


@pytest.fixture(scope="module")
def manual() -> dict[str, str]:
    return pages()


def test_every_command_has_a_page_with_all_that_its_help_offers(manual: dict[str, str]) -> None:
    assert {"iotax.1", "iotax-run.1", "iotax-lab-vm-build.1"} <= manual.keys()
    words_of = {"-".join(["iotax", *words]): words for words in commands(get_command(app))}
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
