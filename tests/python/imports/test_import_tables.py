"""Tables of any program: the user names the columns, and nothing is guessed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iotax.imports.formats import FORMATS
from iotax.imports.measured import Measured
from iotax.imports.naming import PatternError
from iotax.imports.problems import Notes, Unreadable
from iotax.imports.table import given_columns

HAMMERDB = """\
Path,TPM,Avg ms,p99 (ms),Max ms,Host cores,VUs,Began
NFS,"60,000",2.0,8.1,40,3.2,16,2026-05-01T10:00:00Z
iSCSI,66000,1.8,7.0,31,2.9,16,2026-05-01T10:02:00Z
NFS,60600,2.05,8.3,44,3.25,16,2026-05-01T10:04:00Z
iSCSI,67200,1.79,7.1,30,2.85,16,2026-05-01T10:06:00Z
"""
COLUMNS = (
    "protocol=Path", "tpm=TPM", "latency_ms=Avg ms", "latency_p99_ms=p99 (ms)", "latency_max_ms=Max ms",
    "cpu_initiator_cores=Host cores", "workers=VUs", "start=Began", "duration_s=60",
)  # fmt: skip


def read(path: Path, text: str, *columns: str) -> list[Measured]:
    path.write_text(text)
    return replace(FORMATS["table"], columns=given_columns(columns)).read(path, Notes())


def test_each_row_is_a_run_with_what_its_columns_are_said_to_hold(tmp_path: Path) -> None:
    results = read(tmp_path / "a.csv", HAMMERDB, *COLUMNS)
    assert [each.settings["protocol"] for each in results] == ["NFS", "iSCSI", "NFS", "iSCSI"]
    first = results[0]
    assert (first.read.ios, first.duration_ns, first.unit) == (60_000, 60 * 10**9, "transaction")
    assert (first.read.latency_sum_ns, first.read.latency_max_ns) == (2_000_000 * 60_000, 40_000_000)
    assert list(first.percentiles) == [(99.0, 8_100_000)]
    [cpu] = first.cpu
    assert (cpu.role, cpu.layer, cpu.busy_ns) == ("initiator", "machine", 192 * 10**9)
    assert (first.workers, first.settings["workers"]) == (16, 16)
    assert first.start_unix_ns == 1_777_629_600 * 10**9


def test_rows_of_one_treatment_are_replicates_and_are_compared(tmp_path: Path, iotax: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(HAMMERDB)
    words = [word for each in COLUMNS for word in ("--column", each)]
    done = iotax("import", "table", "a.csv", "-n", "a.iotax", *words)
    assert done.exit_code == 0, done.output
    assert "Imported 4 results from 1 table file" in done.output
    document = json.loads(iotax("show", "a.iotax", "--json").stdout)
    assert document["wall_s"] is None
    shown = document["treatments"]
    found = {each["levels"]["protocol"]: each["values"] for each in shown}
    assert {name: len(list(values)) > 3 for name, values in found.items()} == {"NFS": True, "iSCSI": True}
    assert found["NFS"]["iops"]["value"] == pytest.approx((1000 * 1010) ** 0.5)
    assert found["iSCSI"]["cpu_initiator"]["value"] == pytest.approx((2.9e6 / 1100 * 2.85e6 / 1120) ** 0.5)
    # The same file with other columns is another import.
    again = iotax("import", "table", "a.csv", "-n", "a.iotax", *words[2:])
    assert again.exit_code == 0, again.output


def test_other_separators_and_decimal_commas_are_read(tmp_path: Path) -> None:
    text = "Pfad;IO/s;Mittel us;MiB/s;bs;qd\nNFS;1000,5;2000,5;4;4KiB;8\n\niSCSI;1100;1800;4,25;8KiB;8\n"
    nfs, iscsi = read(
        tmp_path / "a.csv",
        text,
        "protocol=Pfad",
        "iops=IO/s",
        "latency_us=Mittel us",
        "mib_per_s=MiB/s",
        "block_size=bs",
        "outstanding=qd",
        "duration_s=10",
    )
    assert (nfs.read.ios, nfs.read.bytes, iscsi.read.bytes) == (10_005, 40 << 20, round(42.5 * (1 << 20)))
    assert nfs.read.latency_sum_ns / nfs.read.ios == pytest.approx(2_000_500)
    assert (nfs.settings["block_size"], nfs.per_worker, nfs.unit) == (4096, 8, "I/O")


@pytest.mark.parametrize(
    ("figures", "iops"),
    [
        (["60,000", "2.5"], [60_000, 2.5]),
        (["1,000,000", "60,000"], [1_000_000, 60_000]),
        (["60,000", "2,5"], [60, 2.5]),
        (["60.000", "2,5"], [60_000, 2.5]),
        (["1.000,5", "7"], [1000.5, 7]),
        (["60.125", "7"], [60.125, 7]),
    ],
)
def test_the_decimal_mark_is_that_of_the_figures_that_leave_no_doubt(
    tmp_path: Path, figures: list[str], iops: list[float]
) -> None:
    for separator in ";\t":
        text = "\n".join([f"x{separator}IO/s", *(f"a{separator}{each}" for each in figures)])
        results = read(tmp_path / "a.csv", text, "setup=x", "iops=IO/s", "duration_s=1000")
        assert [each.read.ios / 1000 for each in results] == iops


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (["60,000", "7"], "'60,000' may be 60000 or 60.000: write it without a comma"),
        (["2.5", "2,5"], "figures with decimal points and others with decimal commas"),
        (["30%", "7"], "found '30%' where a number is expected"),
        (["1,00,000", "2.5"], "found '1,00,000' where a number is expected"),
    ],
)
def test_a_figure_that_could_be_another_is_refused(tmp_path: Path, figures: list[str], said: str) -> None:
    notes = Notes()
    (tmp_path / "a.csv").write_text("\n".join(["x;IO/s", *(f"a;{each}" for each in figures)]))
    form = replace(FORMATS["table"], columns=given_columns(["setup=x", "iops=IO/s", "duration_s=1000"]))
    try:
        form.read(tmp_path / "a.csv", notes)
    except Unreadable as problem:
        notes.add(None, str(problem))
    assert any(said in each for each in notes.said), notes.said


def test_without_a_column_for_bytes_they_follow_from_the_block_size(tmp_path: Path) -> None:
    [one] = read(tmp_path / "a.tsv", "x\ty\n100\t4096\n", "iops=x", "block_size=y", "duration_s=2")
    assert (one.read.bytes, one.read.latency) == (200 * 4096, "none")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["iops"], "write NAME=TITLE"),
        (["iops=x", "iops=y", "duration_s=1"], "iops is named twice"),
        (["duration_s=1"], "needs one rate"),
        (["iops=x", "tps=y", "duration_s=1"], "needs one rate"),
        (["iops=x"], "how long a run measured"),
        (["iops=x", "duration_s=1", "latency_p99=y"], "latency_p99 is not a figure that a table can hold; write"),
        (["iops=x", "duration_s=1", "cpu_switch_cores=y"], "where ROLE is one of initiator, target"),
    ],
)  # fmt: skip
def test_columns_that_say_too_little_or_nothing_known_are_refused(columns: list[str], said: str) -> None:
    with pytest.raises(PatternError, match=said):
        given_columns(columns)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"a\.csv: it is empty"),
        ("IO/s\n", r"a\.csv: no row below the titles"),
        ("rate\n1\n", r"a\.csv:1: IO/s: no column has this title; there are rate"),
        ("IO/s,IO/s\n1,2\n", r"a\.csv:1: IO/s: 2 columns have this title"),
        ("IO/s\nfast\n", r"a\.csv:2: iops: found 'fast' where a number is expected"),
        ("IO/s\n-5\n", r"a\.csv:2: iops: found '-5', which is below 0"),
        ("IO/s\n0\n", r"a\.csv:2: iops: no read or write completed"),
        ("IO/s\n1,2\n", r"a\.csv:2: 2 columns where the titles are 1"),
        ("IO/s\n1e400\n", r"a\.csv:2: iops"),
    ],
)
def test_what_is_wrong_is_named_with_line_and_column(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        read(tmp_path / "a.csv", text, "iops=IO/s", "duration_s=10")


def test_one_wrong_row_costs_the_others_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("IO/s\n100\nn/a\n102\n")
    notes = Notes()
    results = replace(FORMATS["table"], columns=given_columns(["iops=IO/s", "duration_s=10"])).read(path, notes)
    assert [each.read.ios for each in results] == [1000, 1020]
    assert any("a.csv:3: iops: found 'n/a' where a number is expected: left out" in said for said in notes.said)


def test_columns_are_of_tables_only(tmp_path: Path, iotax: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.json").write_text("{}")
    done = iotax("import", "fio", "a.json", "--column", "iops=x", code=2)
    assert "--column says what a table's columns are" in done.output
    done = iotax("import", "table", "a.json", code=2)
    assert "needs one rate" in done.output


def test_labels_with_brackets_and_bars_are_shown_as_they_are(tmp_path: Path, iotax: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text(HAMMERDB.replace("NFS,", "array [raid5]|a,").replace("iSCSI,", "array [/]|b,"))
    words = [word for each in COLUMNS for word in ("--column", each)]
    assert iotax("import", "table", "a.csv", "-n", "a.iotax", *words).exit_code == 0
    for command in (("show", "a.iotax"), ("show", "a.iotax", "--long"), ("size", "a.iotax", "--iops", "1k")):
        done = iotax(*command)
        assert done.exit_code == 0, done.output
        assert "[raid5]" in done.stdout and "[/]" in done.stdout, command
    assert iotax("report", "a.iotax", "--charts", "charts").exit_code == 0
    [ratios] = [file.read_text() for file in Path("charts").glob("ratio-*iops*.svg")]
    assert "array [raid5]|a" in ratios or "array [/]|b" in ratios
