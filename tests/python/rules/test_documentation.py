"""The documentation is correct: links lead to pages, commands parse, studies load."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from iotax.cli.app import app
from iotax.study.read import load_study

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "bench").glob("*.md"),
        *(ROOT / "crates").rglob("*.md"),
    }
)
_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^ {4,}(?:\S+ )?(?:\.venv/bin/)?iotax ([^`\n]+)", re.MULTILINE)
_MENTION = re.compile(r"`(?:\.venv/bin/)?iotax ([^`]+)`")


def links(page: Path) -> Iterator[str]:
    text = _FENCE.sub("", page.read_text())
    for found in _LINK.finditer(text):
        target = found[1] or found[2]
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """Anchors of headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each.lower())) for each in headings)
    return {each.strip().replace(" ", "-") for each in plain}


def dead(page: Path) -> list[str]:
    found = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(f"{page.relative_to(ROOT)}: {link}")
    return found


def commands(page: Path, pattern: re.Pattern[str]) -> list[list[str]]:
    """Words after `iotax` in a page's commands, without pipes, redirections and comments."""
    found = []
    for line in pattern.findall(page.read_text()):
        words = shlex.split(re.split(r"\s(?:#|\||>|&&|;)|\s{3,}", line)[0].rstrip(" .,:;"))
        if words and not any("…" in word for word in words):
            found.append(words)
    return found


def wrong(words: list[str]) -> str:
    """Why the command line rejects these words; empty if it accepts them."""
    command, context, rest = found(words)
    if rest and hasattr(command, "list_commands"):
        return "" if rest[0] in ("--version", "--help") else f"{' '.join(words)}: no command {rest[0]}"
    try:
        if rest and "--help" not in rest:
            command.make_context(words[0], rest, parent=context)
    except Exception as error:
        return f"{' '.join(words)}: {getattr(error, 'message', error)}"
    return ""


def unknown(words: list[str]) -> str:
    """Commands and options in the text that iotax does not have."""
    command, _, rest = found(words)
    if rest and hasattr(command, "list_commands") and not rest[0].startswith("-"):
        return f"{' '.join(words)}: no command {rest[0]}"
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}
    strange = [word for word in rest if word.startswith("-") and word.partition("=")[0] not in known]
    return f"{' '.join(words)}: no option {strange}" if strange else ""


def found(words: list[str]) -> tuple[Any, Any, list[str]]:
    """The command that the first words name, its context, and the remaining words."""
    command: Any = get_command(app)
    context, rest = None, list(words)
    while rest and hasattr(command, "list_commands") and rest[0] in command.list_commands(context):
        context = command.context_class(command, info_name=command.name, parent=context)
        command = command.get_command(context, rest.pop(0))
    return command, context, rest


def studies(page: Path) -> list[str]:
    """YAML blocks that are whole studies. Parts of a study have no name, and a pipeline has no factors."""
    blocks = [text for language, text in _FENCE.findall(page.read_text()) if language == "yaml"]
    return [text for text in blocks if {"name", "factors"} <= yaml.safe_load(text).keys()]


def test_links_lead_somewhere() -> None:
    assert sum(len(list(links(page))) for page in PAGES) > 50
    assert [each for page in PAGES for each in dead(page)] == []


def test_the_site_has_every_page_of_docs_once() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    named = [
        page for section in nav for pages in section.values() for page in ([pages] if isinstance(pages, str) else pages)
    ]
    script = (ROOT / "scripts" / "site").read_text()
    made = [page for page in named if not (ROOT / page).is_file()]
    assert made == ["docs/gallery/README.md", "docs/reference/commands.md"]
    assert all(page.removesuffix("/README.md") in script for page in made)
    assert sorted(page for page in named if page.startswith("docs/") and page not in made) == sorted(
        str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")
    )


def test_command_lines_that_pages_show_parse() -> None:
    shown = [words for page in PAGES for words in commands(page, _LINE)]
    assert len(shown) > 40
    assert [each for each in map(wrong, shown) if each] == []


def test_commands_and_options_that_pages_mention_exist() -> None:
    mentioned = [words for page in PAGES for words in commands(page, _MENTION)]
    assert len(mentioned) > 50
    assert [each for each in map(unknown, mentioned) if each] == []


def test_studies_that_pages_show_load(tmp_path: Path) -> None:
    shown = [text for page in PAGES for text in studies(page)]
    assert len(shown) > 2
    for number, text in enumerate(shown):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        load_study(str(path))


def test_contributing_says_where_to_change_what() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text.partition("## Where do I change …?")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    for row in rows:
        places = re.findall(r"`([^`]+)`", row)
        assert places
        assert [each for each in places if not (ROOT / each.removesuffix("/NAME")).exists()] == []


WORDS_MAX = 30_000
"""Limit for all pages except measured results."""
GUIDE_WORDS_MAX = 1_200
LONGER = {"statistics.md", "safety.md"}
"""Pages on why results and data can be trusted; they may be longer."""
START_WORDS_MAX = 350
README_LINES_MAX = 100
CHANGELOG_LINES_MAX = 30
FIGURES = re.compile(
    r"\b(?:Intel Xeon|AMD EPYC|processors that other work kept busy|(?:19|20)\d\d-\d\d-\d\d, \d+ processors)\b"
)
"""Text about the machine of a measurement, which belongs in docs/results."""


def words(page: Path) -> int:
    """Without the bars of tables and the dashes of lists."""
    return len(re.findall(r"\S*\w\S*", page.read_text()))


def prose() -> list[Path]:
    return [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "results"]


def test_the_documentation_is_short() -> None:
    pages = {page: words(page) for page in prose()}
    assert sum(pages.values()) <= WORDS_MAX
    guides = {page.name: count for page, count in pages.items() if page.parent.name == "guide"}
    assert {n: c for n, c in guides.items() if c > GUIDE_WORDS_MAX and n not in LONGER} == {}
    start = {page.name: count for page, count in pages.items() if page.parent.name == "start"}
    assert len(start) == 5
    assert max(start.values()) <= START_WORDS_MAX
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= CHANGELOG_LINES_MAX


def test_each_page_to_start_with_has_three_commands_and_a_picture() -> None:
    for page in sorted((ROOT / "docs/start").glob("*.md")):
        assert 2 <= len(commands(page, _LINE)) <= 3, page.name
        assert re.search(r"!\[[^]]+\]\(\.\./images/", page.read_text()), page.name


def test_measured_figures_stand_in_results() -> None:
    assert [page.name for page in prose() if FIGURES.search(page.read_text())] == []


@pytest.mark.parametrize("words", ["rum quick", "run --lively", "compare a", "lab vm biuld", "size --iops many"])
def test_a_command_that_does_not_parse_is_noticed(words: str) -> None:
    assert wrong(words.split())


@pytest.mark.parametrize("words", ["rum", "run --lively", "lab vm biuld", "size --iop=1"])
def test_a_mention_of_what_is_not_there_is_noticed(words: str) -> None:
    assert unknown(words.split())


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    page = ROOT / "README.md"
    assert dead(page) == []
    broken = tmp_path / "page.md"
    broken.write_text("# One\n[a](gone.md), [b](#one), [c](#two), [d](https://example.org/)\n")
    targets = [link for link in links(broken) if not (broken.parent / link.partition("#")[0]).exists()]
    assert targets == ["gone.md"] and anchors(broken) == {"one"}
