"""Each format: figures as its program gave them, and errors in a file with their place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from format_samples import (
    BDEVPERF,
    DISKSPD,
    ELBENCHO,
    IOMETER,
    PERF,
    PERF_BINS,
    PERF_CUTS,
    PGBENCH,
    SYSBENCH,
    VDBENCH,
    buckets,
    elbencho_phase,
)
from import_samples import BINS, fio_file, fio_job, fio_side

from iotax.imports.fio_histogram import bin_middle
from iotax.imports.formats import FORMATS
from iotax.imports.measured import Measured, together
from iotax.imports.problems import Notes, Unreadable


def read(name: str, path: Path, text: str) -> tuple[list[Measured], list[str]]:
    path.write_text(text)
    notes = Notes()
    return FORMATS[name].read(path, notes), notes.said


def test_diskspd(tmp_path: Path) -> None:
    (measured,), _ = read("diskspd", tmp_path / "a.xml", DISKSPD)
    result = measured.result([])
    assert (result.rate_iops, result.rate_bytes_per_s) == (1000, 8_192_000)
    assert result.latency_mean_ns == 1_500_000
    assert result.own_percentiles == {99.0: 4_250_000}
    assert result.latency_max_ns == 9_000_000
    assert result.outstanding.total == 32
    # A quarter of four processors over 2 s, and 2,000 I/Os: 1 ms of CPU per I/O, including the kernel.
    assert result.cpu_per_io_ns("initiator") == pytest.approx(1_000_000)
    assert measured.settings["block_size"] == 8192 and measured.settings["access"] == "random"


def test_diskspd_without_latency_still_has_rates(tmp_path: Path) -> None:
    start, end = DISKSPD.index("<Latency>"), DISKSPD.index("</Latency>") + len("</Latency>")
    (measured,), _ = read("diskspd", tmp_path / "a.xml", DISKSPD[:start] + DISKSPD[end:])
    assert measured.result([]).rate_iops == 1000
    assert measured.result([]).latency_known == "none"
    assert measured.notes == ["latency was not measured: run DiskSpd with -L"]


def test_diskspd_says_when_it_began(tmp_path: Path) -> None:
    """In UTC, after the warm-up of 5 s."""
    system = "<System><RunTime>2026/05/01 10:00:00 UTC</RunTime>"
    (measured,), _ = read("diskspd", tmp_path / "a.xml", DISKSPD.replace("<System>", system))
    assert measured.start_unix_ns == 1_777_629_605 * 10**9


def test_a_time_span_of_diskspd_that_was_interrupted_costs_itself_only(tmp_path: Path) -> None:
    error = "<TimeSpan><Error>The test was interrupted before the measurements began.</Error></TimeSpan>"
    measured, notes = read("diskspd", tmp_path / "a.xml", DISKSPD.replace("</Results>", f"{error}</Results>"))
    assert [each.result([]).rate_iops for each in measured] == [1000]
    assert "TimeSpan/Error: time span 2 is left out: DiskSpd says 'The test was interrupted" in notes[0]
    with pytest.raises(Unreadable, match="interrupted before it measured anything"):
        read("diskspd", tmp_path / "b.xml", f"<Results>{error}</Results>")


@pytest.mark.parametrize(("of_thread", "per_worker"), [("0", 16), ("24", 24)])
def test_threads_of_diskspd_that_serve_all_targets(tmp_path: Path, of_thread: str, per_worker: int) -> None:
    shared = f"<ThreadCount>6</ThreadCount><RequestCount>{of_thread}</RequestCount><Targets>"
    text = DISKSPD.replace("<Targets>", shared).replace("<ThreadsPerFile>2<", "<ThreadsPerFile>1<")
    (measured,), _ = read("diskspd", tmp_path / "a.xml", text)
    assert (measured.workers, measured.per_worker) == (6, per_worker)
    assert measured.settings["workers"] == 6


def test_vdbench_rows_are_read_by_their_header(tmp_path: Path) -> None:
    (measured,), _ = read("vdbench", tmp_path / "flatfile.html", VDBENCH)
    result = measured.result([])
    assert result.rate_iops == 1000
    assert (result.read.ios, result.write.ios) == (7500, 2500)
    assert result.latency_mean_ns == pytest.approx(2_000_000)
    assert result.duration_s == 10
    assert [each.reads + each.writes for each in result.series] == [5000, 5000]
    assert result.open is None  # a request rate of 999988 means unlimited
    assert result.facts.warmup_ns == 5_000_000_000


def test_vdbench_at_a_rate_is_an_open_loop(tmp_path: Path) -> None:
    (measured,), _ = read("vdbench", tmp_path / "flatfile.html", VDBENCH.replace("999988", "  1250"))
    held = measured.result([]).open
    assert held is not None and held.achieved == pytest.approx(0.8)


def test_a_vdbench_run_that_did_not_end_is_told(tmp_path: Path) -> None:
    more = VDBENCH + VDBENCH.splitlines()[3].replace("rd1", "rd2") + "\n"
    measured, notes = read("vdbench", tmp_path / "flatfile.html", more)
    assert len(measured) == 1
    assert "run rd2 has no mean" in notes[0]


def test_iometer_whole_tests(tmp_path: Path) -> None:
    (measured,), _ = read("iometer", tmp_path / "a.csv", IOMETER)
    result = measured.result([])
    assert result.rate_iops == pytest.approx(5000.5)
    assert result.latency_mean_ns == pytest.approx(3_200_000)
    assert result.rate_bytes_per_s == pytest.approx(5000.5 * 4096)
    assert result.outstanding.total == 32
    assert measured.version == "1.1.0"


def test_an_iometer_specification_of_several_sizes_has_no_single_one(tmp_path: Path) -> None:
    (measured,), _ = read(
        "iometer", tmp_path / "a.csv", IOMETER.replace("4096,100,100,100,", "4096,60,100,100,0,1,0,0\n8192,40,100,0,")
    )
    settings = {name: measured.settings[name] for name in ("block_size", "read", "random")}
    assert settings == {"block_size": "mixed", "read": 100, "random": "mixed"}


@pytest.mark.parametrize(
    "columns",
    ["MBps,Read MBps,Write MBps", "MiBps (Binary),Read MiBps (Binary),Write MiBps (Binary),MBps (Decimal)"],
    ids=["2006", "1.1"],
)
def test_bandwidth_of_iometer_is_that_of_its_bytes_whatever_its_columns_are_called(
    tmp_path: Path, columns: str
) -> None:
    """In version 2006 "MBps" means 2²⁰ bytes, in 1.1 it means 10⁶ or 2²⁰ bytes."""
    more = ",".join("19.53" for _ in columns.split(","))
    text = IOMETER.replace("IOps,Read IOps", f"{columns},IOps,Read IOps").replace(
        "5000.5,5000.5", f"{more},5000.5,5000.5"
    )
    (measured,), _ = read("iometer", tmp_path / "a.csv", text)
    assert measured.result([]).rate_bytes_per_s == pytest.approx(5000.5 * 4096)


def test_elbencho_phases_that_do_io(tmp_path: Path) -> None:
    (write, reads), notes = read("elbencho", tmp_path / "a.csv", ELBENCHO)
    assert (write.result([]).rate_iops, reads.result([]).rate_iops) == (2500, 9048)
    assert write.result([]).latency_mean_ns == pytest.approx(9_383_000)
    assert write.result([]).rate_bytes_per_s == 2500 * (1 << 20)
    assert any("first worker ended at 1.0 s, the last at 2.0 s" in note for note in write.notes)
    assert "left out MKDIRS" in notes[0]


def test_elbencho_json_has_histograms(tmp_path: Path) -> None:
    latency = {
        "IO": {"min_us": "60", "avg_us": "100", "max_us": "900", "histogram": buckets(b64_76=900, b861_1024=100)}
    }
    text = "\n".join(
        [
            elbencho_phase("MKDIRS", entries="4"),
            elbencho_phase("READ", iops="500", bytes="4096000", latency=latency),
        ]
    )
    (measured,), notes = read("elbencho", tmp_path / "a.json", text)
    result = measured.result([])
    assert (result.rate_iops, result.rate_bytes_per_s, result.write.ios) == (500, 2_048_000, 0)
    # Bins of a quarter power of two are too wide to use their upper ends, so values are interpolated within them.
    assert (result.latency_ns(50), result.latency_ns(99)) == (70_750, 896_344)
    assert (result.between_ns(50), result.between_ns(99)) == ((64_000, 76_000), (861_000, 1_024_000))
    assert (result.latency_mean_ns, result.latency_max_ns) == (100_000, 900_000)
    assert (measured.workers, measured.per_worker, measured.version) == (8, 8, "3.0-22")
    assert measured.start_unix_ns == pytest.approx(1_772_362_800_250_000_000, abs=1000)
    assert "left out MKDIRS" in notes[0]
    assert any("first worker ended at 1.0 s" in note for note in measured.notes)


def test_elbencho_json_of_a_mix_has_reads_and_writes_apart(tmp_path: Path) -> None:
    latency = {
        "IO": {
            "min_us": "1",
            "avg_us": "20",
            "max_us": "30",
            "rwmix_read": {"min_us": "2", "avg_us": "40", "max_us": "50"},
        }
    }
    text = elbencho_phase(
        "RWMIX70", iops="30", bytes="245760", rwmix_read={"iops": "70", "bytes": "573440"}, latency=latency
    )
    (measured,), _ = read("elbencho", tmp_path / "a.json", text)
    result = measured.result([])
    assert (result.read.ios, result.write.ios) == (140, 60)
    assert result.read.latency_sum_ns == 140 * 40_000 and result.write.latency_sum_ns == 60 * 20_000


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_elbencho_3_0_appends_what_it_measured_with_its_settings(suffix: str) -> None:
    """Two processes append to one file: writes and reads, then a mix. The JSON's settings are in the command line."""
    measured = FORMATS["elbencho"].read(Path(__file__).parent / "real" / f"elbencho-3.0-29.{suffix}", Notes())
    rates = [tuple(round(side.ios / each.duration_ns * 1e9) for side in (each.read, each.write)) for each in measured]
    assert rates == [
        (0, pytest.approx(44857, abs=2)),
        (pytest.approx(181979, abs=6), 0),
        pytest.approx((124744, 53303), abs=11),
    ]
    means_us = [
        round(side.latency_sum_ns / side.ios / 1e3) for each in measured for side in (each.write, each.read) if side.ios
    ]
    assert means_us == [86, 19, 12, 4]
    assert [each.settings["operation"] for each in measured] == ["write", "read", "rwmix70"]
    assert {each.version for each in measured} == {"3.0-29"}
    assert {(each.settings["block_size"], each.settings["random"], each.workers) for each in measured} == {
        (4096, "random", 2)
    }
    assert measured[0].per_worker == 2


@pytest.mark.parametrize(
    ("change", "at"), [({"iops": "many"}, "iops"), ({"latency": {"IO": {"histogram": buckets(b64=1)}}}, "range")]
)
def test_elbencho_json_with_a_figure_that_is_none_names_the_field(tmp_path: Path, change: dict, at: str) -> None:
    text = elbencho_phase("WRITE", **{"iops": "30", "bytes": "1", **change})
    with pytest.raises(Unreadable, match=rf"a\.json: WRITE, last_done.*, {at}: "):
        read("elbencho", tmp_path / "a.json", text)


def test_spdk_perf_histograms_merge_over_cores(tmp_path: Path) -> None:
    text = PERF + PERF_BINS.format(0) + PERF_BINS.format(1)
    (measured,), _ = read("spdk-perf", tmp_path / "a.txt", text)
    result = measured.result([])
    assert result.rate_iops == 2000
    assert result.latency_mean_ns == pytest.approx(600_000)
    assert (result.latency_ns(50), result.latency_ns(99)) == (200_000, 2_000_000)
    assert result.outstanding.total == 16


def test_spdk_perf_percentiles_of_several_cores_are_not_merged(tmp_path: Path) -> None:
    (measured,), _ = read("spdk-perf", tmp_path / "a.txt", PERF + PERF_CUTS.format(0) + PERF_CUTS.format(1))
    assert measured.result([]).latency_known == "mean"
    assert "run spdk_nvme_perf with -LL" in measured.notes[0]
    one_core = "\n".join(line for line in PERF.splitlines() if "core  1" not in line) + "\n\n" + PERF_CUTS.format(0)
    (measured,), _ = read("spdk-perf", tmp_path / "b.txt", one_core)
    assert measured.result([]).latency_ns(99) == 1_900_000


def test_namespaces_of_spdk_perf_whose_names_are_cut_off_alike_stay_apart(tmp_path: Path) -> None:
    """Section names are cut to 43 characters; sections are in the order of rows. Without I/O there is no row."""
    name = "TCP (addr:10.0.0.1 subnqn:nqn.2026-11.io.iotax:volume) NSID"
    rows = [
        f"{name} {nsid} from core  0: {rate:.2f} 1.00 500.00 100.00 2000.00" for nsid, rate in ((1, 1000), (3, 500))
    ]
    head = f"Latency histogram for {name[:43]} from core 0:\n  Range in us     Cumulative    IO count\n"
    counts = [
        head + (f"  100.000 -   {end}.000:  100.0000%  ( {n})\n" if n else "")
        for end, n in ((200, 2000), (0, 0), (300, 1000))
    ]
    text = "\n".join([*rows, "Total : 1500.00 2.00 500.00 100.00 2000.00", "", *counts])
    (measured,), _ = read("spdk-perf", tmp_path / "a.txt", text)
    result = measured.result([])
    assert measured.duration_ns == 2_000_000_000
    assert result.latency_counts() == {200_000: 2000, 300_000: 1000}
    assert result.rate_iops == 1500


def test_spdk_perf_without_its_command_line_does_not_say_what_was_done(tmp_path: Path) -> None:
    text = PERF + PERF_BINS.format(0) + PERF_BINS.format(1)
    (told,), _ = read("spdk-perf", tmp_path / "a.txt", text)
    (untold,), _ = read("spdk-perf", tmp_path / "b.txt", text.partition("\n")[2])
    assert told.notes == []
    assert untold.notes == ["it does not say whether these were reads or writes (-w): all are shown as reads"]


def test_spdk_perf_without_its_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="does not say how long it ran"):
        read("spdk-perf", tmp_path / "a.txt", PERF.partition("\n")[2])


def test_bdevperf(tmp_path: Path) -> None:
    (measured,), _ = read("bdevperf", tmp_path / "a.json", json.dumps(BDEVPERF))
    result = measured.result([])
    assert (result.write.ios, result.rate_iops, result.checks.errors) == (2000, 1000, 1)
    assert result.latency_mean_ns == pytest.approx(640_000)


def test_bdevperf_says_the_share_of_reads_of_a_mix(tmp_path: Path) -> None:
    job = BDEVPERF["results"][0] | {"workload": "randrw", "percentage": 70}
    (measured,), _ = read("bdevperf", tmp_path / "a.json", json.dumps({"results": [job, job]}))
    assert measured.settings["rwmixread"] == 70
    assert measured.notes == ["reads and writes were reported together: all are shown as reads"]


def test_sysbench(tmp_path: Path) -> None:
    (measured,), _ = read("sysbench", tmp_path / "a.txt", SYSBENCH)
    result = measured.result([])
    assert (result.rate_iops, result.latency_mean_ns, result.checks.errors) == (500, 8_000_000, 2)
    assert result.own_percentiles == {95.0: 20_500_000}


def test_the_mean_of_sysbench_is_that_of_its_sum(tmp_path: Path) -> None:
    """A mean with two decimal places is too coarse for events of less than 5 µs."""
    text = SYSBENCH.replace("8.00\n", "0.00\n", 1).replace("8000.00", "1.23")
    (measured,), _ = read("sysbench", tmp_path / "a.txt", text)
    assert measured.result([]).latency_mean_ns == pytest.approx(1230)


def test_sysbench_at_a_rate_is_an_open_loop(tmp_path: Path) -> None:
    text = SYSBENCH.replace("SQL statistics", "Target transaction rate: 625/sec\nSQL statistics")
    (measured,), _ = read("sysbench", tmp_path / "a.txt", text)
    held = measured.result([]).open
    assert held is not None and held.achieved == pytest.approx(0.8)
    assert (measured.loop, measured.per_worker) == ("open", None)


def test_sysbench_histogram(tmp_path: Path) -> None:
    bins = "Latency histogram (values are in milliseconds)\n       7.000 |****   900\n      20.000 |*       100\n"
    (measured,), _ = read("sysbench", tmp_path / "a.txt", SYSBENCH + bins)
    result = measured.result([])
    assert result.latency_known == "histogram"
    assert (result.latency_ns(50), result.latency_ns(99)) == (7_000_000, 20_000_000)


def test_pgbench_text(tmp_path: Path) -> None:
    (measured,), _ = read("pgbench", tmp_path / "out.txt", PGBENCH)
    result = measured.result([])
    assert result.rate_iops == pytest.approx(494)
    assert result.latency_mean_ns == pytest.approx(8_057_000)
    assert measured.unit == "transaction"


def test_pgbench_logs_of_all_threads_are_one_run(tmp_path: Path) -> None:
    parts = []
    for name, start in (("pgbench_log.77", 0), ("pgbench_log.77.1", 500)):
        lines = [f"0 {n} {1000 + n} 0 1700000000 {start + 2000 * (n + 1)}" for n in range(100)]
        measured, _ = read("pgbench", tmp_path / name, "\n".join(lines) + "\n")
        parts += measured
    assert parts[0].together == parts[1].together
    result = together(parts).result([])
    assert result.ios == 200
    assert result.latency_ns(50) == 1_049_000
    assert result.latency_mean_ns == pytest.approx(1_049_500)


@pytest.mark.parametrize(("groups", "unit_ns"), [(29, 1), (19, 1000)])
def test_the_columns_of_fio_histogram_logs_tell_their_unit(tmp_path: Path, groups: int, unit_ns: int) -> None:
    rows = []
    for at_ms in (500, 1000):
        counts = [0] * (groups * 64)
        counts[100], counts[300] = 90, 10
        rows.append(", ".join(map(str, [at_ms, 0, 4096, *counts])))
    (measured,), _ = read("fio-hist", tmp_path / "x_clat_hist.1.log", "\n".join(rows) + "\n")
    result = measured.result([])
    assert result.rate_iops == 200
    assert (result.latency_ns(50), result.latency_ns(99)) == (100 * unit_ns, bin_middle(300) * unit_ns)


def test_bins_of_fio_are_named_by_their_middle() -> None:
    assert [bin_middle(at) for at in (0, 127, 128, 191, 192)] == [0, 127, 129, 255, 258]


def test_a_log_that_is_cut_off_loses_its_last_line_only(tmp_path: Path) -> None:
    row = ", ".join(["500", "1", "4096", *(["0"] * 1855), "3"])
    _, notes = read("fio-hist", tmp_path / "x_clat_hist.1.log", row + "\n1000, 1, 40")
    assert "2: the last line is cut off" in notes[0]


def test_hcibench_machines_are_added_up_from_their_own_files(tmp_path: Path, iotax) -> None:
    case = tmp_path / "h" / "case-4k"
    case.mkdir(parents=True)
    for vm in (1, 2):
        fio_file(case / f"vm-ds-{vm}.json", fio_job(read=fio_side(bins=BINS)))
    said = json.loads(iotax("import", "hcibench", tmp_path / "h", "-n", "h.iotax", "--json").stdout)
    assert (said["files"], said["results"]) == (2, 1)
    shown = json.loads(iotax("show", "h.iotax", "--json").stdout)["treatments"][0]["values"]
    assert shown["iops"]["value"] == pytest.approx(2000)
    assert shown["latency_p99"]["value"] == pytest.approx(400)


GOOD = {
    "diskspd": DISKSPD, "vdbench": VDBENCH, "iometer": IOMETER, "elbencho": ELBENCHO, "spdk-perf": PERF,
    "sysbench": SYSBENCH, "pgbench": PGBENCH, "bdevperf": json.dumps(BDEVPERF),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("content", ["", "\n", "no such thing\n", "{}", "<x>", "1,2,3\n4,5\n", "\x00\xff\x00"])
def test_what_is_no_file_of_the_format_is_refused_with_its_name(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(Unreadable, match=r"a\.json"):
        read(name, path, content)


@pytest.mark.parametrize("name", GOOD)
def test_a_file_cut_anywhere_gives_a_result_or_a_reason(tmp_path: Path, name: str) -> None:
    text = GOOD[name]
    for end in range(0, len(text), max(1, len(text) // 60)):
        try:
            measured, _ = read(name, tmp_path / "a.json", text[:end])
        except Unreadable:
            continue
        assert all(each.duration_ns > 0 for each in measured)


@pytest.mark.parametrize("name", GOOD)
def test_every_format_becomes_a_report(tmp_path: Path, name: str, iotax) -> None:
    for protocol in ("nfs", "iscsi"):
        (tmp_path / f"{protocol}.in").write_text(GOOD[name])
    paths = [tmp_path / "nfs.in", tmp_path / "iscsi.in"]
    iotax("import", name, *paths, "--name-pattern", "{protocol}.in", "-n", "x.iotax")
    iotax("report", "x.iotax")
    assert f"imported from 2 {FORMATS[name].title.split()[0]}"[:16] in (tmp_path / "x.html").read_text()
