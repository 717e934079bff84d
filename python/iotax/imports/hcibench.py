"""A folder of HCIBench: a file of each virtual machine, fio's JSON or vdbench's text, and all of a case's are one run.

HCIBench's own summary averages the machines' percentiles, or prints mean + 1.645 standard deviations as the 95th, which
are percentiles of nothing: it is not read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from iotax.imports import fio_json, vdbench
from iotax.imports.measured import Measured
from iotax.imports.problems import Notes, Unreadable

_SUMMARY = "-res.txt"


def read(path: Path, notes: Notes) -> list[Measured]:
    """One machine's part. Raises Unreadable."""
    if path.name.endswith(_SUMMARY):
        raise Unreadable(path, "HCIBench's own summary, which averages percentiles: name the folder of the case")
    own = fio_json if path.suffix == ".json" else vdbench
    return [
        replace(
            each,
            together=f"{path.parent}/{each.part}",
            settings={"case": path.parent.name, **each.settings},
            notes=[*each.notes, "HCIBench's machines are added up from their own files, not from its summary"],
        )
        for each in own.read(path, notes)
    ]
