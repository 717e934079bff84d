"""The formats that can be imported: one table."""

from __future__ import annotations

import functools
import importlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from iotax.imports.measured import Measured
from iotax.imports.problems import Notes, Unreadable

if TYPE_CHECKING:
    from iotax.imports.table import Column


class Reader(Protocol):
    def __call__(self, path: Path, notes: Notes) -> list[Measured]:
        """Every result in the file. Raises Unreadable if there is none."""
        ...


@dataclass(frozen=True)
class Format:
    """One kind of file."""

    name: str
    title: str
    module: str
    suffixes: tuple[str, ...]
    """Of the files that are taken from a folder."""
    latency: str
    """How much of it the files hold, for the documentation."""
    either: bool = False
    """Whether files of several suffixes in one folder hold the same: those of the first that it has are taken."""
    summaries: tuple[str, ...] = ()
    """Of files in a folder that hold no result of their own."""
    otherwise: tuple[str, ...] = ()
    """Of the files that are taken from a folder that has none of `suffixes`."""
    columns: tuple[Column, ...] | None = None
    """What stands where in a table, as the user says; None for the formats that say it themselves."""

    @property
    def reader(self) -> Reader:
        """Imported when it is used: formats that are not used cost nothing."""
        found = importlib.import_module(f"iotax.imports.{self.module}").read
        return found if self.columns is None else functools.partial(found, columns=self.columns)

    def read(self, path: Path, notes: Notes) -> list[Measured]:
        """Every result in the file. Raises Unreadable and nothing else, whatever the file holds: one file never costs
        the others their import."""
        try:
            return [each.checked() for each in self.reader(path, notes)]
        except Unreadable:
            raise
        except OSError as error:
            raise Unreadable(path, f"cannot be read: {error.strerror or error}") from error
        except Exception as error:
            raise Unreadable(path, _unexpected(error)) from error

    def files(self, path: Path) -> Iterator[Path]:
        """The file, or those of a folder and the folders in it, by name."""
        if not path.is_dir():
            yield path
            return
        every = [each for each in sorted(path.rglob("*")) if each.is_file() and not each.name.startswith(".")]
        results = [each for each in every if not each.name.endswith(self.summaries)] if self.summaries else every
        found = [each for each in results if each.name.endswith(self.suffixes) and not self._repeated(each)]
        yield from found or [each for each in results if self.otherwise and each.name.endswith(self.otherwise)]

    def _repeated(self, path: Path) -> bool:
        """Whether another file beside it holds the same, and is preferred."""
        if not self.either:
            return False
        at = next(at for at, suffix in enumerate(self.suffixes) if path.name.endswith(suffix))
        return any(path.with_name(suffix).is_file() for suffix in self.suffixes[:at])


def _unexpected(error: Exception) -> str:
    """Of what no reader foresaw: with the place, for whoever mends it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    said = str(error)[:100]
    return (
        f"not read, because of an error in iotax ({type(error).__name__} in {frame.name}, "
        f"{Path(frame.filename).name}:{frame.lineno}: {said}); please report it with this file"
    )


FORMATS = {
    each.name: each
    for each in (
        Format(
            "fio",
            "fio JSON, JSON+ or text",
            "fio_json",
            (".json",),
            "JSON+ merged; JSON and text per run",
            otherwise=(".txt", ".out"),
        ),
        Format("fio-hist", "fio histogram logs", "fio_histogram", (".log",), "merged"),
        Format(
            "diskspd",
            "DiskSpd XML or text",
            "diskspd",
            (".xml",),
            "percentiles per run",
            otherwise=(".txt", ".out", ".log"),
        ),
        Format(
            "vdbench",
            "vdbench flatfile.html or summary.html",
            "vdbench",
            ("flatfile.html", "summary.html"),
            "with histogram.html merged; else means",
            either=True,
        ),
        Format("iometer", "Iometer CSV", "iometer", (".csv",), "means"),
        Format(
            "elbencho",
            "elbencho CSV or JSON",
            "elbencho",
            (".csv", ".json"),
            "JSON with --lathisto merged; else means",
            summaries=(".live.csv", ".live.json"),
        ),
        Format("spdk-perf", "SPDK spdk_nvme_perf text", "spdk_perf", (".txt", ".log"), "-LL merged; -L per run"),
        Format("bdevperf", "SPDK bdevperf JSON", "bdevperf", (".json",), "means"),
        Format(
            "hcibench",
            "HCIBench folders with fio or vdbench",
            "hcibench",
            (".json", ".txt"),
            "fio's as fio; vdbench's means",
            summaries=("-res.txt",),
        ),
        Format("pgbench", "pgbench -l logs, or its text", "pgbench", ("",), "logs merged; text means"),
        Format("table", "table with a row for each run (--column)", "table", (".csv", ".tsv"), "as it has", columns=()),
        Format("sysbench", "sysbench text", "sysbench", (".txt", ".log"), "--histogram merged; else per run"),
    )
}
