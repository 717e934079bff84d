"""`iotax compare` as Markdown and as a page, and `iotax export` for Bencher."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from import_samples import fio_campaign

PATTERN = ("--name-pattern", "{protocol}-{bs}-r{replicate}.json")


@pytest.fixture
def slower(tmp_path: Path, iotax) -> Path:
    """Runs `before` and `after`; the rates of `after` are 80 % of those of `before`."""
    folder = fio_campaign(tmp_path / "c")
    iotax("import", "fio", folder, *PATTERN, "-n", "c.iotax", "--label", "before")
    for path in folder.glob("*.json"):
        path.write_text(path.read_text().replace('"runtime": 1000', '"runtime": 1250'))
    iotax("import", "fio", folder, *PATTERN, "-n", "c.iotax", "--label", "after")
    return tmp_path / "c.iotax"


def test_markdown_has_the_verdict_first_and_a_table(tmp_path: Path, slower: Path, iotax) -> None:
    result = iotax("compare", "before", "after", slower, "-o", "x.md", "--fail-on-regression", code=6)
    assert "Regression" in result.output
    text = (tmp_path / "x.md").read_text()
    lines = text.splitlines()
    assert lines[:2] == ["<!-- iotax -->", "### before → after"]
    assert re.match(
        r"\*\*Regression \(all together\): 20 % fewer IOPS \(95 % CI [^)]* to [^)]*\); doubtful\.\*\*", lines[3]
    ), lines[3]
    # The test changed the rates in the files, but not latency and depth.
    assert "Doubtful (all together): all 12 runs (Little's law)." in lines
    table = [line for line in lines if line.startswith("|")]
    assert table[1].startswith("| --- | --- | ---: |")
    assert len({line.count(" | ") for line in table[: table.index(table[1]) + 4]}) == 1
    assert re.search(r"\| −20\.0 % \\\[", text)


def test_the_page_loads_nothing_and_says_the_same(tmp_path: Path, slower: Path, iotax) -> None:
    iotax("compare", "before", "after", slower, "-o", "x.html")
    text = (tmp_path / "x.html").read_text()
    assert re.search(r"<b>Regression \(all together\): 20 % fewer IOPS \(95 % CI [^)]*\); doubtful\.</b>", text)
    assert not re.search(r"(src|href)=", text)


def test_the_page_draws_each_treatment_before_and_after(tmp_path: Path, slower: Path, iotax) -> None:
    iotax("compare", "before", "after", slower, "-o", "x.html")
    text = (tmp_path / "x.html").read_text()
    charts = dict(re.findall(r"<h2>([^<]*), before = 100</h2>.*?(<svg viewBox=.*?</svg>)", text, re.DOTALL))
    assert len(charts) == text.count("<svg")
    rates = charts["Throughput"]
    assert re.search(r'aria-label="Throughput, before = 100\. after: all together 80\.0 \[[^]]*\]; iSCSI', rates)
    old = {float(width) for width in re.findall(r'class="old" y="\d+" width="([\d.]+)"', rates)}
    new = [float(width) for width in re.findall(r'class="new" y="\d+" width="([\d.]+)"', rates)]
    assert len(old) == 1
    assert new == pytest.approx([0.8 * old.pop()] * 3, rel=0.01)


def test_names_cannot_break_either(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    words = ("import", "fio", folder, *PATTERN, "--factor", "array=<b>|x", "-n", "c.iotax")
    iotax(*words)
    for suffix in ("md", "html"):
        iotax("compare", "iscsi", "nfs", "c.iotax", "-o", f"x.{suffix}")
        text = (tmp_path / f"x.{suffix}").read_text()
        assert "<b>|x" not in text


def test_an_output_replaces_no_input_and_names_its_kind(tmp_path: Path, slower: Path, iotax) -> None:
    del tmp_path
    before = slower.read_bytes()
    assert "name a .md file" in iotax("compare", "before", "after", slower, "-o", "x.txt", code=2).output
    iotax("compare", "before", "after", slower, "-o", slower, code=2)
    assert slower.read_bytes() == before


def test_bencher_gets_each_treatment_with_its_interval(slower: Path, iotax) -> None:
    found = json.loads(iotax("export", slower, "--format", "bencher").stdout)
    assert set(found) == {"c/iscsi/4KiB", "c/nfs/4KiB"}
    throughput = found["c/iscsi/4KiB"]["throughput"]
    assert throughput["lower_value"] < throughput["value"] < throughput["upper_value"]
    assert throughput["value"] == pytest.approx(0.8 * (1000 * 1010 * 1020) ** (1 / 3))
    assert found["c/nfs/4KiB"]["latency"]["value"] == pytest.approx(180_000.5)
    assert "leave out the series" in iotax("export", slower, "--format", "bencher", "--run", "all", code=2).output
