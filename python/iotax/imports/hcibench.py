"""A folder of HCIBench: a file of each virtual machine, fio's JSON or vdbench's text, named
`PREFIX-DATASTORE-NUMBER-NUMBER`. All machines of a datastore in a case are one run, as HCIBench itself reports it.

HCIBench's own summary averages the machines' percentiles, or prints mean + 1.645 standard deviations as the 95th, which
are percentiles of nothing: it is not read.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from iotax.imports import fio_json, vdbench
from iotax.imports.measured import Measured
from iotax.imports.problems import Notes, Unreadable

_VM = re.compile(r"(-\d{1,6}){1,2}$")
"""At the end of a file's name: which machine of its datastore; some versions count hosts too."""
_SUMMARY = "-res.txt"


def read(path: Path, notes: Notes) -> list[Measured]:
    """One machine's part. Raises Unreadable."""
    if path.name.endswith(_SUMMARY):
        raise Unreadable(path, "HCIBench's own summary, which averages percentiles: name the folder of the case")
    own = fio_json if path.suffix == ".json" else vdbench
    store = _VM.sub("", path.stem).removeprefix("hci-").removeprefix("fio-").removeprefix("vdb-")
    return [
        replace(
            each,
            together=f"{path.parent}/{store}",
            settings={"case": path.parent.name, "datastore": store, **each.settings},
            notes=[*each.notes, "HCIBench's machines are added up from their own files, not from its summary"],
        )
        for each in own.read(path, notes)
    ]
