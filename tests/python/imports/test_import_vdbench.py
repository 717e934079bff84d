"""vdbench's other files: the summary, its histogram file, and the terminal output that HCIBench keeps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from format_samples import VDBENCH
from vdbench_samples import HEAD, INTERVALS, START, histogram, summary, terminal

from iotax.imports.formats import FORMATS
from iotax.imports.measured import Measured
from iotax.imports.problems import Notes, Unreadable

REAL = Path(__file__).parent / "real" / "vdbench-5.04.06"


def read(path: Path, text: str) -> tuple[list[Measured], list[str]]:
    path.write_text(text)
    notes = Notes()
    return FORMATS["vdbench"].read(path, notes), notes.said


@pytest.mark.parametrize("text", [summary(), terminal()], ids=["summary.html", "terminal"])
def test_the_summary_has_what_the_flatfile_has_and_the_date(tmp_path: Path, text: str) -> None:
    (measured,), notes = read(tmp_path / "summary.html", text)
    result = measured.result([])
    assert result.rate_iops == 1000
    assert (result.read.ios, result.write.ios) == (1500, 500)
    assert result.read.latency_sum_ns == 1500 * 1_500_000 and result.write.latency_sum_ns == 500 * 3_500_000
    assert (result.read.latency_max_ns, result.write.latency_max_ns) == (20_000_000, 40_000_000)
    assert result.rate_bytes_per_s == pytest.approx(3.91 * 2**20, rel=1e-6)
    assert measured.settings == {"block_size": 4096, "threads": 16, "rate_iops": 1250}
    assert measured.version == "50407"
    assert result.open is not None and result.open.achieved == pytest.approx(0.8)
    # The first measured interval ends at 10:00:03 and lasts a second.
    assert measured.start_unix_ns == 1_777_629_602 * 10**9
    assert [each.reads + each.writes for each in result.series] == [1000, 1000]
    assert any("tod: times have no zone: taken as UTC" in note for note in notes)


def test_the_flatfile_s_own_date_is_taken_with_its_zone(tmp_path: Path) -> None:
    text = (REAL / "flatfile.html").read_text()
    (measured,), notes = read(tmp_path / "flatfile.html", text)
    # At 04:20:48 the first interval ended that the mean includes.
    assert measured.start_unix_ns == 1_795_407_647 * 10**9
    assert not any("taken as UTC" in note for note in notes)
    _, notes = read(tmp_path / "flatfile.html", text.replace("-UTC", "-MST"))
    assert any("timestamp: times are of the zone MST: taken as UTC" in note for note in notes)


def test_a_mean_that_holds_the_warm_up_is_told_and_has_the_histogram_of_all_of_it(tmp_path: Path) -> None:
    """avg_2-4 of 5.04.06 was (150 + 397 + 392 + 394) / 4."""
    shutil.copy(REAL / "histogram.html", tmp_path)
    (measured,), notes = read(tmp_path / "flatfile.html", (REAL / "flatfile.html").read_text())
    result = measured.result([])
    assert result.rate_iops == pytest.approx(333.25)
    assert result.latency_known == "histogram"
    assert (result.duration_s, len(result.series)) == (4, 4)
    assert any("avg_2-4 is the mean from interval 1 on: some of the warm-up is in it" in note for note in notes)


def test_what_has_several_values_is_no_figure_and_costs_nothing_else(tmp_path: Path) -> None:
    text = (REAL / "flatfile.html").read_text().replace("  4096     4.0000    75.0000", "   n/a        n/a        n/a")
    (measured,), _ = read(tmp_path / "flatfile.html", text)
    assert measured.result([]).rate_iops == pytest.approx(333.25)
    assert measured.settings == {"rate_iops": 400}
    assert measured.per_worker is None


def test_the_length_of_an_interval_is_that_of_most(tmp_path: Path) -> None:
    """The first interval was written late, 1.6 s before the next."""
    text = terminal().replace("10:00:02.018", "10:00:01.411")
    (measured,), _ = read(tmp_path / "summary.html", text)
    assert measured.result([]).duration_s == 2


def test_the_rate_as_fast_as_it_goes_is_called_so(tmp_path: Path) -> None:
    (measured,), _ = read(tmp_path / "summary.html", terminal().replace("I/O rate: 1250", "I/O rate: Uncontrolled MAX"))
    assert measured.settings["rate_iops"] == "max"
    assert measured.rate_iops is None


def test_a_run_that_formats_the_disk_is_no_result(tmp_path: Path) -> None:
    measured, _ = read(tmp_path / "summary.html", summary())
    assert len(measured) == 1


def test_megabytes_of_the_summary_are_what_its_header_says(tmp_path: Path) -> None:
    (measured,), _ = read(tmp_path / "summary.html", summary(unit="1000**2"))
    assert measured.result([]).rate_bytes_per_s == pytest.approx(3.91e6, rel=1e-6)


def test_megabytes_that_change_within_a_file_are_refused_with_both_lines(tmp_path: Path) -> None:
    again = START.replace("rd1", "rd2") + HEAD.format(date="May 01, 2026", unit="1000**2") + INTERVALS
    with pytest.raises(Unreadable, match=r"summary\.html:\d+: MB are of another size from here on than in line \d+"):
        read(tmp_path / "summary.html", summary() + again)


@pytest.mark.parametrize("name", ["flatfile.html", "summary.html"])
def test_percentiles_are_those_of_the_histogram_beside_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "histogram.html").write_text(histogram(*((7500, 2500) if name == "flatfile.html" else (1500, 500))))
    (measured,), _ = read(tmp_path / name, VDBENCH if name == "flatfile.html" else summary())
    result = measured.result([])
    assert result.latency_known == "histogram"
    # Half of them are in the first bin, from 0 to 1 ms. The second bin has 49.67 % of them; values in it are
    # interpolated.
    found = [result.read.percentile_ns(percent) for percent in (50, 99)]
    assert found == pytest.approx([1_000_000, 1_000_000 + 3_000_000 * 49 / 49.67], rel=0.02)
    assert result.read.histogram.between_ns(found[1]) == (1_000_000, 4_000_000)
    assert result.write.percentile_ns(50) == 2_000_000
    # The table's mean, not that of the bins. The slowest I/O is the upper end of the last bin.
    assert result.read.latency_sum_ns == result.read.ios * 1_500_000
    assert result.read.percentile_ns(100) == result.read.latency_max_ns


def test_a_histogram_of_other_runs_is_left_out_and_told(tmp_path: Path) -> None:
    (tmp_path / "histogram.html").write_text(histogram(40, 20))
    (measured,), notes = read(tmp_path / "summary.html", summary())
    assert measured.result([]).latency_known == "mean"
    assert any("histogram.html: 40 reads, where summary.html has 1,500" in note for note in notes)


def test_a_histogram_that_is_damaged_costs_percentiles_only(tmp_path: Path) -> None:
    (tmp_path / "histogram.html").write_text(histogram().replace("1.000 <       4.000", "1.000 <       fast"))
    (measured,), notes = read(tmp_path / "summary.html", summary())
    assert measured.result([]).latency_known == "mean"
    assert any("histogram.html:14: found" in note and "without it there are no percentiles" in note for note in notes)


def test_a_flatfile_has_its_date_from_the_summary_beside_it(tmp_path: Path) -> None:
    (tmp_path / "summary.html").write_text(summary())
    (measured,), _ = read(tmp_path / "flatfile.html", VDBENCH)
    assert measured.start_unix_ns == (1_777_629_603 - 5) * 10**9


def test_a_folder_with_flatfile_and_summary_is_read_once(tmp_path: Path) -> None:
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "summary.html").write_text(summary())
    (tmp_path / "b" / "flatfile.html").write_text(VDBENCH)
    found = [str(each.relative_to(tmp_path)) for each in FORMATS["vdbench"].files(tmp_path)]
    assert found == ["a/summary.html", "b/flatfile.html"]


def test_a_summary_cut_anywhere_gives_a_result_or_a_reason(tmp_path: Path) -> None:
    text = summary()
    (tmp_path / "histogram.html").write_text(histogram()[:900])
    for end in range(0, len(text), 41):
        try:
            measured, _ = read(tmp_path / "summary.html", text[:end])
        except Unreadable:
            continue
        assert all(each.duration_ns > 0 for each in measured)


def test_hcibench_adds_up_the_machines_of_vdbench(tmp_path: Path, iotax) -> None:
    case = tmp_path / "h" / "vdb-4k"
    case.mkdir(parents=True)
    for vm in (1, 2):
        (case / f"hci-vdb-ds-{vm}.txt").write_text(terminal())
    (tmp_path / "h" / "vdb-4k-res.txt").write_text("95%tile_LAT\t= 3.6 ms\n")
    said = json.loads(iotax("import", "hcibench", tmp_path / "h", "-n", "h.iotax", "--json").stdout)
    assert (said["files"], said["results"], said["not_imported"]) == (2, 1, [])
    shown = json.loads(iotax("show", "h.iotax", "--json").stdout)["treatments"][0]["values"]
    assert shown["iops"]["value"] == pytest.approx(2000)
    assert shown["latency"]["value"] == pytest.approx(2000)
    assert "latency_p99" not in shown


def test_hcibench_s_own_summary_is_refused(tmp_path: Path, iotax) -> None:
    (tmp_path / "x-res.txt").write_text("95%tile_LAT\t= 3.6 ms\n")
    said = iotax("import", "hcibench", tmp_path / "x-res.txt", "-n", "h.iotax", code=2).output
    assert "averages percentiles: name the folder of the case" in said
