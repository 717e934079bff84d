"""A folder of HCIBench with fio: a JSON of each virtual machine, and all of a test case's are one run.

HCIBench's own summary averages the machines' percentiles, which is a percentile of nothing: it is not read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from iotax.imports import fio_json
from iotax.imports.measured import Measured
from iotax.imports.problems import Notes


def read(path: Path, notes: Notes) -> list[Measured]:
    """One machine's part. Raises Unreadable."""
    return [
        replace(
            each,
            together=f"{path.parent}/{each.part}",
            settings={"case": path.parent.name, **each.settings},
            notes=[*each.notes, "HCIBench's machines are added up from their own files, not from its summary"],
        )
        for each in fio_json.read(path, notes)
    ]
