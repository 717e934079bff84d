"""The runs in other programs' files, their times and their measurements: inputs with known answers."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
from pathlib import Path

import pytest
from answer_samples import (
    BEGAN,
    DISKSPD_TEXT,
    ELBENCHO_CSV,
    ELBENCHO_LIVE,
    FIO_2_TEXT,
    FIO_TEXT,
    IOMETER_TESTS,
    PGBENCH_9,
    SAR_TEXT,
    SYSBENCH_1_1,
    SYSBENCH_1_1_FILES,
    VDBENCH_COUNTS,
    VDBENCH_FILES,
    VDBENCH_HEAD,
    fio_at,
    fio_reads,
    fio_report,
    fio_writes,
    minute,
    mpstat,
    vdbench_run,
)
from format_samples import BDEVPERF, DISKSPD, PERF, PERF_BINS, SYSBENCH
from import_samples import IDLE, fio_file, fio_job, fio_side

from iotax.analysis.validity import kept_up
from iotax.imports.formats import FORMATS
from iotax.imports.measured import Bin, Measured, spread
from iotax.imports.problems import Notes, Unreadable, text_of
from iotax.imports.processors import recorded


def read(name: str, path: Path, text: str | None = None) -> tuple[list[Measured], list[str]]:
    if text is not None:
        path.write_text(text)
    notes = Notes()
    return FORMATS[name].read(path, notes), notes.said


def imported(iotax, *words: object) -> dict:
    return json.loads(iotax("import", *words, "-n", "n.iotax", "--json").stdout)


def cells(iotax, response: str) -> dict[str, float]:
    """Levels of the treatment → value."""
    shown = json.loads(iotax("show", "n.iotax", "--json").stdout)["treatments"]
    return {" ".join(each["levels"].values()): each["values"].get(response, {}).get("value") for each in shown}


def rates(found: list[Measured]) -> list[int]:
    return [round((each.read.ios + each.write.ios) / each.duration_ns * 1e9) for each in found]


# Number of results in a file


def test_runs_of_fio_that_were_appended_to_one_file_are_results_of_their_own(tmp_path: Path, iotax) -> None:
    (tmp_path / "all.json").write_text(fio_report(fio_reads()) + "\n" + fio_report(fio_writes(), ended=BEGAN + 120))
    said = imported(iotax, "fio", "all.json")
    assert said["factors"]["rw"] == ["randread", "randwrite"]
    assert cells(iotax, "iops") == pytest.approx({"randread": 10_000, "randwrite": 5000})
    assert not any("--status-interval" in note for note in said["notes"])


def test_status_reports_of_one_run_of_fio_are_one_result(tmp_path: Path) -> None:
    early = fio_job("rd", read=minute(300_000, 380, 900, runtime_ms=30_000), elapsed=31)
    text = fio_report(early, ended=BEGAN + 30) + "\n" + fio_report(fio_reads(elapsed=61))
    (measured,), notes = read("fio", tmp_path / "a.json", text)
    assert rates([measured]) == [10_000]
    assert any("2 reports of one run (--status-interval)" in note for note in notes)


def test_the_same_job_of_fio_run_again_is_a_replicate(tmp_path: Path) -> None:
    text = fio_report(fio_reads()) + fio_report(fio_reads(), ended=BEGAN + 130)
    found, _ = read("fio", tmp_path / "a.json", text)
    assert [(each.run, each.part, each.start_unix_ns) for each in found] == [
        (1, "", BEGAN * 10**9),
        (2, "", (BEGAN + 70) * 10**9),
    ]


def test_a_damaged_run_at_the_end_of_a_file_costs_itself_only(tmp_path: Path) -> None:
    found, notes = read("fio", tmp_path / "a.json", fio_report(fio_reads()) + "\n" + fio_report(fio_writes())[:400])
    assert rates(found) == [10_000]
    assert any("the JSON ends in the middle" in note for note in notes)


APPENDED = {
    "spdk-perf": (PERF, PERF.replace("1000.00 ", "1500.00 "), [2000, 3000]),
    "sysbench": (SYSBENCH, SYSBENCH.replace("1000", "500", 3).replace("8000.00", "4000.00"), [500, 250]),
    "pgbench": (PGBENCH_9, PGBENCH_9.replace("3200", "1600").replace("320.", "160."), [320, 160]),
    "bdevperf": (json.dumps(BDEVPERF), json.dumps(BDEVPERF).replace("1000.0", "1200.0"), [1000, 1200]),
    "diskspd": (DISKSPD, DISKSPD.replace(">1000<", ">1500<"), [1000, 1500]),
}  # fmt: skip


@pytest.mark.parametrize("name", APPENDED)
def test_runs_that_were_appended_to_one_file_are_results_of_their_own(tmp_path: Path, name: str) -> None:
    first, second, expected = APPENDED[name]
    found, _ = read(name, tmp_path / "loop.txt", first + "\n" + second)
    assert rates(found) == expected
    assert [each.run for each in found] == [1, 2]


def test_sections_of_spdk_perf_belong_to_their_own_run(tmp_path: Path) -> None:
    run = PERF + PERF_BINS.format(0) + PERF_BINS.format(1)
    found, _ = read("spdk-perf", tmp_path / "a.txt", run + run.replace("randread", "randwrite"))
    assert [(each.read.ios, each.write.ios, each.duration_ns) for each in found] == [
        (4000, 0, 2 * 10**9),
        (0, 4000, 2 * 10**9),
    ]


def test_turns_of_a_loop_of_vdbench_are_results_of_their_own(tmp_path: Path) -> None:
    text = VDBENCH_HEAD + vdbench_run(threads=1) + vdbench_run(threads=4, rate=16_000)
    (tmp_path / "histogram.html").write_text(VDBENCH_COUNTS + VDBENCH_COUNTS.replace("30,400", "62,400"))
    found, notes = read("vdbench", tmp_path / "flatfile.html", text)
    assert rates(found) == [8000, 16_000]
    assert [each.per_worker for each in found] == [1, 4]
    assert [sum(count for _, count in each.read.histogram.counts) for each in found] == [32_000, 64_000]
    assert not any("not of this run" in note for note in notes)


def test_hcibench_reports_each_datastore_apart(tmp_path: Path, iotax) -> None:
    case = tmp_path / "fio-8vmdk"
    case.mkdir()
    for store, ios in (("ds1", 300_000), ("ds2", 120_000)):
        for vm in (1, 2):
            fio_at(case / f"hci-fio-{store}-{vm}-1.json", fio_job(read=minute(ios, 380, 900)))
    for words in ((), ("--name-pattern", "hci-fio-{datastore}-*-*.json")):
        said = imported(iotax, "hcibench", case, *words)
        assert (said["files"], said["results"]) == (4, 2)
        assert cells(iotax, "iops") == pytest.approx({"ds1": 10_000, "ds2": 4000})
        (tmp_path / "n.iotax").unlink()


def histogram_log(path: Path, direction: int, size: int = 4096) -> Path:
    rows = [", ".join(map(str, [at_ms, direction, size, *[0] * 100, 500, *[0] * 1755])) for at_ms in (1000, 2000)]
    path.write_text("\n".join(rows) + "\n")
    return path


def test_histogram_logs_of_jobs_that_did_different_things_are_not_one_run(tmp_path: Path, iotax) -> None:
    logs = [histogram_log(tmp_path / f"h_clat_hist.{at + 1}.log", at) for at in (0, 1)]
    assert imported(iotax, "fio-hist", *logs)["factors"] == {"rw": ["read", "write"]}
    assert cells(iotax, "iops") == pytest.approx({"read": 500, "write": 500})


def test_histogram_logs_of_clones_are_one_run_unless_they_are_to_be_imported_apart(tmp_path: Path, iotax) -> None:
    logs = [histogram_log(tmp_path / f"h_clat_hist.{at}.log", 0) for at in (1, 2)]
    said = imported(iotax, "fio-hist", *logs)
    assert cells(iotax, "iops") == pytest.approx({"unknown": 1000})
    assert any("one after another (stonewall), import them apart, with --by job" in note for note in said["notes"])
    (tmp_path / "n.iotax").unlink()
    imported(iotax, "fio-hist", *logs, "--by", "job")
    assert cells(iotax, "iops") == pytest.approx({"h_clat_hist.1.log": 500, "h_clat_hist.2.log": 500})


# Times of a result


def test_groups_of_fio_follow_one_another_up_to_the_time_of_the_report(tmp_path: Path, iotax) -> None:
    fio_at(tmp_path / "two.json", fio_reads(), fio_writes(groupid=1), ended=BEGAN + 120)
    mpstat(tmp_path / "m.json", (60, 20), (60, 60))
    os.utime(tmp_path / "two.json", (BEGAN + 9000, BEGAN + 9000))
    said = imported(iotax, "fio", "two.json", "--cpu", "initiator=m.json")
    assert cells(iotax, "cpu_initiator") == pytest.approx({"randread": 160, "randwrite": 960}, rel=1e-3)
    assert any("groups of jobs are taken to have followed one another" in note for note in said["notes"])


def test_results_stand_in_the_order_of_the_file_whatever_their_length(tmp_path: Path, iotax) -> None:
    for runtime_ms in (59_999, 60_000, 60_001):
        fio_at(tmp_path / "a.json", fio_reads(), fio_writes(groupid=1, runtime_ms=runtime_ms), ended=BEGAN + 120)
        assert list(imported(iotax, "fio", "a.json")["factors"]["rw"]) == ["randread", "randwrite"]
        (tmp_path / "n.iotax").unlink()


@pytest.mark.parametrize("gap_s", [0.001, -0.001, 3.0, -3.0])
def test_files_without_times_that_were_copied_stand_as_they_are_named(tmp_path: Path, iotax, gap_s: float) -> None:
    """Runs of 2 s cannot end within a millisecond of each other: these are the times of a copy."""
    for at, name in enumerate(("a", "b")):
        (tmp_path / f"{name}.txt").write_text(SYSBENCH)
        os.utime(tmp_path / f"{name}.txt", (BEGAN + at * gap_s, BEGAN + at * gap_s))
    said = imported(iotax, "sysbench", "a.txt", "b.txt", "--name-pattern", "{file}.txt")
    assert said["factors"]["file"] == (["b", "a"] if gap_s == -3.0 else ["a", "b"])


def test_before_3_0_27_elbencho_wrote_when_a_phase_ended(tmp_path: Path) -> None:
    for version, began in (("2.1-0", BEGAN), ("3.0-26", BEGAN), ("3.0-27", BEGAN + 60), ("3.1-7", BEGAN + 60)):
        (measured,), _ = read("elbencho", tmp_path / "e.csv", ELBENCHO_CSV.format(version=version))
        assert measured.start_unix_ns == began * 10**9
    (measured,), _ = read("elbencho", tmp_path / "e.csv", ELBENCHO_CSV.format(version=""))
    assert measured.start_unix_ns is None


def test_iometer_stamps_the_end_of_a_test_below_its_rows(tmp_path: Path) -> None:
    found, _ = read("iometer", tmp_path / "a.csv", IOMETER_TESTS)
    assert [each.start_unix_ns for each in found] == [BEGAN * 10**9, (BEGAN + 90) * 10**9]


def test_what_fio_measured_began_after_its_ramp(tmp_path: Path) -> None:
    job = fio_job(options={"ramp_time": "15s"}, job_start=BEGAN * 1000)
    (measured,), _ = read("fio", fio_file(tmp_path / "a.json", job))
    assert measured.start_unix_ns == (BEGAN + 15) * 10**9


def test_no_cpu_is_joined_to_a_time_that_is_guessed(tmp_path: Path, iotax) -> None:
    (tmp_path / "s.txt").write_text(SYSBENCH.replace("2.0000s", "60.0000s"))
    os.utime(tmp_path / "s.txt", (BEGAN + 60, BEGAN + 60))
    mpstat(tmp_path / "m.json", (60, 50), (60, 1))
    words = ("sysbench", "s.txt", "--cpu", "initiator=m.json")
    said = imported(iotax, *words)
    assert cells(iotax, "cpu_initiator") == {"unknown": None}
    assert any(
        "no CPU was joined, since it is not known when it ran: say so with --at" in note for note in said["notes"]
    )
    assert any("times are guessed from when the files were written" in note for note in said["notes"])
    for at in ("written", "2026-05-01T10:00:00Z", "s.txt=2026-05-01 10:00:00"):
        (tmp_path / "n.iotax").unlink()
        said = imported(iotax, *words, "--at", at)
        # Half of eight processors for a minute, minus a background of one percent, and 1,000 events.
        assert cells(iotax, "cpu_initiator") == pytest.approx({"unknown": 235_200}, rel=1e-3)
        assert not any("guessed" in note for note in said["notes"])


def test_a_time_that_is_none_is_refused_and_one_time_is_of_one_file(tmp_path: Path, iotax) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(SYSBENCH)
    said = iotax("import", "sysbench", "a.txt", "-n", "n.iotax", "--at", "noon", code=2).output
    assert "--at noon: write TIME or FILE=TIME, such as 2026-05-01T10:00:00Z, or `written`" in said
    said = iotax("import", "sysbench", "a.txt", "b.txt", "-n", "n.iotax", "--at", "2026-05-01", code=2).output
    assert "write FILE=TIME for each" in said


# What was measured


def test_a_mix_of_fio_shows_the_percentiles_of_reads_and_of_writes_apart(tmp_path: Path, iotax) -> None:
    job = fio_job(read=minute(420_000, 100, 400), write=minute(180_000, 200, 900), options={"rw": "randrw"})
    fio_at(tmp_path / "mix.json", job)
    shown = iotax("import", "fio", "mix.json", "-n", "n.iotax", "--long").output
    assert re.search(r"read p50\s+read p99\s+write p50\s+write p99", shown)
    assert re.search(r"10\.0k\s+100\s+400\s+200\s+900", shown)
    iotax("report", "n.iotax")
    page = (tmp_path / "n.html").read_text()
    assert "means only, no percentiles" not in page and "percentiles of reads and of writes separately" in page
    assert "Median latency of writes" in page


def test_flushes_of_fio_are_shown_first(tmp_path: Path, iotax) -> None:
    latency = {"min": 100_000, "max": 16_000_000, "mean": 490_000.0, "N": 120_000}
    sync = {"total_ios": 0, "lat_ns": latency | {"percentile": {"50.000000": 259_000, "99.000000": 4_290_000}}}
    options = {"rw": "write", "fdatasync": "1", "ioengine": "psync", "iodepth": "1"}
    fio_at(tmp_path / "etcd.json", fio_job(read=IDLE, write=minute(120_000, 9, 40), sync=sync, options=options))
    shown = iotax("import", "fio", "etcd.json", "-n", "n.iotax", "--long").output
    assert re.search(r"IOPS\s+µs\s+µs", shown) and re.search(r"sync p50\s+sync p99\s+p50\s+p99", shown)
    assert re.search(r"2\.00k\s+259\s+4,290\s+9\.00\s+40\.0", shown)
    assert "the latency of flushes is shown apart, and first" in shown
    iotax("report", "n.iotax")
    assert "Latency of flushes" in (tmp_path / "n.html").read_text()
    assert "120000" in iotax("export", "n.iotax").stdout


def test_fio_gives_no_cpu_per_io_unless_all_is_done_by_its_own_threads(tmp_path: Path) -> None:
    for engine, known in (("nfs", False), ("libiscsi", False), ("rbd", False), ("io_uring", False), ("spdk", True)):
        (measured,), _ = read("fio", fio_file(tmp_path / "a.json", fio_job(options={"ioengine": engine})))
        assert (measured.result([]).cpu_ns("initiator") is not None) is known, engine
    no_options = {name: value for name, value in fio_job().items() if name != "job options"}
    (measured,), _ = read("fio", fio_file(tmp_path / "a.json", no_options, version="2.1.4"))
    assert measured.result([]).cpu_ns("initiator") is None
    assert any("interrupts and the kernel's threads are not in fio's usr_cpu" in remark for remark in measured.notes)


def test_a_job_of_fio_that_failed_at_once_is_told_with_its_error(tmp_path: Path) -> None:
    with pytest.raises(
        Unreadable, match=r"job j ended with error 22 \(Invalid argument\), before it measured anything"
    ):
        read("fio", fio_file(tmp_path / "e.json", fio_job("j", error=22, read=IDLE)))


def test_options_of_fio_mean_what_fio_makes_of_them(tmp_path: Path) -> None:
    def settings(**options: str) -> Measured:
        (measured,), _ = read("fio", fio_file(tmp_path / "a.json", fio_job(options=options)))
        return measured

    assert settings(bssplit="4k/50:64k/50").settings["block_size"] == "mixed"
    assert settings(rw="randrw", rwmixwrite="30").settings["rwmixread"] == 70
    assert settings(rate_iops="900,100", rw="randrw").rate_iops == 1000
    assert settings(rate_iops="900,100", rw="randread").rate_iops == 900
    assert settings(rate="4m", bs="4k").rate_iops == 1024
    assert settings(rate="4m,").loop == "open" and settings(rate_iops="many").loop == "unknown"
    assert settings(rate_iops="100", rate_process="poisson").by_chance


def test_reads_and_writes_of_other_sizes_than_the_block_size_are_mixed(tmp_path: Path) -> None:
    text = VDBENCH_HEAD + vdbench_run(asked=512, size=7782)
    (measured,), notes = read("vdbench", tmp_path / "flatfile.html", text)
    assert measured.settings["block_size"] == "mixed"
    assert any("7,782 bytes on average" in note for note in notes)


def test_percentiles_of_wide_bins_are_interpolated_and_their_bounds_shown(tmp_path: Path, iotax) -> None:
    (tmp_path / "histogram.html").write_text(VDBENCH_COUNTS)
    (tmp_path / "flatfile.html").write_text(VDBENCH_HEAD + vdbench_run())
    shown = iotax("import", "vdbench", "flatfile.html", "-n", "n.iotax", "--long").output
    found = cells(iotax, "latency_p50")["unknown"], cells(iotax, "latency_p99")["unknown"]
    assert found == pytest.approx((10.6, 36.1), abs=0.2)
    assert "lie between a bin's bounds: unknown p50 0 to 20.0, p99 20.0 to 40.0 µs" in shown
    iotax("report", "n.iotax")
    page = (tmp_path / "n.html").read_text().replace("\u00a0", " ")
    assert "p50 0 to 20.0, p99 20.0 to 40.0 µs" in page


def test_a_bin_is_spread_evenly_as_far_as_the_extremes_allow() -> None:
    counts, edges = spread([Bin(0, 100, 50), Bin(100, 1000, 50), Bin(1000, None, 0)], least_ns=50, worst_ns=200)
    assert sum(counts.values()) == 100 and min(counts) == 51 and max(counts) == 200
    assert edges == [0, 100, 1000]
    assert sum(count for value, count in counts.items() if value <= 100) == 50


def test_the_number_of_random_arrivals_is_given_its_standard_deviation(tmp_path: Path, iotax) -> None:
    text = VDBENCH_HEAD + vdbench_run(reqrate=100, rate=97.75, resp_ms=0.5, max_ms=4.5, threads=8)
    shown = iotax(
        "import",
        "vdbench",
        (tmp_path / "flatfile.html").write_text(text) and "flatfile.html",
        "-n",
        "n.iotax",
        "--long",
    )
    assert "only a part of the offered I/Os" not in shown.output and "Rate held" not in shown.output
    (measured,), _ = read("vdbench", tmp_path / "flatfile.html")
    held = measured.result([]).open
    assert held is not None and (held.offered, held.offered_sd) == (400, 20.0) and kept_up(held)
    behind = held.model_copy(update={"achieved": 0.84})
    assert not kept_up(behind) and not kept_up(held.model_copy(update={"offered_sd": 0.0}))


def sweep(folder: Path, *, again: bool = False) -> Path:
    """Ten conditions on two arrays, once each; B does 10 to 28 % more."""
    folder.mkdir()
    for at in range(10):
        for array, factor in (("A", 1.0), ("B", 1.1 + at / 50)):
            job = fio_job(read=fio_side(round(10_000 * factor / (at + 1)) * 10), options={"iodepth": str(at + 1)})
            fio_file(folder / f"{array}-{at + 1}.json", job)
    if again:
        fio_file(folder / "A-1b.json", fio_job(read=fio_side(99_000), options={"iodepth": "1"}))
    return folder


def test_a_sweep_without_replicates_is_compared_in_pairs_over_its_conditions(tmp_path: Path, iotax) -> None:
    words = ("--name-pattern", "{array}-*.json", "--by", "outstanding", "-n", "n.iotax")
    shown = iotax("import", "fio", sweep(tmp_path / "s"), *words, "--long").output
    logs = [math.log(round(10_000 * (1.1 + at / 50) / (at + 1)) / round(10_000 / (at + 1))) for at in range(10)]
    mean, error = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(10)
    low, high = (math.expm1(mean + sign * 2.262 * error) for sign in (-1, 1))
    assert "Over the conditions, each measured once: no verdict:" in shown
    span = f"(95 % CI +{100 * low:.0f} % to +{100 * high:.0f} %)"
    assert f"B delivers {100 * math.expm1(mean):.0f} % more IOPS than A {span}" in shown
    assert "paired over 10 conditions; from 10 % more IOPS (outstanding 1) to 28 % more IOPS (outstanding 10)" in shown
    assert "too few runs for an interval" not in shown.partition("Why doubtful")[0]
    (tmp_path / "n.iotax").unlink()
    assert "paired over" not in iotax("import", "fio", sweep(tmp_path / "t", again=True), *words).output


# Formats


def test_what_fio_prints_is_read(tmp_path: Path) -> None:
    (measured,), notes = read("fio", tmp_path / "out.txt", FIO_TEXT)
    result = measured.result([])
    assert (result.read.ios, result.write.ios, measured.duration_ns) == (966_912, 414_009, 60_003_000_000)
    assert result.read.bytes == 966_912 * 4096
    assert result.read.latency_sum_ns / result.read.ios == pytest.approx(1_982_190)
    assert result.write.latency_sum_ns / result.write.ios == pytest.approx(4_250_000)
    assert dict(result.read.percentiles) == {1.0: 1_336_000, 50.0: 1_844_000, 99.0: 3_458_000, 99.9: 5_211_000}
    assert result.sync is not None and (result.sync.ios, result.sync.percentile_ns(99)) == (500, 900)
    assert (measured.version, measured.settings["block_size"], measured.per_worker) == ("3.33", 4096, 32)
    assert measured.start_unix_ns == (BEGAN + 60) * 10**9 - measured.duration_ns
    assert measured.loop == "unknown" and any("have no zone: taken as UTC" in note for note in notes)


def test_what_fio_2_prints_is_read(tmp_path: Path) -> None:
    (measured,), _ = read("fio", tmp_path / "out.txt", FIO_2_TEXT)
    assert (measured.read.ios, measured.read.bytes, measured.duration_ns) == (16384, 1 << 30, 10**10)
    assert measured.read.latency_sum_ns / measured.read.ios == pytest.approx(611_000)
    assert (measured.workers, measured.per_worker, measured.settings["block_size"]) == (2, 1, 65536)


def test_texts_of_fio_that_were_appended_are_results_of_their_own(tmp_path: Path) -> None:
    found, _ = read("fio", tmp_path / "out.txt", FIO_TEXT + "\n" + FIO_2_TEXT)
    assert [(each.run, each.version) for each in found] == [(1, "3.33"), (2, "2.1.4")]


def test_a_text_of_fio_without_a_result_says_why(tmp_path: Path) -> None:
    text = (
        "j: (g=0): rw=read, bs=(R) 4096B-4096B, ioengine=psync, iodepth=1\nfio-3.33\n"
        "fio: pid=1, err=22/file:io.c:1, error=Invalid argument\n"
    )
    with pytest.raises(Unreadable, match=r"ended without a result: fio: pid=1, err=22.*Invalid argument"):
        read("fio", tmp_path / "out.txt", text)


def test_what_diskspd_prints_is_read(tmp_path: Path) -> None:
    (measured,), _ = read("diskspd", tmp_path / "out.txt", DISKSPD_TEXT)
    result = measured.result([])
    assert (result.read.ios, result.write.ios, result.rate_bytes_per_s) == (450_000, 150_000, 81_920_000)
    assert result.latency_mean_ns == pytest.approx(400_000)
    assert result.own_percentiles == {50.0: 350_000, 99.0: 1_400_000, 99.9: 4_000_000}
    assert (result.read.percentile_ns(99), result.write.percentile_ns(99)) == (900_000, 2_100_000)
    assert (result.latency_max_ns, measured.workers, measured.per_worker) == (12_000_000, 2, 4)
    assert (measured.settings["block_size"], measured.settings["write"], measured.settings["access"]) == (
        8192,
        25,
        "random",
    )
    assert measured.start_unix_ns == (BEGAN + 5) * 10**9
    # A fifth of two processors for 60 s, and 600,000 I/Os.
    assert result.cpu_per_io_ns("initiator") == pytest.approx(40_000)
    with pytest.raises(Unreadable, match="ends in the middle of its result"):
        read("diskspd", tmp_path / "cut.txt", DISKSPD_TEXT.partition("Write IO")[0])


def test_what_diskspd_for_linux_prints_is_read(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "real" / "diskspd-for-linux-aa21cf9.txt").read_text()
    (measured,), _ = read("diskspd", tmp_path / "out.txt", text)
    result = measured.result([])
    assert (result.read.ios, result.write.ios, measured.warmup_ns) == (61_231, 20_342, 10**9)
    assert result.rate_bytes_per_s == pytest.approx(27_191 * 4096, rel=1e-5)
    assert result.latency_mean_ns == pytest.approx(294_000, rel=0.01)
    assert (result.read.percentile_ns(99), result.write.percentile_ns(99)) == (116_000, 194_000)
    assert (measured.settings["block_size"], measured.settings["write"], measured.settings["access"]) == (
        4096,
        25,
        "random",
    )
    assert (measured.workers, measured.per_worker) == (2, 4)
    # Two processors were busy for 3 s.
    assert result.cpu_per_io_ns("initiator") == pytest.approx(6e9 / 81_573)
    # It counts I/Os of the first threads several times in its percentiles of reads and writes together.
    assert result.own_percentiles == {}


def test_percentiles_of_one_thread_or_one_direction_are_kept(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "real" / "diskspd-for-linux-aa21cf9.txt").read_text()
    second_thread = re.compile(r"^     1 \|.*img.*\n", re.MULTILINE)
    (one_thread,), _ = read("diskspd", tmp_path / "one.txt", second_thread.sub("", text))
    assert one_thread.result([]).own_percentiles[99.0] == 143_000
    reads = re.sub(r"(?m)^(.{7} \| [^|]+) \| [^|]+ \| ([^|]+)$", r"\1 |        N/A | \2", text)
    (one_way,), _ = read("diskspd", tmp_path / "reads.txt", reads)
    assert one_way.result([]).own_percentiles[99.0] == 116_000


def test_file_system_workloads_of_vdbench_are_read(tmp_path: Path) -> None:
    (measured,), notes = read("vdbench", tmp_path / "flatfile.html", VDBENCH_FILES)
    result = measured.result([])
    assert (result.read.ios, result.write.ios) == (40_000, 10_000)
    assert result.read.latency_sum_ns / result.read.ios == pytest.approx(1_600_000)
    assert result.write.latency_sum_ns / result.write.ios == pytest.approx(800_000)
    assert result.rate_bytes_per_s == pytest.approx(97.7 * (1 << 20))
    assert (measured.settings["block_size"], measured.per_worker, measured.rate_iops) == (4096, 32, None)
    assert any("opens, creates and the like do not" in note for note in notes)


def test_sysbench_1_1_is_read(tmp_path: Path) -> None:
    (measured,), _ = read("sysbench", tmp_path / "a.txt", SYSBENCH_1_1)
    result = measured.result([])
    assert (result.rate_iops, result.latency_mean_ns, result.own_percentiles) == (500, 8_000_000, {95.0: 20_500_000})
    (measured,), _ = read("sysbench", tmp_path / "b.txt", SYSBENCH_1_1_FILES)
    assert measured.duration_ns == pytest.approx(9_975_000_000)
    assert (measured.read.ios, measured.write.ios) == (11970, 7980)
    assert measured.read.bytes == pytest.approx(11970 * 16384, rel=1e-3)
    assert any("does not say how long it ran" in remark for remark in measured.notes)


def test_the_mean_of_pgbench_9_stands_behind_a_colon(tmp_path: Path) -> None:
    (measured,), _ = read("pgbench", tmp_path / "a.txt", PGBENCH_9)
    assert measured.result([]).latency_mean_ns == pytest.approx(25_000_000)


@pytest.mark.parametrize(
    ("date", "start", "stamp"),
    [("2026-05-01", "10:00:00", "10:{:02}:{:02}"), ("05/01/26", "10:00:00 AM", "10:{:02}:{:02} AM")],
)
def test_the_text_of_sar_is_a_monitor(tmp_path: Path, date: str, start: str, stamp: str) -> None:
    rows = [
        f"{stamp.format(at // 60, at % 60)}     all     10.00      0.00     15.00      5.00      0.00     70.00"
        for at in range(10, 130, 10)
    ]
    (tmp_path / "sar.txt").write_text(SAR_TEXT.format(date=date, start=start, rows="\n".join(rows)))
    found = recorded(f"target={tmp_path / 'sar.txt'}", Notes())
    part = found.during((BEGAN + 30) * 10**9, (BEGAN + 90) * 10**9)
    assert part is not None and (part.host, part.busy_ns / 1e9) == ("h1", pytest.approx(0.25 * 8 * 60))


def test_live_statistics_of_elbencho_are_no_result(tmp_path: Path, iotax) -> None:
    (tmp_path / "e.csv").write_text(ELBENCHO_CSV.format(version="3.1-0"))
    (tmp_path / "e.live.csv").write_text(ELBENCHO_LIVE)
    assert imported(iotax, "elbencho", tmp_path)["files"] == 1
    with pytest.raises(Unreadable, match="live statistics of elbencho"):
        read("elbencho", tmp_path / "live.csv", ELBENCHO_LIVE)


def test_texts_of_a_folder_are_read_where_it_has_no_json_or_xml(tmp_path: Path, iotax) -> None:
    for name, text, suffix in (("fio", FIO_TEXT, ".json"), ("diskspd", DISKSPD_TEXT, ".xml")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "out.txt").write_text(text)
        assert [each.name for each in FORMATS[name].files(folder)] == ["out.txt"]
        (folder / f"a{suffix}").write_text("x")
        assert [each.name for each in FORMATS[name].files(folder)] == [f"a{suffix}"]


ENCODED = {
    "fio": fio_report(fio_reads()), "diskspd": DISKSPD_TEXT, "iometer": IOMETER_TESTS, "sysbench": SYSBENCH,
    "elbencho": ELBENCHO_CSV.format(version="3.1-0"), "vdbench": VDBENCH_HEAD + vdbench_run(), "pgbench": PGBENCH_9,
    "spdk-perf": PERF, "bdevperf": json.dumps(BDEVPERF),
    "fio-hist": "1000, 0, 4096, " + ", ".join(["1"] * 1856) + "\n",
}  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ENCODED)
def test_files_with_a_byte_order_mark_or_in_utf_16_are_read(tmp_path: Path, name: str, encoding: str) -> None:
    plain, _ = read(name, tmp_path / "flatfile.html", ENCODED[name])
    (tmp_path / "flatfile.html").write_text(ENCODED[name], encoding=encoding)
    assert read(name, tmp_path / "flatfile.html")[0] == plain


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_monitors_with_a_byte_order_mark_or_in_utf_16_are_read(tmp_path: Path, encoding: str) -> None:
    names = [
        '"(PDH-CSV 4.0) (UTC)(0)"',
        r'"\\e\Physical Cpu(0)\% Util Time"',
        r'"\\e\Physical Cpu(_Total)\% Util Time"',
    ]
    rows = [f'"05/01/2026 10:00:{second:02}","40.0","40.0"' for second in range(0, 60, 5)]
    (tmp_path / "e.csv").write_text("\r\n".join([",".join(names), *rows]), encoding=encoding)
    assert len(recorded(f"hypervisor={tmp_path / 'e.csv'}", Notes()).samples) == 11
    (tmp_path / "m.json").write_text(text_of(mpstat(tmp_path / "plain.json", (60, 50))), encoding=encoding)
    assert len(recorded(f"target={tmp_path / 'm.json'}", Notes()).samples) == 6
