"""Damaged files of every format, monitor and job: each gives a result or a reason, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
from answer_samples import (
    DISKSPD_TEXT,
    ELBENCHO_CSV,
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
    fio_reads,
    fio_report,
    fio_writes,
    vdbench_run,
)
from format_samples import BDEVPERF, DISKSPD, PERF, PERF_BINS, PERF_CUTS, PGBENCH, SYSBENCH
from import_samples import BINS, fio_campaign, fio_job, fio_output, fio_side
from test_import_tables import COLUMNS as TABLE_COLUMNS
from test_import_tables import HAMMERDB
from test_init_from_fio import JOB
from vdbench_samples import histogram, summary

import mutations
from iotax.imports.diskspd_job import study_of_diskspd
from iotax.imports.fio_job import study_of_job
from iotax.imports.formats import FORMATS
from iotax.imports.naming import PatternError
from iotax.imports.problems import Notes, Unreadable
from iotax.imports.processors import recorded
from iotax.imports.table import given_columns

REAL = Path(__file__).parent / "real"
TRIES = 30
"""Tries per sample in the normal run; all together take a few seconds."""
TRIES_LONG = 3000


@dataclass(frozen=True)
class Sample:
    name: str
    text: str
    beside: tuple[tuple[str, str], ...] = ()


def real(name: str) -> str:
    return (REAL / name).read_text()


MONITORED = "\n".join(
    f"10:00:{at:02}     all     10.00      0.00     15.00      5.00      0.00     70.00" for at in range(10, 60, 10)
)
ESXTOP = "\n".join(
    [
        r'"(PDH-CSV 4.0) (UTC)(0)","\\e\Physical Cpu(0)\% Util Time","\\e\Physical Cpu(_Total)\% Util Time"',
        *(f'"05/01/2026 10:00:{second:02}","40.0","40.0"' for second in range(0, 60, 5)),
    ]
)
SAMPLES: dict[str, list[Sample]] = {
    "fio": [
        Sample("a.json", fio_report(fio_reads(), fio_writes(groupid=1))),
        Sample("a.json", fio_output(fio_job(read=fio_side(bins=BINS)))),
        Sample("a.json", real("fio-2.21.json")),
        Sample("a.json", real("fio-3.42-client.json")),
        *(Sample("a.txt", each) for each in (FIO_TEXT, FIO_2_TEXT)),
    ],
    "diskspd": [Sample("a.xml", DISKSPD), Sample("a.txt", DISKSPD_TEXT)],
    "vdbench": [
        Sample("flatfile.html", VDBENCH_HEAD + vdbench_run(), (("histogram.html", VDBENCH_COUNTS),)),
        Sample("flatfile.html", VDBENCH_FILES),
        Sample("summary.html", summary(), (("histogram.html", histogram()),)),
    ],
    "iometer": [Sample("a.csv", IOMETER_TESTS)],
    "elbencho": [Sample("a.csv", ELBENCHO_CSV.format(version="2.1-0")), Sample("a.json", real("elbencho-3.0-29.json"))],
    "spdk-perf": [Sample("a.txt", PERF + PERF_BINS.format(0) + PERF_BINS.format(1) + PERF_CUTS.format(0))],
    "bdevperf": [Sample("a.json", json.dumps(BDEVPERF))],
    "sysbench": [
        Sample("a.txt", each) for each in (SYSBENCH, SYSBENCH_1_1, SYSBENCH_1_1_FILES, real("sysbench-1.0.20.txt"))
    ],
    "pgbench": [
        *(Sample("a.txt", each) for each in (PGBENCH, PGBENCH_9)),
        Sample("log.1", "".join(f"0 {n} {1000 + n} 0 1700000000 {2000 * (n + 1)}\n" for n in range(20))),
    ],
    "fio-hist": [
        Sample("x_clat_hist.1.log", "".join(f"{at}, {at % 2}, 4096, {', '.join(['1'] * 1856)}\n" for at in (999, 2000)))
    ],
    "table": [Sample("a.csv", HAMMERDB), Sample("a.csv", HAMMERDB.replace(",", ";"))],
    "hcibench": [Sample("vm-ds-1-1.json", fio_output())],
    "monitor": [
        Sample("m.json", real("mpstat-12.6.1.json")),
        Sample("s.json", real("sadf-12.6.1.json")),
        Sample("sar.txt", SAR_TEXT.format(date="2026-05-01", start="10:00:00", rows=MONITORED)),
        Sample("e.csv", ESXTOP),
    ],
    "job": [
        Sample("a.fio", f"{JOB}[b]\nrw=write\nbs=64k\nrate_iops=100\nbssplit=4k/50:8k/50\n"),
        Sample("a.fio", "[a]\nrw=randrw\nrwmixwrite=30\nbs=(4*16)\nsize=1g\npercentage_random=50,20\nrate=10m\n"),
    ],
    "profile": [Sample("a.xml", DISKSPD)],
    "command": [Sample("", "diskspd -b64K -d60 -o32 -F8 -r -w100 -g100i -Sh X:f1.dat X:f2.dat")],
}


def read(kind: str, path: Path, text: str) -> None:
    """Reads a file as a command does, but without the handler that turns an unexpected error into a reason."""
    match kind:
        case "monitor":
            recorded(f"target={path}", Notes()).during(1_777_629_600 * 10**9, 1_777_629_660 * 10**9)
        case "job":
            study_of_job(path, "x", {})
        case "profile":
            study_of_diskspd(str(path), "x")
        case "command":
            study_of_diskspd(text.replace("\x00", ""), "x")
        case _:
            columns = given_columns(TABLE_COLUMNS) if kind == "table" else None
            for each in replace(FORMATS[kind], columns=columns).reader(path, Notes()):
                each.checked().result([]).model_dump_json()


def survive(folder: Path, kind: str, tries: int) -> None:
    for at, sample in enumerate(SAMPLES[kind]):
        rng = Random(f"{kind} {at}")
        for _ in range(tries):
            damage = mutations.json_text if sample.name.endswith(".json") else mutations.text
            damaged = damage(rng, sample.text)
            for name, beside in sample.beside:
                (folder / name).write_bytes(mutations.text(rng, beside).encode("utf-8", "replace"))
            path = folder / (sample.name or "none")
            path.write_bytes(damaged.encode("utf-8", "replace"))
            try:
                read(kind, path, damaged)
            except (Unreadable, PatternError):
                continue
            except BaseException as error:
                raise AssertionError(f"{type(error).__name__} of {damaged[:4000]!r}") from error


def test_every_format_has_a_sample() -> None:
    assert set(FORMATS) <= set(SAMPLES)


@pytest.mark.parametrize("kind", SAMPLES)
def test_damaged_files_give_a_result_or_a_reason(tmp_path: Path, kind: str) -> None:
    survive(tmp_path, kind, TRIES)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", SAMPLES)
def test_many_damaged_files_give_a_result_or_a_reason(tmp_path: Path, kind: str) -> None:
    survive(tmp_path, kind, TRIES_LONG)


@pytest.mark.parametrize(
    "content",
    [
        '{"jobs": [{"jobname": "a", "read": {"runtime": 100000, "total_ios": 0, "iops": "x", "io_bytes": 1}}]}',
        '{"jobs": [{"jobname": "a", "read": {"runtime": "x", "total_ios": 10}}]}',
        '{"jobs": [{"jobname": "a", "read": []}]}',
        '{"jobs": [[]]}',
        '{"jobs": "x"}',
        '{"jobs": [{"read": {"runtime": 1e999, "total_ios": 1}}]}',
        '{"jobs": [{"read": {"runtime": 10, "total_ios": ' + "9" * 5000 + "}}]}",
        '{"jobs": ' + "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_one_malformed_file_costs_the_others_nothing(tmp_path: Path, iotax, content: str) -> None:
    folder = fio_campaign(tmp_path / "c")
    (folder / "nfs-4k-r2.json").write_text(content)
    words = ("--name-pattern", "{protocol}-{bs}-r{replicate}.json", "-n", "c.iotax")
    said = iotax("import", "fio", folder, *words, code=1).output
    assert "Imported 5 results" in said
    assert "not imported: " in said and "nfs-4k-r2.json" in said and "error in iotax" not in said


def test_what_no_reader_foresaw_costs_the_others_nothing(
    tmp_path: Path, iotax, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fio_campaign(tmp_path / "c")
    reader: Callable = FORMATS["fio"].reader

    def surprised(path: Path, notes: Notes) -> list:
        if path.name == "nfs-4k-r2.json":
            raise ZeroDivisionError("a surprise")
        return reader(path, notes)

    monkeypatch.setattr("iotax.imports.fio_json.read", surprised)
    words = ("--name-pattern", "{protocol}-{bs}-r{replicate}.json", "-n", "c.iotax")
    said = iotax("import", "fio", folder, *words, code=1).output
    assert "Imported 5 results" in said
    assert "an error in iotax (ZeroDivisionError in surprised, test_damaged_files.py:" in said
    assert "please report it with this file" in said
