"""The output of other programs, and the pages made from it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.document import Document
from bench.load import Load, Timing
from bench.page import page
from bench.process import FailedError, UnavailableError, program, wait_until
from bench.results import Result
from bench.sample import Figures, Sample, Usage
from bench.subjects import fio, ours, raw, spdk, tgt
from bench.turns import Pair

PERF = """\
Initialization complete. Launching workers.
========================================================
                                                                                                               Latency(us)
Device Information                                                         :       IOPS      MiB/s    Average        min        max
TCP  (addr:127.0.0.1 subnqn:nqn.2026-11.io.iotax.bench:spdk) NSID 1 from core  1:  518822.33    2026.65      61.68      14.10     913.27
========================================================
Total                                                                      :  518822.33    2026.65      61.68      14.10     913.27

Summary latency data for TCP  (addr:127.0.0.1 subnqn:nqn.2026-11.io.iotax.bench:spdk) NSID 1 from core 1:
=================================================================================
  1.00000% :    38.400us
 50.00000% :    59.200us
 99.00000% :    93.440us
 99.90000% :   120.320us
"""

ISCSI_PERF = (
    "iscsi-perf version 0.1\n\nconnected\n\r00:00:01 - lba 1, iops current 13974 (54 MB/s), iops average 13974 (54 MB/s), in_flight 32, busy 0"
    "        \riops average 13630 (53 MB/s)                    \n\nfinished.\n"
)


def test_spdk_perf_tells_rate_and_percentiles() -> None:
    assert spdk.parse_perf(PERF) == Figures(518822.33, 59.2, 93.44)
    with pytest.raises(UnavailableError, match="no rate"):
        spdk.parse_perf("no probe")


def test_huge_pages_that_are_free_are_counted_by_their_size() -> None:
    told = "HugePages_Total:    2200\nHugePages_Free:     1600\nHugePages_Rsvd:        0\nHugepagesize:       2048 kB\n"
    assert spdk.free_huge_mib(told) == 3200
    assert spdk.free_huge_mib("MemTotal: 1 kB\n") == 0


def test_fio_that_wrote_no_figures_has_failed() -> None:
    with pytest.raises(FailedError, match="no figures"):
        fio.parse("", "read")


def test_spdk_perf_is_judged_by_its_figures_whatever_it_says_as_it_ends() -> None:
    ended = "Failed to read the CC register\n./spdk_nvme_perf: errors occurred\n"
    assert spdk.parse_perf(PERF + ended) == Figures(518822.33, 59.2, 93.44)
    with pytest.raises(UnavailableError, match="no rate"):
        spdk.parse_perf(ended)


def test_a_program_that_said_what_is_awaited_and_ended_is_not_taken_for_failed(tmp_path: Path) -> None:
    log = tmp_path / "perf.log"
    looks = 0
    process = subprocess.Popen(["/bin/false"])

    def said() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            # It writes its output and ends after the first check.
            process.wait()
            log.write_text(PERF + "errors occurred\n")
            return False
        return "Initialization complete" in log.read_text()

    wait_until(said, process, log, "perf did not begin")
    with pytest.raises(UnavailableError, match="perf did not begin: errors occurred"):
        wait_until(lambda: False, process, log, "perf did not begin")


def test_iscsi_perf_tells_its_last_average() -> None:
    assert tgt.parse_iscsi_perf(ISCSI_PERF) == Figures(13630.0)
    with pytest.raises(UnavailableError, match="no rate"):
        tgt.parse_iscsi_perf("Failed to login")


def test_t_io_uring_tells_a_line_a_second() -> None:
    lines = [
        "polled=0, fixedbufs=1",
        "IOPS=1.20M, BW=1GiB/s, IOS/call=32/32",
        "IOPS=903.50K, BW=1",
        "IOPS=905.50K, BW=1",
    ]
    assert fio.parse_t_io_uring("\n".join(lines)) == Figures(904_500.0)
    assert fio.parse_t_io_uring(lines[1]) == Figures(1_200_000.0)
    with pytest.raises(UnavailableError, match="no rate"):
        fio.parse_t_io_uring("open: no such file")


def test_fio_tells_its_direction_though_notes_stand_before() -> None:
    def side(rate_iops: float) -> dict[str, Any]:
        return {"iops": rate_iops, "clat_ns": {"percentile": {"50.000000": 50_000, "99.000000": 90_000}}}

    report = 'fio: a note\n{"jobs": [' + json.dumps({"read": side(470_000.5), "write": side(0.0)}) + "]}"
    assert fio.parse(report, "read") == Figures(470_000.5, 50.0, 90.0)
    with pytest.raises(UnavailableError, match="no I/O"):
        fio.parse(report, "write")


def test_raw_limit_tells_both_sides() -> None:
    line = (
        '{"driver":"io_uring","depth":32,"rate_iops":453000,"latency_p50_ns":60000,"latency_p99_ns":95000,'
        '"client_cpu_ns_an_io":1000,"server_cpu_ns_an_io":1300,"polling":"Never"}\n'
    )
    assert raw.parse(line) == (Figures(453_000.0, 60.0, 95.0), 1.0, 1.3)


def test_engine_figures_are_of_the_direction_asked_for() -> None:
    stream = {"ios": 100, "histogram": {"counts": [[1000, 49], [2000, 50], [9000, 1]]}}
    idle = {"ios": 0, "histogram": {"counts": []}}
    result = {"read": stream, "write": idle, "window": {"duration_ns": 2_000_000_000}}
    assert ours.figures_of(result, Load("read", 1)) == Figures(50.0, 2.0, 2.0)
    with pytest.raises(UnavailableError):
        ours.figures_of(result, Load("write", 1))


def test_mixed_loads_count_both_directions() -> None:
    stream = {"ios": 100, "histogram": {"counts": [[1000, 49], [2000, 51]]}}
    slow = {"ios": 100, "histogram": {"counts": [[500, 1], [3000, 99]]}}
    result = {"read": stream, "write": slow, "window": {"duration_ns": 2_000_000_000}}
    assert ours.figures_of(result, Load("mixed", 1)) == Figures(100.0, 2.0, 3.0)
    report = {"jobs": [{"read": {"iops": 40.0}, "write": {"iops": 60.0}}]}
    assert fio.parse(json.dumps(report), "mixed") == Figures(100.0)


def test_initiators_find_a_target_in_their_own_words() -> None:
    assert spdk.transport_id("nvme-tcp://127.0.0.1:4420/nqn.2026-11.io.x:v0?ns=1") == (
        "trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:4420 subnqn:nqn.2026-11.io.x:v0"
    )
    assert fio.in_fios_words("iscsi://127.0.0.1:3260/iqn.2026-11.io.x:v0/0") == [
        r"--filename=iscsi\://127.0.0.1\:3260/iqn.2026-11.io.x\:v0/0"
    ]
    for endpoint, mount_port in (
        ("nfs://127.0.0.1:2049/v/data?mountport=20048", 20048),
        ("nfs://127.0.0.1:2049/v/data", 2049),
    ):
        assert fio.in_fios_words(endpoint) == [
            f"--nfs_url=nfs://127.0.0.1/v?nfsport=2049&mountport={mount_port}&version=3",
            "--filename=data",
        ]


def test_engine_is_asked_for_one_connection_and_a_window_around_ours() -> None:
    load = Load("write", 128, 65536, random=False)
    document = ours.load_document(ours.OurInitiator(polling="auto"), "iscsi://x", load, Timing(0.5, 3.0), [1])
    assert (document["workers"], document["outstanding"], document["block_size_bytes"]) == (1, 128, 65536)
    assert (document["read_percent"], document["random_percent"], document["cpus"]) == (0, 0, [1])
    assert document["runtime_ns"] > 3_000_000_000
    assert document["polling"] == "auto"


def test_a_program_that_is_not_installed_is_named() -> None:
    with pytest.raises(UnavailableError, match="Debian package nothing-such"):
        program("nothing-such-program", "nothing-such")


def test_page_holds_machine_command_versions_and_every_row() -> None:
    usage = Usage(2.0, 1.0, 1.0, 0.0, 0.0, initiator_sleeps=40_000, target_sleeps=100_000)
    pair = Pair(Sample(Figures(200_000.0, 50.0, 90.0), usage), Sample(Figures(100_000.0), usage))
    compared = Result("nvme", "NVMe/TCP 4K random read, depth 32", "iotax", "SPDK", 1.25, [pair], [])
    alone = Result("nfs", "NFSv3 4K random read, depth 32", "iotax", "unfs3", 6, [], [pair.ours], "unfsd is not built")
    apart = Result("target", "NVMe/TCP 128K random write, depth 32", "iotax ↔ perf", "SPDK ↔ perf", 1.1, [pair], [])
    environment = {"machine": {"cpu_model": "Some CPU", "kernel": "6.18"}, "iotax": "0.1.0", "commit": "abc"}
    told = page(
        Document(
            "python -m bench --only nvme", environment, "schedutil", {"SPDK": "26.05"}, {}, [compared, alone, apart]
        )
    )
    assert "Some CPU" in told and "`python -m bench --only nvme`" in told and "- SPDK: 26.05" in told
    assert "governor schedutil" in told
    assert (
        "| NVMe/TCP 4K random read, depth 32 | iotax | 200,000 | 50.0 | 90.0 | 2.50 / 2.50 | 0.10 / 0.25 | 2.00 (2.00 to 2.00, 1 pairs) | ≥ 1.25: met |"
        in told
    )
    assert "|  | SPDK | 100,000 |" in told
    whole, single = told.split("## Targets alone")
    assert "SPDK ↔ perf" not in whole and "| iotax ↔ perf | 200,000 |" in single
    assert "## Initiators alone" not in told
    assert "(not compared)" in told and "iotax not compared with unfs3: unfsd is not built" in told
