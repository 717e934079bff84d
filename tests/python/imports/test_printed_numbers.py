"""A study of other programs' files reports the numbers that the programs printed, within rounding.

The programs named in the file names, in the versions given there, wrote the files under real/; vdbench's lack their
legend. The table below has what they printed. The other files are written by hand from the documentation of their
formats.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from format_samples import (
    BDEVPERF,
    DISKSPD,
    ELBENCHO,
    IOMETER,
    PERF,
    PERF_BINS,
    VDBENCH,
    buckets,
    elbencho_phase,
)
from import_samples import BINS, fio_job, fio_output, fio_side
from vdbench_samples import histogram, summary, terminal

from iotax.imports.formats import FORMATS

REAL = Path(__file__).parent / "real"


@dataclass(frozen=True)
class Printed:
    """What a program printed, as (value, rounding error); rates in IOPS and MiB/s, times in µs."""

    form: str
    files: dict[str, str]
    """Name → content, or the name of a real file after `@`."""
    values: dict[str, tuple[float, float]]
    parts: int = 1
    """Results in each file; each is a treatment."""
    page: tuple[str, ...] = ()
    """Printed figures in the report's format."""
    options: tuple[str, ...] = ()
    """Additional command-line options."""


# fio prints reads and writes separately: 4828 and 2159 IOPS, 18.9 MiB/s and 8639 KiB/s, 1153.55 and 1001.54 µs. Their
# 99th percentiles are 5211 and 4883 µs; that of both together must be between them.
FIO = Printed(
    "fio",
    {"fio.json": "@fio-3.33.json"},
    {
        "iops": (4828 + 2159, 1.5),
        "bandwidth": (18.9 + 8639 / 1024, 0.06),
        "latency": ((4833 * 1153.55 + 2162 * 1001.54) / 6995, 0.01),
        "latency_p50": (635, 635 / 64),
        "latency_p99": ((4883 + 5211) / 2, (5211 - 4883) / 2 + 5211 / 64),
    },
    page=("6,990", "1,110"),
)
# A log has the I/Os that completed in whole intervals of half a second. Each of its bins is four of fio's, within 1/32.
FIO_HISTOGRAM = Printed(
    "fio-hist",
    {"fio_clat_hist.1.log": "@fio-3.33_clat_hist.1.log"},
    {
        "iops": (8764, 10),
        "latency_p50": (99, 99 / 32),
        "latency_p99": (258, 258 / 32),
        "latency": (112.11, 112.11 / 32),
    },
)
# fio's row for both clients together is not counted as a result. Its percentiles are those of both.
FIO_CLIENTS = Printed(
    "fio",
    {"fio.json": "@fio-3.42-client.json"},
    {
        "iops": (3997.002997, 0.001),
        "bandwidth": (15988 / 1024, 1 / 1024),
        "latency": (301.743737, 0.001),
        "latency_p50": (10.176, 0.0005),
        "latency_p99": (4014.080, 0.0005),
    },
    page=("4,000", "302"),
)
# Reads 41,730 and writes 13,791 IOPS, 166,919 and 55,162 KiB/s, 21.13 and 4.42 µs.
FIO_2 = Printed(
    "fio",
    {"fio.json": "@fio-2.21.json"},
    {
        "iops": (41729.81 + 13790.63, 0.01),
        "bandwidth": ((166919 + 55162) / 1024, 2 / 1024),
        "latency": ((41855 * 21.133174 + 13832 * 4.424378) / (41855 + 13832), 0.001),
    },
    page=("55,500",),
)
# The printed bins give bounds: half of the I/Os took 0.1 to 0.2 ms, one in a hundred 2 to 4 ms.
VDBENCH_VALUES = {
    "iops": (333.25, 0.1),
    "bandwidth": (1.30, 0.005),
    "latency": (335, 0.5),
    "latency_p50": (150, 50),
    "latency_p99": (3000, 1000),
}
VDBENCH_FLATFILE, VDBENCH_SUMMARY = (
    Printed(
        "vdbench",
        {name: f"@vdbench-5.04.06/{name}" for name in (table, "histogram.html")},
        VDBENCH_VALUES,
        page=("333", "335"),
    )
    for table in ("flatfile.html", "summary.html")
)
SPDK_PERF = Printed(
    "spdk-perf",
    {"perf.txt": "@spdk-perf-26.09.txt"},
    {
        "iops": (14947.76, 0.5),
        "bandwidth": (58.39, 0.005),
        "latency": (66.84, 0.005),
        "latency_p50": (25.020, 0.0005),
        "latency_p99": (163.311, 0.0005),
    },
    page=("14,900", "66.8"),
)
# As printed on the terminal for both jobs together.
SPDK_BDEVPERF = Printed(
    "bdevperf",
    {"bdevperf.json": "@spdk-bdevperf-26.09.json"},
    {"iops": (1451744.99, 50), "bandwidth": (5670.88, 0.2), "latency": (5.39, 0.005)},
    page=("5.39",),
)
# Writes 44,857 IOPS and 86 µs, reads 181,979 and 19; a mix of both 178,047 and, in whole µs, 12 and 4.
ELBENCHO_CSV, ELBENCHO_JSON = (
    Printed(
        "elbencho",
        {f"e.{suffix}": f"@elbencho-3.0-29.{suffix}"},
        {},
        parts=3,
        page=("44,900", "182,000", "178,000", "86.0", "19.0"),
    )
    for suffix in ("csv", "json")
)
SYSBENCH_FILEIO = Printed(
    "sysbench",
    {"sysbench.txt": "@sysbench-1.0.20.txt"},
    {"iops": (11544.61, 12), "latency": (170, 5)},
    page=("11,500",),
)
PGBENCH_TEXT = Printed(
    "pgbench", {"out.txt": "@pgbench-15.txt"}, {"iops": (444.012008, 0.001), "latency": (628, 0.5)}, page=("444", "628")
)
# The logs do not contain the time for connecting.
PGBENCH_LOGS = Printed(
    "pgbench",
    {"pgbench_log.1": "@pgbench_log.1", "pgbench_log.1.1": "@pgbench_log.1.1"},
    {"iops": (444.012008, 5), "latency": (628, 0.5)},
)
BY_HAND = {
    "fio client mode, by hand": Printed(
        "fio",
        {
            "c.json": json.dumps(
                {
                    "fio version": "fio-3.36",
                    "client_stats": [
                        *(fio_job("a", hostname=host, read=fio_side(bins=BINS)) for host in ("h1", "h2")),
                        fio_job("All clients", read=fio_side(2000)),
                    ],
                }
            )
        },
        {"iops": (2000, 0), "bandwidth": (7.8125, 0), "latency": (180.0005, 0.001), "latency_p99": (400, 400 / 128)},
        page=("2,000", "180"),
    ),
    "DiskSpd": Printed(
        "diskspd",
        {"a.xml": DISKSPD},
        {"iops": (1000, 0), "bandwidth": (7.8125, 0), "latency": (1500, 0.5), "latency_p99": (4250, 0.5)},
        page=("1,000", "1,500", "4,250"),
    ),
    "vdbench flatfile, by hand": Printed(
        "vdbench",
        {"flatfile.html": VDBENCH},
        {"iops": (1000, 0.005), "bandwidth": (3.91, 0.005), "latency": (2000, 0.5)},
        page=("1,000", "2,000"),
    ),
    "vdbench summary and histogram, by hand": Printed(
        "vdbench",
        {"summary.html": summary(), "histogram.html": histogram()},
        {"iops": (1000, 0.05), "bandwidth": (3.91, 0.005), "latency": (2000, 0.5), "latency_p50": (1375, 16)},
        page=("1,000", "2,000"),
    ),
    "Iometer": Printed(
        "iometer", {"a.csv": IOMETER}, {"iops": (5000.5, 0.05), "latency": (3200, 0.5)}, page=("5,000", "3,200")
    ),
    "elbencho CSV, by hand": Printed(
        "elbencho",
        {"a.csv": "\n".join(line for line in ELBENCHO.splitlines() if ",WRITE," not in line)},
        {"iops": (9048, 0.5), "bandwidth": (9048, 0.5), "latency": (3223, 0.5)},
        page=("9,050", "3,220"),
    ),
    "elbencho JSON, by hand": Printed(
        "elbencho",
        {
            "a.json": elbencho_phase(
                "READ",
                iops="500",
                bytes="4096000",
                latency={
                    "IO": {
                        "min_us": "60",
                        "avg_us": "100",
                        "max_us": "900",
                        "histogram": buckets(b64_76=900, b861_1024=100),
                    }
                },
            )
        },
        {"iops": (500, 0.5), "latency": (100, 0.5), "latency_p50": (70, 6), "latency_p99": (942, 82)},
        page=("500", "100"),
    ),
    # Its MiB/s are the sum over two cores, each rounded.
    "SPDK perf, by hand": Printed(
        "spdk-perf",
        {"a.txt": PERF + PERF_BINS.format(0) + PERF_BINS.format(1)},
        {"iops": (2000, 0.005), "bandwidth": (7.81, 0.011), "latency": (600, 0.005), "latency_p50": (200, 1)},
        page=("2,000", "600"),
    ),
    "bdevperf, by hand": Printed(
        "bdevperf",
        {"a.json": json.dumps(BDEVPERF)},
        {"iops": (1000, 0.5), "bandwidth": (3.90625, 0.00001), "latency": (640, 0.05)},
        page=("1,000", "640"),
    ),
    "HCIBench with fio": Printed(
        "hcibench",
        {f"case/vm-{at}.json": fio_output(fio_job(read=fio_side(bins=BINS))) for at in (1, 2)},
        {"iops": (2000, 0), "latency": (180.0005, 0.001), "latency_p99": (400, 400 / 128)},
        page=("2,000", "180"),
    ),
    "a sheet": Printed(
        "table",
        {"sheet.csv": "TPM,Avg ms\n60000,2.5\n"},
        {"iops": (1000, 0.1), "latency": (2500, 0.5)},
        page=("1,000", "2,500"),
        options=("--column", "tpm=TPM", "--column", "latency_ms=Avg ms", "--column", "duration_s=60"),
    ),
    "HCIBench with vdbench": Printed(
        "hcibench",
        {f"case/vm-{at}.txt": terminal() for at in (1, 2)},
        {"iops": (2000, 0.1), "bandwidth": (7.82, 0.01), "latency": (2000, 0.5)},
        page=("2,000",),
    ),
}
REAL_FILES = {
    "fio": FIO,
    "fio 2": FIO_2,
    "fio client mode": FIO_CLIENTS,
    "fio histogram log": FIO_HISTOGRAM,
    "vdbench flatfile": VDBENCH_FLATFILE,
    "vdbench summary": VDBENCH_SUMMARY,
    "elbencho CSV": ELBENCHO_CSV,
    "elbencho JSON": ELBENCHO_JSON,
    "SPDK perf": SPDK_PERF,
    "bdevperf": SPDK_BDEVPERF,
    "sysbench": SYSBENCH_FILEIO,
    "pgbench text": PGBENCH_TEXT,
    "pgbench logs": PGBENCH_LOGS,
}
CASES = REAL_FILES | BY_HAND


def test_every_format_is_in_the_table() -> None:
    assert {each.form for each in CASES.values()} == set(FORMATS)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_report_has_the_numbers_that_the_program_printed(tmp_path: Path, iotax, case: Printed) -> None:
    deepest = max(name.count("/") for name in case.files)
    for folder in ("iscsi/1", "iscsi/2", "nfs/1", "nfs/2"):
        for name, content in case.files.items():
            path = tmp_path / "study" / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content.startswith("@"):
                shutil.copy(REAL / content[1:], path)
            else:
                path.write_text(content)
    pattern = "{protocol}/{replicate}/" + "*/" * deepest + "*"
    iotax("import", case.form, tmp_path / "study", "--name-pattern", pattern, "-n", "x.iotax", *case.options)
    shown = json.loads(iotax("show", "x.iotax", "--json").stdout)["treatments"]
    assert len(shown) == 2 * case.parts
    for treatment in shown:
        assert treatment["runs"] == 2
        for response, (printed, rounding) in case.values.items():
            assert treatment["values"][response]["value"] == pytest.approx(printed, abs=max(rounding, 1e-6 * printed))
    iotax("report", "x.iotax")
    page = (tmp_path / "x.html").read_text()
    for figure in case.page:
        assert f">{figure}<" in page, figure
