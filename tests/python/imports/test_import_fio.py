"""fio's files: figures as fio printed them, and every error with its place."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from import_samples import BINS, IDLE, fio_campaign, fio_file, fio_job, fio_output, fio_side

from iotax.imports import fio_json
from iotax.imports.measured import Measured
from iotax.imports.problems import Notes, Unreadable

REAL = Path(__file__).parent / "real"


def read(path: Path) -> tuple[list[Measured], list[str]]:
    notes = Notes()
    return fio_json.read(path, notes), notes.said


def one(path: Path) -> Measured:
    (measured,), _ = read(path)
    return measured


def test_figures_are_those_that_fio_printed(tmp_path: Path) -> None:
    result = one(fio_file(tmp_path / "a.json", fio_job(read=fio_side(bins=BINS)))).result([])
    assert result.rate_iops == pytest.approx(1000.0)
    assert result.rate_bytes_per_s == pytest.approx(1000 * 4096)
    assert result.latency_mean_ns == pytest.approx(180_000.5)
    assert [result.latency_ns(percent) for percent in (50, 99, 99.9)] == [100_000, 400_000, 1_600_000]
    assert result.latency_max_ns == 1_650_000
    assert result.outstanding.total == 8


def test_plain_json_has_percentiles_that_belong_to_one_run(tmp_path: Path) -> None:
    result = one(fio_file(tmp_path / "a.json")).result([])
    assert result.latency_known == "percentiles"
    assert result.latency_ns(99) == 400_000
    assert math.isnan(result.latency_ns(95))
    assert result.latency_counts() == {}


def test_percentiles_of_a_mixed_load_are_not_those_of_its_reads(tmp_path: Path) -> None:
    result = one(fio_file(tmp_path / "a.json", fio_job(write=fio_side(500)))).result([])
    assert result.latency_known == "mean"
    assert math.isnan(result.latency_ns(99))
    assert result.read.percentile_ns(99) == 400_000


def test_fio_2_counts_microseconds_and_kibibytes(tmp_path: Path) -> None:
    latency = {"min": 90, "max": 1650, "mean": 180.5, "stddev": 1.0}
    clat = latency | {"percentile": {"99.000000": 400, "0.00": 0}}
    side = {"io_bytes": 4000, "iops": 1000.0, "runtime": 1000, "total_ios": 1000, "lat": latency, "clat": clat}
    idle = {"io_bytes": 0, "iops": 0.0, "runtime": 0, "total_ios": 0, "lat": {}, "clat": {}}
    result = one(fio_file(tmp_path / "a.json", fio_job(read=side, write=idle), version="2.21")).result([])
    assert result.latency_mean_ns == pytest.approx(180_500)
    assert result.own_percentiles == {99.0: 400_000}
    assert result.rate_bytes_per_s == pytest.approx(1000 * 4096)


def test_later_versions_of_fio_2_count_bytes() -> None:
    """2.21: 41,855 reads of 4 KiB at 166,919 KiB/s, with latency in µs."""
    (measured,), _ = read(REAL / "fio-2.21.json")
    assert (measured.read.ios, measured.read.bytes, measured.write.bytes) == (41_855, 171_438_080, 56_655_872)
    assert measured.read.percentiles and dict(measured.read.percentiles)[99.0] == 141_000
    assert measured.counted_in == "µs and bytes"


def test_text_before_the_json_is_skipped_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("fio: {warning} of an option\n\n" + fio_output())
    _, notes = read(path)
    assert notes == [f"{path}:1: skipped what is not JSON: 'fio: {{warning}} of an option'"]


def test_truncated_json_is_told_with_line_and_field(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    text = fio_output()
    cut = text[: text.index('"total_ios"') + 30]
    path.write_text(cut)
    with pytest.raises(Unreadable, match=rf"a.json:{cut.count(chr(10)) + 1}: .*ends in the middle"):
        read(path)


@pytest.mark.parametrize("content", ["", "  \n", "no json at all", '{"a": 1}', "[1, 2]"])
def test_files_without_a_result_are_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(Unreadable, match=re.escape(str(path))):
        read(path)


def test_a_field_that_is_missing_is_named(tmp_path: Path) -> None:
    side = {key: value for key, value in fio_side().items() if key != "runtime"}
    path = fio_file(tmp_path / "a.json", fio_job("seq", read=side))
    with pytest.raises(Unreadable, match=r"jobs, seq, read, runtime: missing"):
        read(path)


def test_only_the_last_of_several_reports_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(fio_output(fio_job(read=fio_side(10))) + "\n" + fio_output(fio_job(read=fio_side(1000))))
    (measured,), notes = read(path)
    assert measured.read.ios == 1000
    assert "2 reports of one run (--status-interval)" in notes[0]


def test_clients_are_added_up_once(tmp_path: Path) -> None:
    rows = [fio_job("a", hostname=host, read=fio_side(bins=BINS)) for host in ("h1", "h2")]
    total = fio_job("All clients", read=fio_side(2000, bins={key: 2 * count for key, count in BINS.items()}))
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"fio version": "fio-3.36", "client_stats": [*rows, total]}))
    result = one(path).result([])
    assert result.ios == 2000
    assert result.latency_ns(99) == 400_000
    assert result.outstanding.total == 16


def test_percentiles_that_fio_made_of_all_clients_are_taken_where_theirs_cannot_be_merged(tmp_path: Path) -> None:
    rows = [fio_job("a", hostname=host) for host in ("h1", "h2")]
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps({"fio version": "fio-3.36", "client_stats": [*rows, fio_job("All clients", read=fio_side(2000))]})
    )
    assert one(path).result([]).latency_ns(99) == 400_000


def test_reads_and_writes_that_fio_reports_apart_and_together_count_once(tmp_path: Path) -> None:
    """unified_rw_reporting=both; fio's combined percentiles are those of the run."""
    both = fio_side(1500) | {"clat_ns": fio_side()["clat_ns"] | {"percentile": {"99.000000": 777_000}}}
    result = one(fio_file(tmp_path / "a.json", fio_job(write=fio_side(500), mixed=both))).result([])
    assert (result.read.ios, result.write.ios) == (1000, 500)
    assert result.latency_ns(99) == 777_000
    assert result.read.percentile_ns(99) == 400_000


def test_reads_and_writes_that_fio_reports_together_only_are_told(tmp_path: Path) -> None:
    job = fio_job(mixed=fio_side(1500))
    del job["read"], job["write"]
    measured = one(fio_file(tmp_path / "a.json", job))
    assert measured.read.ios == 1500
    assert any("unified_rw_reporting" in note for note in measured.notes)


def test_a_file_of_trims_alone_is_told_as_such(tmp_path: Path) -> None:
    path = fio_file(tmp_path / "a.json", fio_job(read=IDLE, trim=fio_side()))
    with pytest.raises(Unreadable, match="it only trims: no read or write"):
        read(path)


def test_stonewalled_groups_are_results_of_their_own(tmp_path: Path) -> None:
    path = fio_file(tmp_path / "a.json", fio_job("read"), fio_job("write", groupid=1, read=IDLE, write=fio_side(500)))
    measured, _ = read(path)
    assert [(each.part, each.read.ios, each.write.ios) for each in measured] == [("read", 1000, 0), ("write", 0, 500)]


def test_groups_that_ran_at_the_same_time_are_one_load(tmp_path: Path) -> None:
    jobs = [fio_job("a", job_start=1_700_000_000_000), fio_job("b", groupid=1, job_start=1_700_000_000_010)]
    measured = one(fio_file(tmp_path / "a.json", *jobs))
    assert measured.read.ios == 2000
    assert measured.start_skew_ns == 10_000_000
    assert measured.start_unix_ns == 1_700_000_000_000_000_000


def test_jobs_that_did_not_overlap_are_told(tmp_path: Path) -> None:
    jobs = [fio_job("a", job_start=1_700_000_000_000), fio_job("b", job_start=1_700_000_000_800)]
    measured = one(fio_file(tmp_path / "a.json", *jobs))
    assert any("ran together for only 0.2 of 1.0 s" in note for note in measured.notes)


def test_a_job_that_ended_with_an_error_makes_its_run_invalid(tmp_path: Path) -> None:
    (measured,), notes = read(fio_file(tmp_path / "a.json", fio_job(error=5)))
    assert measured.result([]).checks.errors == 1
    assert "job job ended with error 5" in notes[0]


def test_clones_reported_together_count_as_the_workers_they_are(tmp_path: Path) -> None:
    grouped = fio_job(options={"numjobs": "4", "group_reporting": ""}, job_runtime=4000)
    assert one(fio_file(tmp_path / "a.json", grouped)).workers == 4
    clones = [fio_job(options={"numjobs": "2"}) for _ in range(2)]
    assert one(fio_file(tmp_path / "b.json", *clones)).workers == 2
    other_jobs_hidden = fio_job(options={"group_reporting": ""}, job_runtime=3000)
    assert one(fio_file(tmp_path / "c.json", other_jobs_hidden)).workers is None


def test_synchronous_engines_have_one_in_flight(tmp_path: Path) -> None:
    measured = one(fio_file(tmp_path / "a.json", fio_job(options={"ioengine": "psync", "iodepth": "32"})))
    assert measured.per_worker == 1


@pytest.mark.parametrize(("thinktime", "per_worker"), [("0", 16), ("0us", 16), ("200", None), ("5ms", None)])
def test_jobs_that_pause_between_ios_keep_fewer_outstanding_than_iodepth(
    tmp_path: Path, thinktime: str, per_worker: int | None
) -> None:
    options = {"ioengine": "libaio", "iodepth": "16", "thinktime": thinktime}
    measured = one(fio_file(tmp_path / "a.json", fio_job(options=options)))
    assert measured.per_worker == per_worker
    assert any("thinktime" in note for note in measured.notes) is (per_worker is None)
    kept = measured.result([]).outstanding
    assert kept is not None and kept.per_worker == per_worker


def test_a_rate_that_was_asked_for_is_an_open_loop(tmp_path: Path) -> None:
    result = one(fio_file(tmp_path / "a.json", fio_job(options={"rate_iops": "1250"}))).result([])
    assert result.open is not None
    assert result.open.achieved == pytest.approx(0.8)


def test_cpu_is_that_of_fios_own_threads(tmp_path: Path) -> None:
    result = one(fio_file(tmp_path / "a.json")).result([])
    assert result.cpu.initiator is not None
    assert result.cpu.initiator.busy_ns == 300_000_000
    assert result.cpu_per_io_ns("initiator") is None  # it lacks the kernel's work for a kernel path


def test_a_campaign_gives_a_report_with_the_figures_of_its_files(tmp_path: Path, iotax) -> None:
    folder = fio_campaign(tmp_path / "c")
    iotax("import", "fio", folder, "--name-pattern", "{protocol}-{bs}-r{replicate}.json", "-n", "c.iotax")
    iotax("report", "c.iotax")
    page = (tmp_path / "c.html").read_text()
    assert "imported from 6 fio 3.36 files" in page
    text = re.sub(r"<[^>]+>", " ", page)
    assert re.search(r"iSCSI\s+3 runs\s+1,010", text)
    assert re.search(r"nfs\s+3 runs\s+2,020", text)
    shown = json.loads(iotax("show", "c.iotax", "--json").output)
    values = {cell["levels"]["protocol"]: cell["values"] for cell in shown["treatments"]}
    assert values["iscsi"]["iops"]["value"] == pytest.approx((1000 * 1010 * 1020) ** (1 / 3))
    assert values["nfs"]["latency"]["value"] == pytest.approx(180.0005)
    assert values["nfs"]["latency_p99"]["value"] == pytest.approx(400)


def test_the_text_of_fio_says_what_its_json_says(tmp_path: Path) -> None:
    """Both outputs are from one call of fio 3.33: a mix by two clones, then writes with fdatasync."""
    both = (REAL / "fio-3.33-both.txt").read_text()
    begin, end = both.index("\n{\n"), both.index("\n}\n")
    (tmp_path / "printed.txt").write_text(both[:begin] + both[end + 2 :])
    exact, _ = read(REAL / "fio-3.33-both.txt")
    printed, _ = read(tmp_path / "printed.txt")
    assert [each.part for each in exact] == [each.part for each in printed] == ["mix", "log"]
    for one, two in zip(exact, printed, strict=True):
        assert (one.duration_ns, one.workers, one.per_worker) == (two.duration_ns, two.workers, two.per_worker)
        assert one.settings["block_size"] == two.settings["block_size"]
        for mine, theirs in ((one.read, two.read), (one.write, two.write), (one.sync, two.sync)):
            if mine is None or not mine.ios:
                continue
            assert theirs is not None and (mine.ios, mine.bytes) == (theirs.ios, theirs.bytes)
            assert theirs.latency_sum_ns == pytest.approx(mine.latency_sum_ns, rel=0.01)
            assert theirs.percentile_ns(99) == pytest.approx(mine.percentile_ns(99), rel=0.01)
    assert exact[0].start_unix_ns is not None and printed[0].start_unix_ns is not None
    assert abs(exact[0].start_unix_ns - printed[0].start_unix_ns) < 3 * 10**9
